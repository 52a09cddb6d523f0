//! Files followed through a history, whatever their names.

use super::ModelFs;
use super::inode::{Body, InodeId};
use crate::manifest::Digest;
use crate::vocabulary::{At, FsPath};

/// One file in all models of a history; a snapshot's copy is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileKey(InodeId);

impl ModelFs {
    pub(crate) fn file(&self, path: &FsPath) -> Option<FileKey> {
        self.file_of(&At::Path(path.clone()))
    }

    pub(crate) fn file_of(&self, at: &At) -> Option<FileKey> {
        let id = self.at(at).ok()?;
        matches!(self.inode(id).body, Body::File(_)).then_some(FileKey(id))
    }

    /// Size and content.
    pub(crate) fn bytes_of(&self, FileKey(id): FileKey) -> Option<(u64, Digest)> {
        let subvolume = self.subvolumes.get(&id.subvolume)?;
        match &subvolume.inodes.get(&id.ino)?.body {
            Body::File(content) => Some((content.size(), content.digest())),
            _ => None,
        }
    }
}

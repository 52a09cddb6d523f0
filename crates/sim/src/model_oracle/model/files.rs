//! Tracking of inodes through a history, regardless of their names.

use super::ModelFs;
use super::inode::{Body, InodeId};
use crate::manifest::Digest;
use crate::vocabulary::{At, FsPath};

/// The identity of an inode in all models of a history; its copy in a snapshot is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InodeKey(pub(super) InodeId);

impl ModelFs {
    pub(crate) fn inode_of(&self, at: &At) -> Option<InodeKey> {
        self.at(at).ok().map(InodeKey)
    }

    pub(crate) fn file(&self, path: &FsPath) -> Option<InodeKey> {
        self.file_of(&At::Path(path.clone()))
    }

    pub(crate) fn file_of(&self, at: &At) -> Option<InodeKey> {
        let id = self.at(at).ok()?;
        matches!(self.inode(id).body, Body::File(_)).then_some(InodeKey(id))
    }

    /// Returns size and contents.
    pub(crate) fn bytes_of(&self, InodeKey(id): InodeKey) -> Option<(u64, Digest)> {
        let subvolume = self.subvolumes.get(&id.subvolume)?;
        match &subvolume.inodes.get(&id.ino)?.body {
            Body::File(content) => Some((content.size(), content.digest())),
            _ => None,
        }
    }
}

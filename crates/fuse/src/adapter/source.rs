//! The interface of a volume for the adapter.
//!
//! Mounts use `Volume`. Tests use a tree in memory, with numbers and defects that no kernel would produce. Errors are
//! errnos at this level, and have been logged.

use std::ops::ControlFlow;
use std::sync::Arc;

use ubtrfs_format::item::InodeFlags;
pub(crate) use ubtrfs_fs::FileId;
use ubtrfs_fs::Volume;
use ubtrfs_fuse_server::request::{Attr, FileKind, Result, StatFs};

/// A file as it is on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inode {
    /// `ino` is the number within the subvolume.
    pub(crate) attr: Attr,
    pub(crate) generation: u64,
    pub(crate) flags: InodeFlags,
}

pub(crate) struct Child<'a> {
    /// Ascending within a directory, from 2.
    pub(crate) index: u64,
    pub(crate) name: &'a [u8],
    pub(crate) kind: FileKind,
    pub(crate) id: FileId,
}

pub(crate) trait Source: Send + Sync + 'static {
    /// Returns the volume, for operations that only volumes support, such as changes.
    fn volume(&self) -> Option<&Arc<Volume>> {
        None
    }

    fn lookup(&self, dir: FileId, name: &[u8]) -> Result<Option<FileId>>;
    fn inode(&self, id: FileId) -> Result<Inode>;
    /// Lists children with an index of at least `from`, without `.` and `..`.
    fn readdir(
        &self,
        dir: FileId,
        from: u64,
        each: &mut dyn FnMut(Child<'_>) -> ControlFlow<()>,
    ) -> Result<()>;
    /// Returns a lower bound of the index that the next new entry of a directory gets.
    fn dir_end(&self, _dir: FileId) -> Result<u64> {
        Ok(u64::MAX)
    }

    fn parent(&self, dir: FileId) -> Result<FileId>;
    fn readlink(&self, id: FileId) -> Result<Vec<u8>>;
    fn xattr(&self, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>>;
    fn xattr_names(&self, id: FileId) -> Result<Vec<Vec<u8>>>;
    fn read(&self, id: FileId, offset: u64, out: &mut [u8]) -> Result<usize>;
    fn seek_data(&self, id: FileId, offset: u64) -> Result<Option<u64>>;
    fn seek_hole(&self, id: FileId, offset: u64) -> Result<Option<u64>>;
    fn statfs(&self) -> Result<StatFs>;
}

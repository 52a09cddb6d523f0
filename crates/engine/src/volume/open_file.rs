//! Open files: what keeps an inode after its last name is gone.

use std::sync::Arc;

use ubtrfs_device::nonblocking;
use ubtrfs_transaction::FileId;

use super::Volume;
use crate::error::Result;
use crate::file::Durable;
use crate::inode::{InodeHold, WritebackErrors};

/// A hold on an inode. If it is the last one of an inode without a name, dropping it deletes the inode.
#[derive(Debug)]
pub struct OpenFile {
    hold: InodeHold,
    /// Dropped last: the hold may have something to delete.
    volume: Arc<Volume>,
}

impl OpenFile {
    pub(super) fn new(hold: InodeHold, volume: &Arc<Volume>) -> OpenFile {
        OpenFile {
            hold,
            volume: Arc::clone(volume),
        }
    }

    pub fn id(&self) -> FileId {
        self.hold.id()
    }

    /// Closes the file, or gives it back if that would mean to wait and this thread must not.
    ///
    /// Dropping it waits in any case.
    pub fn close(self) -> std::result::Result<(), OpenFile> {
        match self.would_block() {
            true => Err(self),
            false => Ok(()),
        }
    }

    /// Closes the file. The inode is pinned in its place if it is referred to from outside.
    pub fn close_and_pin(self) {
        self.hold.close_and_pin();
    }

    /// Returns whether letting go now would mean to wait, and this thread must not.
    pub fn would_block(&self) -> bool {
        self.hold.would_block()
    }

    /// Makes the file's data and all that was done to it durable.
    ///
    /// Errors: a write-back of the file failed since it was opened, which is returned once; a failed commit.
    pub fn fsync(&self) -> Result<()> {
        self.sync(Durable::All)
    }

    /// Makes the file's data durable, as [`Volume::fdatasync`] does.
    ///
    /// Errors: as [`OpenFile::fsync`].
    pub fn fdatasync(&self) -> Result<()> {
        self.sync(Durable::Data)
    }

    fn sync(&self, what: Durable) -> Result<()> {
        self.volume.roots.check_process()?;
        nonblocking::check()?;
        let report = |errors: &mut WritebackErrors| errors.report_to(self.hold.seen_errors());
        self.volume.log.sync(self.hold.inode(), what, report)
    }
}

impl Volume {
    /// Opens an inode of any kind, but an empty subvolume directory.
    ///
    /// Errors: it does not exist, or has lost its last name and is not held.
    pub fn open_file(self: &Arc<Self>, id: FileId) -> Result<OpenFile> {
        Ok(OpenFile::new(self.inodes.acquire(id)?, self))
    }

    /// Opens a file that shall be written to; `appends`: at its end only. Writing itself does not ask again.
    ///
    /// Errors: a directory; an immutable file, one of a read-only subvolume, and an append-only one if not `appends`.
    pub fn open_file_for_writing(self: &Arc<Self>, id: FileId, appends: bool) -> Result<OpenFile> {
        let hold = self.inodes.acquire_for_writing(id, appends)?;
        Ok(OpenFile::new(hold, self))
    }
}

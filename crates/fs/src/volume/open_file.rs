//! Open files, which keep an inode after its last name is gone.

use std::sync::Arc;

use ubtrfs_device::nonblocking;
use ubtrfs_storage::FileId;

use super::Volume;
use crate::error::Result;
use crate::file::Durable;
use crate::inode::{InodeHold, WritebackErrors};

/// A handle to an inode. Dropping the last hold of an inode without a name deletes the inode.
#[derive(Debug)]
pub struct OpenFile {
    hold: InodeHold,
    /// Dropped last: dropping the hold may delete the inode.
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

    /// Closes the file. Returns it if closing would block and this thread must not wait.
    ///
    /// Dropping the file waits in any case.
    pub fn close(self) -> std::result::Result<(), OpenFile> {
        if self.would_block() {
            Err(self)
        } else {
            Ok(())
        }
    }

    /// Closes the file, and pins the inode if it has outside references.
    pub fn close_and_pin(self) {
        self.hold.close_and_pin();
    }

    /// Returns whether dropping it now would block, in a thread that must not wait.
    pub fn would_block(&self) -> bool {
        self.hold.would_block()
    }

    /// Makes the file's data and all changes to its inode durable.
    ///
    /// Errors: a failed write-back since the file was opened, which is returned once; a failed commit.
    pub fn fsync(&self) -> Result<()> {
        self.sync(Durable::All)
    }

    /// Makes the file's data durable, like [`Volume::fdatasync`].
    ///
    /// Errors: as [`OpenFile::fsync`].
    pub fn fdatasync(&self) -> Result<()> {
        self.sync(Durable::Data)
    }

    /// Makes `what` of the file durable.
    ///
    /// Errors: as [`OpenFile::fsync`].
    pub fn sync(&self, what: Durable) -> Result<()> {
        self.volume.roots.check_process()?;
        nonblocking::check()?;
        let report = |errors: &mut WritebackErrors| errors.report_to(self.hold.seen_errors());
        self.volume.log.sync(self.hold.inode(), what, report)
    }
}

impl Volume {
    /// Opens an inode of any kind except an empty subvolume directory.
    ///
    /// Errors: it does not exist, or has lost its last name and has no hold.
    pub fn open_file(self: &Arc<Self>, id: FileId) -> Result<OpenFile> {
        Ok(OpenFile::new(self.inodes.acquire(id)?, self))
    }

    /// Opens a file for writing; with `appends`, for writing at its end only. Writes do not repeat these
    /// checks.
    ///
    /// Errors: a directory; an immutable file; a read-only subvolume; an append-only file without `appends`.
    pub fn open_file_for_writing(self: &Arc<Self>, id: FileId, appends: bool) -> Result<OpenFile> {
        let hold = self.inodes.acquire_for_writing(id, appends)?;
        Ok(OpenFile::new(hold, self))
    }
}

//! Having written data on the devices.
//!
//! Not here: commits, and when they are due (`txn::background`).

use ubtrfs_device::waiting;
use ubtrfs_format::item::InodeFlags;

use super::dirty::DirtyFiles;
use crate::error::{Error, Result};
use crate::fs::{FileId, Inode, known_inode};
use crate::volume::Volume;

/// Files whose data goes to the devices together.
pub(super) const FILES_AT_ONCE: usize = 64;

impl Volume {
    /// Gives all buffered data its extents. Meets every file with data that was written before the call, also one that
    /// another thread is writing back.
    ///
    /// The first loss is returned when all has been tried.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        let files: &DirtyFiles = &self.data.dirty;
        let mut outcome = Ok(());
        let mut last = None;
        loop {
            let some = files.next(last, FILES_AT_ONCE);
            last = some.last().map(|inode| inode.id);
            if last.is_none() {
                return outcome;
            }
            outcome = outcome.and(self.write_back_files(&some));
        }
    }

    /// Makes a file's data and all that was done to it durable.
    ///
    /// Errors: data of this file was lost, now or since the last call; a failed commit.
    pub fn fsync(&self, id: FileId) -> Result<()> {
        waiting::check()?;
        let inode = self.inodes.get(self, id)?;
        if self.data.settings.flush_on_commit() {
            // Losses are told to who syncs the file.
            let _ = self.write_back_all();
        }
        let written = self.write_back(&inode);
        self.write_times_of(&inode)?;
        let failure = inode.lock.write().buffer.take_failure();
        if let Some(reason) = failure {
            return Err(Error::DataLost { file: id, reason });
        }
        written?;
        self.commit_running()
    }

    /// Whether what is written to a file must be durable before the writer hears of it (`chattr +S`). It is asked
    /// before anything is changed.
    ///
    /// Errors: the thread must not wait, and would have to for that.
    pub(super) fn syncs_writes(&self, inode: &Inode) -> Result<bool> {
        let flags = known_inode(&inode.tree, inode.id)?.flags();
        let syncs = flags.contains(InodeFlags::SYNC);
        if syncs {
            waiting::check()?;
        }
        Ok(syncs)
    }
}

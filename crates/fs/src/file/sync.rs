//! Syncing files: their data and items reach the devices.
//!
//! Not here: commits and their timing (`volume::background`).

use std::fmt::Debug;
use std::sync::{Arc, Weak};

use ubtrfs_device::nonblocking;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_storage::FileId;

use super::Files;
use crate::error::{Error, Result};
use crate::inode::{DirtyFiles, Inode, WritebackErrors, look_at_inode};

/// The part of a file that a sync makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// Its data, and all changes to its inode.
    All,
    /// Its data, with all items needed to read it, but not its times.
    Data,
}

/// Makes single files durable, for writers of files that have the flag SYNC.
///
/// Locks: called without any lock held.
pub(crate) trait FileSync: Debug + Send + Sync {
    fn sync_file(&self, inode: &Arc<Inode>) -> Result<()>;
}

/// The number of files that are written back together.
pub(super) const FILES_AT_ONCE: usize = 64;

impl Files {
    /// Writes back all files with data that was written before the call, including those that another thread
    /// is writing back.
    ///
    /// Tries all files, and then returns the first error.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        let mut unread = Ok(());
        let lost = self.write_back_all_with(|_, error| keep_first(&mut unread, error));
        unread.and(lost)
    }

    /// Writes back like [`Self::write_back_all`], for callers that need the files of `root` (None: all files)
    /// to have no buffered data.
    ///
    /// Data that is lost is no error here, because the next fsync of its file reports it, which may be another
    /// user's. The error is of a file whose data is still buffered, because its inode cannot be read.
    pub(crate) fn empty_buffers(&self, root: Option<RootId>) -> Result<()> {
        let mut unread = Ok(());
        let lost = self.write_back_all_with(|file, error| {
            if root.is_none_or(|root| root == file.root) {
                keep_first(&mut unread, error);
            }
        });
        if let Err(error) = lost {
            tracing::debug!(%error, "the next fsync of the file reports this");
        }
        unread
    }

    /// Writes all files back. Calls `unread` for each file whose data stays buffered, and returns the first
    /// loss.
    fn write_back_all_with(&self, mut unread: impl FnMut(FileId, Error)) -> Result<()> {
        let files: &DirtyFiles = &self.inodes.dirty;
        let mut outcome = Ok(());
        let mut last = None;
        loop {
            let some = files.next(last, FILES_AT_ONCE);
            last = some.last().map(|inode| inode.id);
            if last.is_none() {
                return outcome;
            }
            outcome = outcome.and(self.write_back_files(&some, &mut unread));
        }
    }

    /// Makes a file's data and all changes to its inode durable.
    pub(super) fn fsync(&self, inode: &Arc<Inode>) -> Result<()> {
        nonblocking::check()?;
        match self.file_sync.get().and_then(Weak::upgrade) {
            Some(file_sync) => file_sync.sync_file(inode),
            None => {
                self.write_back_for_sync(inode, Durable::All, WritebackErrors::report)?;
                Ok(self.inodes.transactions()?.commit_running()?)
            }
        }
    }

    /// Sets the implementation of `fsync`. The files do not keep it alive.
    pub(crate) fn set_file_sync(&self, file_sync: Weak<dyn FileSync>) {
        let set = self.file_sync.set(file_sync);
        assert!(set.is_ok(), "the files of a volume have one way to sync");
    }

    /// Brings the items up to date with everything that a sync must persist. `report` takes a pending
    /// write-back error.
    pub(crate) fn write_back_for_sync(
        &self,
        inode: &Arc<Inode>,
        what: Durable,
        report: impl FnOnce(&mut WritebackErrors) -> Option<String>,
    ) -> Result<()> {
        if self.inodes.settings.flush_on_commit() {
            // The next sync of the file reports a write-back error.
            let _ = self.write_back_all();
        }
        let written = self.write_back(inode);
        if what == Durable::All {
            self.inodes.write_times_of(inode)?;
        }
        let loss = report(inode.lock.write().buffer.writeback_errors_mut());
        if let Some(reason) = loss {
            let file = inode.id;
            return Err(Error::DataLost { file, reason });
        }
        written
    }

    /// Returns whether a write must be durable before it returns (`chattr +S`). Called before anything is
    /// changed.
    ///
    /// Errors: the file needs a sync, and the thread must not wait.
    pub(super) fn syncs_writes(&self, inode: &Inode) -> Result<bool> {
        must_sync(look_at_inode(&inode.tree, inode.id, |item| item.flags())?)
    }
}

/// Stores `error` in `outcome`, unless it has one.
fn keep_first(outcome: &mut Result<()>, error: Error) {
    if outcome.is_ok() {
        *outcome = Err(error);
    }
}

/// Returns whether a write to a file with these flags must be durable before it returns.
pub(super) fn must_sync(flags: InodeFlags) -> Result<bool> {
    let syncs = flags.contains(InodeFlags::SYNC);
    if syncs {
        nonblocking::check()?;
    }
    Ok(syncs)
}

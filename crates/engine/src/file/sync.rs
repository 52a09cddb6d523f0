//! Having written data on the devices.
//!
//! Not here: commits, and when they are due (`volume::background`).

use std::fmt::Debug;
use std::sync::{Arc, Weak};

use ubtrfs_device::nonblocking;
use ubtrfs_format::item::InodeFlags;

use super::Files;
use crate::error::{Error, Result};
use crate::inode::{DirtyFiles, Inode, WritebackErrors, look_at_inode};

/// The part of a file that a sync makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    All,
    /// All but times.
    Data,
}

/// Makes single files durable, for writers of files that have the flag SYNC.
///
/// Locks: called without any lock held.
pub(crate) trait FileSync: Debug + Send + Sync {
    fn sync_file(&self, inode: &Arc<Inode>) -> Result<()>;
}

/// Files whose data goes to the devices together.
pub(super) const FILES_AT_ONCE: usize = 64;

impl Files {
    /// Gives all buffered data its extents. Meets every file with data that was written before the call, also one that
    /// another thread is writing back.
    ///
    /// The first loss is returned when all has been tried.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        let files: &DirtyFiles = &self.inodes.dirty;
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

    /// Has syncs go through `file_sync`, which stays theirs as long as it lives.
    pub(crate) fn set_file_sync(&self, file_sync: Weak<dyn FileSync>) {
        let set = self.file_sync.set(file_sync);
        assert!(set.is_ok(), "the files of a volume have one way to sync");
    }

    /// Has items say all that a sync makes durable; `report` takes a write-back error that is to be returned.
    pub(crate) fn write_back_for_sync(
        &self,
        inode: &Arc<Inode>,
        what: Durable,
        report: impl FnOnce(&mut WritebackErrors) -> Option<String>,
    ) -> Result<()> {
        if self.inodes.settings.flush_on_commit() {
            // A write-back error is reported by the next sync of the file.
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

    /// Refuses to write to a file with fs-verity. Otherwise as `syncs_writes`.
    pub(super) fn admit_write(&self, inode: &Inode) -> Result<bool> {
        let flags = look_at_inode(&inode.tree, inode.id, |item| item.flags())?;
        match flags.contains(InodeFlags::RO_VERITY) {
            true => Err(Error::NotPermitted(inode.id)),
            false => must_sync(flags),
        }
    }

    /// Returns whether what is written to a file must be durable before the writer hears of it (`chattr +S`). It is
    /// asked before anything is changed.
    ///
    /// Errors: the thread must not wait, and would have to for that.
    pub(super) fn syncs_writes(&self, inode: &Inode) -> Result<bool> {
        must_sync(look_at_inode(&inode.tree, inode.id, |item| item.flags())?)
    }
}

fn must_sync(flags: InodeFlags) -> Result<bool> {
    let syncs = flags.contains(InodeFlags::SYNC);
    if syncs {
        nonblocking::check()?;
    }
    Ok(syncs)
}

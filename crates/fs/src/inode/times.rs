//! Writes lazy times, which are only in memory (`volume::lazy_times`).
//!
//! Locks: each inode's, one at a time; so the caller may hold none.
//! Not here: recording such times (`inode_item`).

use std::sync::Arc;
use std::time::Duration;

use ubtrfs_device::nonblocking;
use ubtrfs_storage::{EditEstimate, FileId, Reservation};

use super::{Inode, Inodes, put_inode};
use crate::error::{Error, Result};

/// The number of inodes whose lazy times are collected at once.
const BATCH: usize = 64;

impl Inodes {
    /// Returns whether changes of only times stay in memory; see [`crate::OpenOptions::lazy_times`].
    pub(crate) fn has_lazy_times(&self) -> bool {
        self.roots.lazy_times().is_wanted()
    }

    /// Turns lazy times on, or turns them off and writes the pending ones.
    pub(crate) fn set_lazy_times(&self, are_lazy: bool) -> Result<()> {
        self.transactions()?;
        self.roots.lazy_times().set_wanted(are_lazy);
        if are_lazy {
            Ok(())
        } else {
            nonblocking::check()?;
            self.write_times()
        }
    }

    /// Returns the estimate for recording the time of a change. With lazy times it includes a later write of
    /// the times.
    pub(crate) fn cost_of_times(&self) -> EditEstimate {
        if self.has_lazy_times() {
            EditEstimate::items(2)
        } else {
            EditEstimate::items(1)
        }
    }

    /// Writes all lazy times that are pending at the call.
    pub(crate) fn write_times(&self) -> Result<()> {
        self.write_times_before(self.roots.lazy_times().next_turn())
    }

    /// Writes the lazy times that are older than `age`.
    pub(crate) fn write_times_of_age(&self, age: Duration) -> Result<()> {
        self.write_times_before(self.roots.lazy_times().turn_at_age(age))
    }

    fn write_times_before(&self, end: u64) -> Result<()> {
        let mut from = 0;
        loop {
            let some = self.roots.lazy_times().of_turns(from..end, BATCH);
            let Some(&(last, _)) = some.last() else {
                return Ok(());
            };
            from = last + 1;
            for (_, id) in some {
                if let Some(inode) = self.inode_of_times(id)? {
                    self.write_times_of(&inode)?;
                }
            }
        }
    }

    /// Writes the lazy times of one inode.
    pub(crate) fn write_times_of(&self, inode: &Inode) -> Result<()> {
        let _state = inode.lock.write();
        self.write_times_locked(inode)
    }

    /// Writes surplus lazy times to make room for others, without waiting. Operations that record times call
    /// it with no inode locked.
    #[inline]
    pub(crate) fn flush_lazy_times(&self) {
        for id in self.roots.lazy_times().surplus() {
            self.write_times_if_free(id);
        }
    }

    #[cold]
    fn write_times_if_free(&self, id: FileId) {
        let written = nonblocking::scope(|| {
            let inode = self.inode_of_times(id)?;
            match inode.as_ref().map(|inode| (inode, inode.lock.try_write())) {
                Some((inode, Some(_state))) => self.write_times_locked(inode),
                _ => Ok(()),
            }
        });
        if let Err(error) = written {
            tracing::debug!(%error, "times stay in memory");
        }
    }

    fn write_times_locked(&self, inode: &Inode) -> Result<()> {
        let Some(mut item) = self.roots.lazy_times().get(inode.id) else {
            return Ok(());
        };
        let txn = self.join_transaction(Reservation::already_made())?;
        match inode.tree.check_alive() {
            Ok(()) => put_inode(&txn, inode, &mut item),
            // The subvolume is gone, so the times are not needed.
            Err(_) => self.roots.lazy_times().forget(inode.id),
        }
        Ok(())
    }

    /// Returns an inode with lazy times, or None if its subvolume is gone.
    fn inode_of_times(&self, id: FileId) -> Result<Option<Arc<Inode>>> {
        match self.get(id) {
            Ok(inode) => Ok(Some(inode)),
            Err(Error::NoSuchSubvolume(_)) => {
                self.roots.lazy_times().forget(id);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

//! Orphans (inodes without a name and without a holder) that wait to be evicted by a background thread.
//!
//! An eviction may wait for data in flight, and for reads of blocks that hold items of the inode. An unlink
//! must not wait for that.
//!
//! Invariants
//! - ORPHAN-QUEUE-1: a queued inode has an ORPHAN_ITEM, so after a crash the next mount evicts it.
//! - ORPHAN-QUEUE-2: sync, and any operation that could fail with ENOSPC, evicts the queued orphans first.
//! - ORPHAN-QUEUE-3: an inode whose eviction finds no space is queued again.
//!
//! Locks: `turn` during an eviction, before all locks of inodes. The queue's mutex is a leaf.
//! Not here: the deletion of an inode (`evict`), the thread (`volume::background`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ubtrfs_device::nonblocking;

use super::evict::{EVICTED_AT_ONCE, all_items};
use super::{Inode, Inodes};
use crate::error::{Error, Result};

/// When this many orphans are queued, an unlink evicts its inode itself.
const QUEUED_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct OrphanQueue {
    queue: Mutex<VecDeque<Arc<Inode>>>,
    turn: Mutex<()>,
    /// The approximate number of unlinked inodes with a hold.
    held: AtomicU64,
}

impl Inodes {
    /// Counts an inode that has lost its last name and has a hold.
    pub(crate) fn note_held_orphan(&self) {
        self.orphan_queue.held.fetch_add(1, Ordering::Relaxed);
    }

    /// Uncounts an unlinked inode whose last hold is dropped. It is also called for inodes that never had a
    /// name.
    pub(crate) fn note_released_orphan(&self) {
        let less = |held: u64| held.checked_sub(1);
        let held = &self.orphan_queue.held;
        let _ = held.try_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Returns whether unlinked inodes with holds may soon release space. The kernel's FUSE releases a file
    /// some time after close(2) and unlink(2) have returned.
    pub(crate) fn has_held_orphans(&self) -> bool {
        self.orphan_queue.held.load(Ordering::Relaxed) > 0
    }

    /// Returns whether orphans wait to be evicted.
    pub(crate) fn has_queued_orphans(&self) -> bool {
        !self.orphan_queue.queue.lock().is_empty()
    }

    /// Returns whether an orphan can be left to the background thread.
    pub(crate) fn can_queue_orphan(&self) -> bool {
        let is_served = self
            .transactions()
            .is_ok_and(|manager| manager.threads.has_background());
        is_served && self.orphan_queue.queue.lock().len() < QUEUED_MAX
    }

    /// Evicts an orphan now if that is quick, and queues it otherwise. After a failure the next mount evicts
    /// it.
    pub(crate) fn queue_eviction(&self, inode: &Arc<Inode>) {
        let at_once = || nonblocking::scope(|| self.evict_at_once(inode));
        if !self.can_queue_orphan() {
            return self.evict_or_queue(inode);
        }
        if !self.is_quiesced() && at_once().is_ok_and(|done| done) {
            return;
        }
        self.orphan_queue.queue.lock().push_back(Arc::clone(inode));
        if let Ok(manager) = self.transactions() {
            manager.threads.want_eviction();
        }
    }

    /// Evicts an orphan with few items. Returns false if it has many.
    fn evict_at_once(&self, inode: &Arc<Inode>) -> Result<bool> {
        match all_items(inode, EVICTED_AT_ONCE)? {
            Some(_) => self.evict(inode).map(|()| true),
            None => Ok(false),
        }
    }

    /// Evicts an orphan. Without space it is queued again (ORPHAN-QUEUE-3); after other failures the next
    /// mount evicts it.
    fn evict_or_queue(&self, inode: &Arc<Inode>) {
        match self.evict(inode) {
            Ok(()) => {}
            Err(Error::NoSpace) => self.orphan_queue.queue.lock().push_back(Arc::clone(inode)),
            Err(error) => {
                let id = inode.id;
                tracing::warn!(root = id.root.0, ino = id.ino.0, %error, "file without a name is left");
            }
        }
    }

    /// Evicts the orphans that were queued before the call.
    ///
    /// Locks: none may be held, as for `TransactionManager::reserve_metadata`.
    pub(crate) fn evict_orphans(&self) {
        if self.is_quiesced() {
            return;
        }
        let count = self.orphan_queue.queue.lock().len();
        // At least once, which waits for an eviction in progress.
        for _ in 0..count.max(1) {
            let _turn = self.orphan_queue.turn.lock();
            let Some(inode) = self.orphan_queue.queue.lock().pop_front() else {
                return;
            };
            self.evict_or_queue(&inode);
            self.table.release(&inode);
        }
    }
}

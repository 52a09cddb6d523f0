//! Orphans (inodes without a name and without a holder) that wait for their eviction by a thread of the volume.
//!
//! An eviction may wait for data that is on its way to a device, and for blocks that hold items of the inode. An unlink
//! does not wait for that.
//!
//! Invariants
//! - ORPHAN-QUEUE-1: a queued inode has an ORPHAN_ITEM, so that a crash leaves it to the next opening.
//! - ORPHAN-QUEUE-2: sync, and any operation that could fail with ENOSPC, evicts the queued orphans first.
//! - ORPHAN-QUEUE-3: an inode whose eviction finds no space is queued again.
//!
//! Locks: `turn` during an eviction, before all locks of inodes; the queue's is a leaf.
//! Not here: how an inode is deleted (`evict`), the thread (`volume::background`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ubtrfs_device::nonblocking;

use super::evict::{EVICTED_AT_ONCE, all_items};
use super::{Inode, Inodes};
use crate::error::{Error, Result};

/// With this many queued, an unlink evicts its inode itself.
const QUEUED_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct OrphanQueue {
    queue: Mutex<VecDeque<Arc<Inode>>>,
    turn: Mutex<()>,
    /// About how many inodes without a name are held.
    held: AtomicU64,
}

impl Inodes {
    /// Counts an inode that has lost its last name and is held.
    pub(crate) fn note_held_orphan(&self) {
        self.orphan_queue.held.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an inode without a name that nothing holds any longer. Inodes that never had a name come here, too.
    pub(crate) fn note_released_orphan(&self) {
        let less = |held: u64| held.checked_sub(1);
        let held = &self.orphan_queue.held;
        let _ = held.try_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Returns whether space may come from inodes without a name that are held. The kernel's FUSE tells of the end of a
    /// file some time after close(2) and unlink(2) have returned.
    pub(crate) fn has_held_orphans(&self) -> bool {
        self.orphan_queue.held.load(Ordering::Relaxed) > 0
    }

    /// Returns whether orphans wait for their eviction.
    pub(crate) fn has_queued_orphans(&self) -> bool {
        !self.orphan_queue.queue.lock().is_empty()
    }

    /// Returns whether an orphan can be left to the volume's thread.
    pub(crate) fn can_queue_orphan(&self) -> bool {
        let is_served = self
            .transactions()
            .is_ok_and(|manager| manager.threads.has_background());
        is_served && self.orphan_queue.queue.lock().len() < QUEUED_MAX
    }

    /// Evicts an orphan now if that is quick, else queues it. A failure leaves it to the next opening.
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

    /// Evicts an orphan of few items; false if it has many.
    fn evict_at_once(&self, inode: &Arc<Inode>) -> Result<bool> {
        match all_items(inode, EVICTED_AT_ONCE)? {
            Some(_) => self.evict(inode).map(|()| true),
            None => Ok(false),
        }
    }

    /// Evicts an orphan, or queues it again without space (ORPHAN-QUEUE-3). Other failures leave it to the next opening.
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
        // At least once, to wait for an eviction under way.
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

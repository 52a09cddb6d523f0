//! Times of inodes that have not been written to their items yet (`lazytime`).
//!
//! Changes of times alone stay in memory until the item is written for another reason, or until a caller writes them
//! (`inode::times`).
//!
//! Invariants
//! - LAZY-1: an inode's item in the tree differs from its entry here only in times and their count. Every edit of the
//!   item removes the entry while it holds the tree's mutable set.
//! - LAZY-2: at most [`MOST`] entries are kept: old ones must be written before new ones can be added.
//! - LAZY-3: each entry has a metadata reservation in the running transaction.
//!
//! Locks: a shard's, held while an entry is added or removed, then the order's; both are leaves.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ubtrfs_device::clock;
use ubtrfs_format::item::InodeItem;

use crate::file_id::{FileId, IdHasher};

#[cfg(test)]
mod tests;

/// About 4 MiB.
const MOST: usize = 8192;
const SHARDS: usize = 16;
/// Linux writes lazy times after at most this time.
pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Default)]
pub struct LazyTimes {
    is_wanted: AtomicBool,
    count: AtomicUsize,
    shards: [Mutex<HashMap<FileId, Kept, BuildHasherDefault<IdHasher>>>; SHARDS],
    order: Mutex<Order>,
}

#[derive(Debug)]
struct Kept {
    item: InodeItem,
    turn: u64,
}

/// The entries by age.
#[derive(Debug, Default)]
struct Order {
    next: u64,
    turns: BTreeMap<u64, (FileId, Instant)>,
}

impl LazyTimes {
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Sets whether times are kept from now on. Existing entries stay.
    pub fn set_wanted(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    fn shard(&self, id: FileId) -> &Mutex<HashMap<FileId, Kept, BuildHasherDefault<IdHasher>>> {
        &self.shards[id.ino.0 as usize % SHARDS]
    }

    /// Returns the item with the newest times, if the inode has an entry.
    #[inline]
    pub fn get(&self, id: FileId) -> Option<InodeItem> {
        if self.count() == 0 {
            return None;
        }
        self.shard(id).lock().get(&id).map(|kept| kept.item)
    }

    /// Keeps the times of a locked inode. Returns false if lazy times are off or the table is full.
    #[must_use]
    pub fn keep(&self, id: FileId, item: &InodeItem) -> bool {
        if !self.is_wanted() {
            return false;
        }
        let mut shard = self.shard(id).lock();
        if let Some(kept) = shard.get_mut(&id) {
            kept.item = *item;
            return true;
        }
        if self.count() >= MOST {
            return false;
        }
        let turn = {
            let mut order = self.order.lock();
            let turn = order.next;
            order.next += 1;
            order.turns.insert(turn, (id, clock::now()));
            turn
        };
        shard.insert(id, Kept { item: *item, turn });
        self.count.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Removes an inode, because its item was written (LAZY-1) or the inode is gone.
    pub fn forget(&self, id: FileId) {
        if self.count() == 0 {
            return;
        }
        let mut shard = self.shard(id).lock();
        if let Some(kept) = shard.remove(&id) {
            self.order.lock().turns.remove(&kept.turn);
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Returns a turn greater than any current one.
    pub fn next_turn(&self) -> u64 {
        self.order.lock().next
    }

    /// Returns up to `most` of the inodes with `turns`, in ascending order.
    pub fn of_turns(&self, turns: Range<u64>, most: usize) -> Vec<(u64, FileId)> {
        let order = self.order.lock();
        let some = order.turns.range(turns).take(most);
        some.map(|(&turn, &(id, _))| (turn, id)).collect()
    }

    /// Returns the lowest turn that is greater than the turn of any entry older than `age`.
    pub fn turn_at_age(&self, age: Duration) -> u64 {
        let order = self.order.lock();
        let mut turns = order.turns.iter();
        let young = turns.find(|(_, (_, since))| clock::now() - *since <= age);
        young.map_or(order.next, |(&turn, _)| turn)
    }

    /// Returns some of the oldest inodes if the table is nearly full, so that the caller can write them (LAZY-2).
    #[inline]
    pub fn surplus(&self) -> Vec<FileId> {
        if self.count() <= MOST - MOST / 8 {
            Vec::new()
        } else {
            self.oldest()
        }
    }

    #[cold]
    fn oldest(&self) -> Vec<FileId> {
        /// More than one, because the oldest may be in use.
        const SOME: usize = 4;
        let order = self.order.lock();
        order.turns.values().take(SOME).map(|&(id, _)| id).collect()
    }
}

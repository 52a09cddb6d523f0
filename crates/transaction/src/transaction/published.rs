//! Space and sets that a commit has freed, kept until no reader can be using them.
//!
//! Invariants
//! - RELEASE-1: space that commit N freed stays pinned until N's superblock is durable and every reader older than
//!   N's publication is gone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ubtrfs_device::clock;
use ubtrfs_tree::{Epoch, FrozenSet};

use super::manager::TransactionManager;
use crate::space::Pinned;

/// Freed space by the epoch that may still read it, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PinnedByEpoch {
    waiting: VecDeque<(Arc<Epoch>, Pinned)>,
    /// How many are about to be released.
    leaving: u64,
    /// How many are not waiting any more.
    released: u64,
}

impl PinnedByEpoch {
    pub(super) fn push(&mut self, epoch: Arc<Epoch>, pinned: Pinned) {
        self.waiting.push_back((epoch, pinned));
    }

    /// Returns whether all that was freed can be had.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.leaving == 0
    }

    /// Returns how many commits have freed space so far.
    fn count(&self) -> u64 {
        self.released + self.leaving + self.waiting.len() as u64
    }

    /// Takes the oldest set if no reader is left. A reader of an older epoch may look at what a newer one freed.
    fn take_unread(&mut self) -> Option<Pinned> {
        let (epoch, _) = self.waiting.front()?;
        if Arc::strong_count(epoch) > 1 {
            return None;
        }
        let (_, pinned) = self.waiting.pop_front()?;
        self.leaving += 1;
        Some(pinned)
    }

    fn note_released(&mut self) {
        self.leaving -= 1;
        self.released += 1;
    }
}

/// Readers hold what was freed for a search or a step of a cursor.
pub(super) const READERS_TAKE: Duration = Duration::from_millis(1);
/// How often a release waits for readers that hold it longer, or one after another.
pub(super) const READERS_TRIES: u32 = 100;

impl TransactionManager {
    /// Gives freed space out again as far as RELEASE-1 allows.
    pub fn release_freed(&self) {
        let mut has_released = false;
        while let Some(pinned) = self.take_unread() {
            self.discard.discard_pinned(&pinned);
            self.space.unpin(pinned);
            self.pinned_by_epoch.lock().note_released();
            has_released = true;
        }
        if has_released {
            self.discard.poke();
        }
    }

    fn take_unread(&self) -> Option<Pinned> {
        self.pinned_by_epoch.lock().take_unread()
    }

    /// Frees what commits have freed so far, as far as no reader looks at it. Readers that take long are not waited
    /// for.
    pub fn wait_for_readers(&self) {
        let freed = self.pinned_by_epoch.lock().count();
        for _ in 0..READERS_TRIES {
            self.release_freed();
            if self.pinned_by_epoch.lock().released >= freed {
                return;
            }
            clock::sleep(READERS_TAKE);
        }
    }
}

/// Sets that commits have published. Freeing a large one takes long, and no reader shall be the last to hold it.
#[derive(Debug, Default)]
pub struct RetiredSets {
    sets: Mutex<Vec<Arc<FrozenSet>>>,
}

impl RetiredSets {
    pub(super) fn push(&self, set: Arc<FrozenSet>) {
        self.sets.lock().push(set);
    }

    /// Frees those that no reader holds.
    pub fn free(&self) {
        let is_last = |set: &mut Arc<FrozenSet>| FrozenSet::is_last(set);
        let last: Vec<_> = self.sets.lock().extract_if(.., is_last).collect();
        drop(last);
    }
}

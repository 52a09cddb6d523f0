//! Freed space and frozen sets, kept after a commit until no reader can use them.
//!
//! Invariants
//! - RELEASE-1: space freed by commit N stays pinned until N's superblock is durable and every reader older than N's
//!   publication is gone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ubtrfs_device::clock;
use ubtrfs_tree::{Epoch, FrozenSet};

use super::manager::TransactionManager;
use crate::space::Pinned;

/// Freed space with the epoch of its last possible readers, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PinnedByEpoch {
    waiting: VecDeque<(Arc<Epoch>, Pinned)>,
    /// Number of entries that are being released.
    leaving: u64,
    /// Number of entries released so far.
    released: u64,
}

impl PinnedByEpoch {
    pub(super) fn push(&mut self, epoch: Arc<Epoch>, pinned: Pinned) {
        self.waiting.push_back((epoch, pinned));
    }

    /// Returns whether all freed space is available.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.leaving == 0
    }

    /// Returns the number of commits that have freed space so far.
    fn count(&self) -> u64 {
        self.released + self.leaving + self.waiting.len() as u64
    }

    /// Takes the oldest entry if its epoch has no readers. Readers of an older epoch may also use space freed later.
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

/// Readers usually hold an epoch only for a search or one step of a cursor.
pub(super) const READERS_TAKE: Duration = Duration::from_millis(1);
/// Number of times that a release waits for slower or consecutive readers.
pub(super) const READERS_TRIES: u32 = 100;

impl TransactionManager {
    /// Makes freed space available as far as RELEASE-1 allows.
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

    /// Releases the space freed so far. Waits for current readers, but not for slow ones.
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

/// Frozen sets of published commits. Freeing a large one is slow, so readers must not hold the last reference.
#[derive(Debug, Default)]
pub struct RetiredSets {
    sets: Mutex<Vec<Arc<FrozenSet>>>,
}

impl RetiredSets {
    pub(super) fn push(&self, set: Arc<FrozenSet>) {
        self.sets.lock().push(set);
    }

    /// Frees the sets without readers.
    pub fn free(&self) {
        let is_last = |set: &mut Arc<FrozenSet>| FrozenSet::is_last(set);
        let last: Vec<_> = self.sets.lock().extract_if(.., is_last).collect();
        drop(last);
    }
}

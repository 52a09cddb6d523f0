//! Freed space and frozen sets, kept after a commit until no reader can use them.
//!
//! Invariants
//! - RELEASE-1: space freed by commit N stays pinned until N's superblock is durable and every reader older than N's
//!   publication is gone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ubtrfs_tree::{Epoch, FrozenSet};

use crate::space::Pinned;

/// Freed space with the epoch of its last possible readers, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PinnedByEpoch {
    waiting: VecDeque<(Arc<Epoch>, Pinned)>,
    /// Number of entries that are being released.
    leaving: u64,
    /// Number of entries released so far.
    pub(super) released: u64,
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
    pub(super) fn count(&self) -> u64 {
        self.released + self.leaving + self.waiting.len() as u64
    }

    /// Takes the oldest entry if its epoch has no readers. Readers of an older epoch may also use space freed later.
    pub(super) fn take_unread(&mut self) -> Option<Pinned> {
        let (epoch, _) = self.waiting.front()?;
        if Arc::strong_count(epoch) > 1 {
            return None;
        }
        let (_, pinned) = self.waiting.pop_front()?;
        self.leaving += 1;
        Some(pinned)
    }

    pub(super) fn note_released(&mut self) {
        self.leaving -= 1;
        self.released += 1;
    }
}

/// Readers usually hold an epoch only for a search or one step of a cursor.
pub(super) const READERS_TAKE: Duration = Duration::from_millis(1);
/// Number of times that a release waits for slower or consecutive readers.
pub(super) const READERS_TRIES: u32 = 100;

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

//! What a commit has freed, until nobody can be looking at it.
//!
//! Invariants
//! - RELEASE-1: space that commit N freed is given out again only after N's superblock is durable and every
//!   reader that began before N was published is gone.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use ubtrfs_tree::{Epoch, FrozenSet};

use crate::space::{Pinned, Space};
use crate::volume::Volume;

/// Freed space by the epoch that may still read it, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Unreleased {
    waiting: VecDeque<(Arc<Epoch>, Pinned)>,
}

impl Unreleased {
    pub(super) fn push(&mut self, epoch: Arc<Epoch>, pinned: Pinned) {
        self.waiting.push_back((epoch, pinned));
    }

    /// Whether all that was freed can be had.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A reader of an older epoch may look at what a newer one freed: hence in order.
    fn release(&mut self, space: &Space) {
        while let Some((epoch, _)) = self.waiting.front()
            && Arc::strong_count(epoch) == 1
            && let Some((_, pinned)) = self.waiting.pop_front()
        {
            space.unpin(pinned);
        }
    }
}

/// Sets that commits have published. Freeing a large one takes long, and no reader shall be the last to hold it.
#[derive(Debug, Default)]
pub(crate) struct Discarded {
    sets: Mutex<Vec<Arc<FrozenSet>>>,
}

impl Discarded {
    pub(super) fn push(&self, set: Arc<FrozenSet>) {
        self.sets.lock().push(set);
    }

    /// Frees those that no reader holds.
    pub(super) fn free(&self) {
        let is_last = |set: &mut Arc<FrozenSet>| FrozenSet::is_last(set);
        let last: Vec<_> = self.sets.lock().extract_if(.., is_last).collect();
        drop(last);
    }
}

impl Volume {
    /// Gives freed space out again as far as RELEASE-1 allows.
    pub(crate) fn release_freed(&self) {
        if let Ok(writer) = self.writer() {
            writer.unreleased.lock().release(&writer.space);
        }
    }
}

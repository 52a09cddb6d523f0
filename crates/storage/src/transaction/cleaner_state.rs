//! Work left to commits: cleaning deleted subvolumes, and rebuilding the free-space tree.
//!
//! Not here: the work itself (`commit::cleaner`, `commit::rebuild`).

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::Key;

/// The remaining work.
#[derive(Debug, Default)]
pub struct CleanerState {
    /// Whether deleted subvolumes need cleaning.
    needs_cleaner: AtomicBool,
    /// The cleaner's position in a subtree that is shared with other trees.
    converted: Mutex<Option<(RootId, Key)>>,
    /// Whether background changes are suspended.
    quiesced: AtomicBool,
    /// Whether the free-space tree is untrusted and not rebuilt yet.
    clears_free_space_tree: AtomicBool,
}

impl CleanerState {
    /// Schedules the cleaning of deleted subvolumes. Operations call this within their transaction.
    pub fn wake(&self) {
        self.needs_cleaner.store(true, Ordering::Release);
    }

    /// Takes the request for cleaning. The caller holds the freeze guard, so the frozen transaction contains the
    /// deletions that set the flag.
    pub(super) fn take_request(&self) -> bool {
        !self.is_quiesced() && self.needs_cleaner.swap(false, Ordering::AcqRel)
    }

    /// Returns whether cleaning was requested and is not suspended.
    #[inline]
    pub fn is_needed(&self) -> bool {
        !self.is_quiesced() && self.needs_cleaner.load(Ordering::Acquire)
    }

    pub(super) fn converted_to(&self, deleted: RootId) -> Option<Key> {
        let converted = *self.converted.lock();
        converted.and_then(|(id, key)| (id == deleted).then_some(key))
    }

    pub(super) fn note_converted(&self, deleted: RootId, to: Option<Key>) {
        *self.converted.lock() = to.map(|key| (deleted, key));
    }

    /// Schedules a rebuild of the free-space tree. A commit does it even if it has no other work.
    pub(super) fn clear_free_space_tree(&self) {
        self.clears_free_space_tree.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn clears_free_space_tree(&self) -> bool {
        self.clears_free_space_tree.load(Ordering::Acquire)
    }

    pub(super) fn made_free_space_tree(&self) {
        self.clears_free_space_tree.store(false, Ordering::Release);
    }

    /// Returns whether background changes are suspended.
    #[inline]
    pub fn is_quiesced(&self) -> bool {
        self.quiesced.load(Ordering::Relaxed)
    }

    /// Suspends background changes, or ends that.
    pub fn set_quiesced(&self, yes: bool) {
        self.quiesced.store(yes, Ordering::Relaxed);
    }
}

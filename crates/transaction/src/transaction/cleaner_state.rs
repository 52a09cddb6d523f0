//! Work that is left to commits: deleted subvolumes, and a free-space tree to make anew.
//!
//! Not here: the work itself (`commit::cleaner`, `commit::rebuild`).

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::Key;

use super::manager::TransactionManager;

/// The work that is left.
#[derive(Debug, Default)]
pub(super) struct CleanerState {
    /// Deleted subvolumes are left to clean.
    needs_cleaner: AtomicBool,
    /// Where the cleaner has come to in a deleted tree's blocks that others share.
    converted: Mutex<Option<(RootId, Key)>>,
    /// Nothing is changed but by operations.
    quiesced: AtomicBool,
    /// The free-space tree is not trusted, and not made anew yet.
    clears_free_space_tree: AtomicBool,
}

impl TransactionManager {
    /// Notes that there are deleted subvolumes to clean. Operations call this within their transaction.
    pub fn wake_cleaner(&self) {
        self.cleaner.needs_cleaner.store(true, Ordering::Release);
    }

    /// Takes the flag that there are subvolumes to clean. The caller holds the freeze guard: the frozen transaction
    /// shows the subvolumes that the flag was set for.
    pub(super) fn take_needs_cleaner(&self) -> bool {
        !self.is_quiesced() && self.cleaner.needs_cleaner.swap(false, Ordering::AcqRel)
    }

    #[inline]
    pub fn needs_cleaner(&self) -> bool {
        !self.is_quiesced() && self.cleaner.needs_cleaner.load(Ordering::Acquire)
    }

    pub(super) fn converted_to(&self, deleted: RootId) -> Option<Key> {
        let converted = *self.cleaner.converted.lock();
        converted.and_then(|(id, key)| (id == deleted).then_some(key))
    }

    pub(super) fn note_converted(&self, deleted: RootId, to: Option<Key>) {
        *self.cleaner.converted.lock() = to.map(|key| (deleted, key));
    }

    /// Has a commit make the free-space tree anew, and come for that if for nothing else.
    pub(crate) fn clear_free_space_tree(&self) {
        self.cleaner
            .clears_free_space_tree
            .store(true, Ordering::Release);
        self.wake_cleaner();
    }

    pub(super) fn clears_free_space_tree(&self) -> bool {
        self.cleaner.clears_free_space_tree.load(Ordering::Acquire)
    }

    pub(super) fn made_free_space_tree(&self) {
        self.cleaner
            .clears_free_space_tree
            .store(false, Ordering::Release);
    }

    #[inline]
    pub fn is_quiesced(&self) -> bool {
        self.cleaner.quiesced.load(Ordering::Relaxed)
    }

    pub fn set_quiesced(&self, yes: bool) {
        self.cleaner.quiesced.store(yes, Ordering::Relaxed);
    }
}

//! Totals of untrimmed space over all block groups, and the list of groups with new untrimmed space.
//!
//! Invariants
//! - TRIM-TOTALS-1: `bytes` and `extents` are the sums over the groups. Each group adds the difference under its own
//!   lock.
//!
//! Locks: `listed` is a leaf.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use ubtrfs_format::ids::Logical;

/// Shared by the groups of all types.
#[derive(Debug, Default)]
pub(crate) struct TrimTotals {
    /// Whether groups record freed space.
    tracks: AtomicBool,
    /// Whether metadata groups do so as well.
    tracks_metadata: AtomicBool,
    pub(super) bytes: AtomicU64,
    pub(super) extents: AtomicU64,
    /// Untrimmed bytes that were allocated again.
    pub(super) saved: AtomicU64,
    /// The starts of groups with untrimmed space that the background has not seen yet.
    listed: Mutex<BTreeSet<Logical>>,
    has_listed: AtomicBool,
}

impl TrimTotals {
    #[inline]
    pub(super) fn tracks(&self) -> bool {
        self.tracks.load(Ordering::Relaxed)
    }

    pub(super) fn tracks_metadata(&self) -> bool {
        self.tracks_metadata.load(Ordering::Relaxed)
    }

    pub(super) fn set_tracks(&self, tracks: bool, metadata: bool) {
        self.tracks_metadata.store(metadata, Ordering::Relaxed);
        self.tracks.store(tracks, Ordering::Relaxed);
    }

    pub(super) fn list(&self, group: Logical) {
        self.listed.lock().insert(group);
        self.has_listed.store(true, Ordering::Release);
    }

    pub(super) fn has_listed(&self) -> bool {
        self.has_listed.load(Ordering::Acquire)
    }

    pub(super) fn take_listed(&self) -> Vec<Logical> {
        let mut listed = self.listed.lock();
        self.has_listed.store(false, Ordering::Release);
        std::mem::take(&mut *listed).into_iter().collect()
    }
}

/// A snapshot of the sums over all block groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Untrimmed {
    pub extents: u64,
    pub bytes: u64,
    /// Untrimmed bytes that were allocated again since the volume was opened.
    pub saved_bytes: u64,
}

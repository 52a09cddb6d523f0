//! Sums over the block groups of one type: what there is, what is used, what can still be had.
//!
//! Invariants
//! - SPACE-INFO-1: `free_bytes` is the sum of the groups' free bytes. Each group adds the difference under its own lock, so
//!   reading it takes none.
//! - SPACE-INFO-2: both sides write before they check. A reservation is added before it is compared with the free space.
//!   An allocation, a chunk of another type, or a group that goes is subtracted before it is compared with the
//!   reservations. Two concurrent threads therefore cannot both miss each other.

use std::sync::Arc;

use ubtrfs_format::block_group_flags::{BlockGroupType, Profile};

use super::trim_totals::TrimTotals;
use crate::sync::{AtomicU64, Ordering, yield_now};

/// How often a data reservation is tried again that collides with a concurrent one.
const RESERVE_TRIES: usize = 100;

/// The sums of one type, in bytes.
#[derive(Debug, Default)]
pub(crate) struct SpaceInfo {
    pub(super) total: AtomicU64,
    pub(super) used: AtomicU64,
    pub(super) pinned: AtomicU64,
    /// Could be allocated now.
    pub(super) free_bytes: AtomicU64,
    pub(super) reserved_data: AtomicU64,
    pub(super) reserved_metadata: AtomicU64,
    /// Bytes that chunks made of the devices' unallocated space could add to `free_bytes`.
    pub(super) unallocated_bytes: AtomicU64,
    /// One for all types.
    pub(super) trims: Arc<TrimTotals>,
}

impl SpaceInfo {
    pub(super) fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::SeqCst)
    }

    pub(super) fn unallocated_bytes(&self) -> u64 {
        self.unallocated_bytes.load(Ordering::SeqCst)
    }

    pub(super) fn reserved(&self) -> u64 {
        let data = self.reserved_data.load(Ordering::SeqCst);
        data.saturating_add(self.reserved_metadata.load(Ordering::SeqCst))
    }

    /// Returns the bytes that the groups have and chunks could add. A chunk that is created or removed meanwhile counts
    /// once at most.
    fn obtainable(&self) -> u64 {
        // A chunk leaves the unallocated space before it is among the groups, and comes back after it has left them.
        let before = self.unallocated_bytes();
        let free = self.free_bytes();
        free.saturating_add(before.min(self.unallocated_bytes()))
    }

    /// Returns whether `metadata` can be reserved beside data.
    pub(super) fn fits_metadata(&self, metadata: u64) -> bool {
        let data = self.reserved_data.load(Ordering::SeqCst);
        data.saturating_add(metadata) <= self.obtainable()
    }

    /// Returns whether all reservations can be met, by chunks not made yet as well.
    pub(super) fn fits_reservations(&self) -> bool {
        self.reserved() <= self.obtainable()
    }

    /// Returns whether the groups can meet all reservations.
    pub(super) fn fits_groups(&self) -> bool {
        self.reserved() <= self.free_bytes()
    }

    /// Returns whether so much more might be reserved once all chunks are made that can be.
    pub(super) fn may_have(&self, bytes: u64) -> bool {
        self.reserved().saturating_add(bytes) <= self.obtainable()
    }

    /// Reserves data if the groups can meet it.
    pub(super) fn reserve_data(&self, bytes: u64) -> bool {
        for _ in 0..RESERVE_TRIES {
            // A reservation that cannot be met is not added, so that it does not make others fail.
            let now = self.reserved().checked_add(bytes);
            if now.is_none_or(|sum| sum > self.free_bytes()) {
                return false;
            }
            // SPACE-INFO-2
            self.reserved_data.fetch_add(bytes, Ordering::SeqCst);
            if self.fits_groups() {
                return true;
            }
            release(&self.reserved_data, bytes);
            // Two threads that add at once both fail, though there may be space for one.
            yield_now();
        }
        false
    }

    /// Reserves `bytes` of metadata, all told, if they can be had. The reservation becomes `kept` bytes if it was lower.
    pub(super) fn reserve_metadata(&self, bytes: u64, kept: u64) -> bool {
        // Sums that were found earlier may come later. Only `shrink_metadata` is sure to know the last.
        if self.reserved_metadata.load(Ordering::SeqCst) < kept {
            // A reservation that cannot be met is not added, so that it does not make others fail.
            if !self.fits_metadata(bytes) {
                return false;
            }
            self.reserved_metadata.fetch_max(kept, Ordering::SeqCst);
        }
        // SPACE-INFO-2, whichever thread has added it.
        self.fits_metadata(bytes)
    }

    /// Lowers the metadata reservation to `bytes`. No thread reserves metadata meanwhile.
    pub(super) fn shrink_metadata(&self, bytes: u64) {
        self.reserved_metadata.fetch_min(bytes, Ordering::SeqCst);
    }
}

/// Adds `new - old`, which may be below 0; the sum never is.
pub(super) fn replace(sum: &AtomicU64, old: u64, new: u64) {
    sum.fetch_add(new.wrapping_sub(old), Ordering::SeqCst);
}

/// Subtracts, but not below 0.
pub(super) fn release(sum: &AtomicU64, bytes: u64) {
    let before = sum
        .try_update(Ordering::SeqCst, Ordering::SeqCst, |sum| {
            Some(sum.saturating_sub(bytes))
        })
        .unwrap_or_default();
    debug_assert!(before >= bytes, "released {bytes} of {before} reserved");
}

/// The sums of one type at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceTotals {
    pub kind: BlockGroupType,
    /// The profile of the newest group.
    pub(crate) profile: Profile,
    pub total: u64,
    /// In extent items.
    pub used: u64,
    /// Freed, but not to be had before the superblock that no longer needs it.
    pub pinned: u64,
    pub reserved: u64,
    /// Free in the groups.
    pub free_bytes: u64,
    /// Bytes that new chunks could add.
    pub unallocated_bytes: u64,
}

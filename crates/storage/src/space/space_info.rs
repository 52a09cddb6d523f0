//! Sums over the block groups of one type: total, used and available bytes.
//!
//! Invariants
//! - SPACE-INFO-1: `free_bytes` is the sum of the groups' free bytes. Each group adds the difference under its own
//!   lock, so reads take no lock.
//! - SPACE-INFO-2: both sides write before they check. A reservation is added before it is compared with the free
//!   space. An allocation, a chunk of another type, or the removal of a group is subtracted before the comparison with
//!   the reservations. Two concurrent threads therefore cannot both miss each other.

use std::sync::Arc;

use ubtrfs_format::block_group_flags::{BlockGroupType, Profile};

use super::trim_totals::TrimTotals;
use crate::sync::{AtomicU64, Ordering, yield_now};

/// Number of attempts at a data reservation that collides with concurrent ones.
const RESERVE_TRIES: usize = 100;

/// The sums of one type, in bytes.
#[derive(Debug, Default)]
pub(crate) struct SpaceInfo {
    pub(super) total: AtomicU64,
    pub(super) used: AtomicU64,
    pub(super) pinned: AtomicU64,
    /// Can be allocated now.
    pub(super) free_bytes: AtomicU64,
    pub(super) reserved_data: AtomicU64,
    pub(super) reserved_metadata: AtomicU64,
    /// Bytes that new chunks in the devices' unallocated space could add to `free_bytes`.
    pub(super) unallocated_bytes: AtomicU64,
    /// Shared by all types.
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

    /// Returns the free bytes of the groups plus the bytes that new chunks could add. A chunk that is created or
    /// removed concurrently counts at most once.
    fn obtainable(&self) -> u64 {
        // A chunk is subtracted from the unallocated space before its group is added, and added back after the group is
        // removed.
        let before = self.unallocated_bytes();
        let free = self.free_bytes();
        free.saturating_add(before.min(self.unallocated_bytes()))
    }

    /// Returns whether `metadata` can be reserved in addition to the data reservations.
    pub(super) fn fits_metadata(&self, metadata: u64) -> bool {
        let data = self.reserved_data.load(Ordering::SeqCst);
        data.saturating_add(metadata) <= self.obtainable()
    }

    /// Returns whether there is space for all reservations, with the help of new chunks.
    pub(super) fn fits_reservations(&self) -> bool {
        self.reserved() <= self.obtainable()
    }

    /// Returns whether the existing groups have space for all reservations.
    pub(super) fn fits_groups(&self) -> bool {
        self.reserved() <= self.free_bytes()
    }

    /// Returns whether `bytes` more could be reserved after all possible chunks are created.
    pub(super) fn may_have(&self, bytes: u64) -> bool {
        self.reserved().saturating_add(bytes) <= self.obtainable()
    }

    /// Reserves data if the existing groups have space for it.
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
            // Two threads that add at the same time may both fail although there is space for one.
            yield_now();
        }
        false
    }

    /// Sets the total metadata reservation to `kept` if it was lower. Returns false if not even `bytes` are available.
    pub(super) fn reserve_metadata(&self, bytes: u64, kept: u64) -> bool {
        // Totals may arrive out of order, so a lower one is ignored. Only `shrink_metadata` is sure to have the latest.
        if self.reserved_metadata.load(Ordering::SeqCst) < kept {
            // A reservation that cannot be met is not added, so that it does not make others fail.
            if !self.fits_metadata(bytes) {
                return false;
            }
            self.reserved_metadata.fetch_max(kept, Ordering::SeqCst);
        }
        // SPACE-INFO-2, regardless of the thread that added it.
        self.fits_metadata(bytes)
    }

    /// Lowers the metadata reservation to `bytes`. No thread may reserve metadata concurrently.
    pub(super) fn shrink_metadata(&self, bytes: u64) {
        self.reserved_metadata.fetch_min(bytes, Ordering::SeqCst);
    }
}

/// Adds `new - old`, which may be negative. The sum never is.
pub(super) fn replace(sum: &AtomicU64, old: u64, new: u64) {
    sum.fetch_add(new.wrapping_sub(old), Ordering::SeqCst);
}

/// Subtracts, saturating at 0.
pub(super) fn release(sum: &AtomicU64, bytes: u64) {
    let before = sum
        .try_update(Ordering::SeqCst, Ordering::SeqCst, |sum| {
            Some(sum.saturating_sub(bytes))
        })
        .unwrap_or_default();
    debug_assert!(before >= bytes, "released {bytes} of {before} reserved");
}

/// A snapshot of the sums of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceTotals {
    pub kind: BlockGroupType,
    /// The profile of the newest group.
    pub(crate) profile: Profile,
    pub total: u64,
    /// In extent items.
    pub used: u64,
    /// Freed, but unavailable until a superblock that no longer refers to it is durable.
    pub pinned: u64,
    pub reserved: u64,
    /// Free in the groups.
    pub free_bytes: u64,
    /// Bytes that new chunks could add.
    pub unallocated_bytes: u64,
}

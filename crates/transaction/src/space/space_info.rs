//! Sums over the block groups of one type: what there is, what is used, what can still be had.
//!
//! Invariants
//! - SPACE-INFO-1: `free_bytes` is the sum of the groups' free bytes. Each group adds the difference under its own lock, so
//!   reading it takes none.
//! - SPACE-INFO-2: both sides write before they check. A reservation is added before it is compared with the free space.
//!   An allocation, a chunk of another type, or a group that goes is subtracted before it is compared with the
//!   reservations. Two concurrent threads therefore cannot both miss each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ubtrfs_format::block_group_flags::{BlockGroupType, Profile};

use super::trim_totals::TrimTotals;

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
    /// What chunks made of the devices' unallocated space could add to `free_bytes`.
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
    /// What new chunks could add.
    pub unallocated_bytes: u64,
}

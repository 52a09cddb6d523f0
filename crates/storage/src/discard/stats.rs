//! Counts of discards.

use std::sync::atomic::{AtomicU64, Ordering};

use ubtrfs_device::DeviceError;

/// The upper bounds of the classes in [`DiscardStats::by_size`]. The last class contains all larger sizes.
pub const DISCARD_SIZES: [u64; 6] = [32 << 10, 128 << 10, 1 << 20, 8 << 20, 32 << 20, 64 << 20];

/// Counts since the volume was opened. Names from the kernel's `/sys/fs/btrfs/FSID/discard` have the same meaning here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardStats {
    /// Regions that wait for the background.
    pub discardable_extents: u64,
    pub discardable_bytes: u64,
    /// Discarded in the background from extents of free space, and from unallocated space.
    pub discard_extent_bytes: u64,
    /// Discarded in the background from bitmaps of free space.
    pub discard_bitmap_bytes: u64,
    /// Bytes that were allocated again before they were discarded.
    pub discard_bytes_saved: u64,
    /// Discarded by commits.
    pub sync_bytes: u64,
    /// Discarded on request; each copy counts.
    pub trim_bytes: u64,
    /// Regions sent to devices; a region with several copies counts once.
    pub discards: u64,
    /// `discards` by size, in the classes of `DISCARD_SIZES`.
    pub by_size: [u64; DISCARD_SIZES.len() + 1],
    /// Regions that a device failed to discard.
    pub errors: u64,
}

/// The counters behind [`DiscardStats`].
#[derive(Debug, Default)]
pub(super) struct DiscardCounters {
    pub(super) extent_bytes: AtomicU64,
    pub(super) bitmap_bytes: AtomicU64,
    pub(super) sync_bytes: AtomicU64,
    pub(super) trim_bytes: AtomicU64,
    by_size: [AtomicU64; DISCARD_SIZES.len() + 1],
    pub(super) errors: AtomicU64,
}

impl DiscardCounters {
    /// Counts a region of `bytes`, if any of it was sent to a device.
    pub(super) fn count(&self, discarded: &Result<u64, DeviceError>, bytes: u64) {
        if !discarded.as_ref().is_ok_and(|&bytes| bytes > 0) {
            return;
        }
        let class = DISCARD_SIZES.partition_point(|&size| size < bytes);
        self.by_size[class].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counters, except for the waiting and the saved space.
    pub(super) fn stats(&self) -> DiscardStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let by_size = self.by_size.each_ref().map(get);
        DiscardStats {
            discard_extent_bytes: get(&self.extent_bytes),
            discard_bitmap_bytes: get(&self.bitmap_bytes),
            sync_bytes: get(&self.sync_bytes),
            trim_bytes: get(&self.trim_bytes),
            discards: by_size.iter().sum(),
            by_size,
            errors: get(&self.errors),
            ..DiscardStats::default()
        }
    }
}

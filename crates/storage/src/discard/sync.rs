//! Discards in commits.

use std::sync::atomic::Ordering;

use ubtrfs_device::DeviceError;

use super::{Discard, DiscardMode};
use crate::space::{Pinned, RemovedGroup};

/// Enough ranges to keep a device busy, in little memory.
const RANGES_AT_A_TIME: usize = 1024;

impl Discard {
    fn is_sync(&self) -> bool {
        self.mode() == DiscardMode::Sync && self.is_possible()
    }

    /// Discards the space that a durable commit has freed, before `Space::unpin`.
    pub(crate) fn discard_pinned(&self, pinned: &Pinned) {
        if !self.is_sync() {
            return;
        }
        for ranges in pinned.ranges(&self.space).chunks(RANGES_AT_A_TIME) {
            // ASYNC-DISCARD-1
            let outcomes = self.pool.discard_all(ranges);
            for (range, outcome) in ranges.iter().zip(outcomes) {
                self.count_sync(range.end - range.start, outcome);
            }
        }
    }

    /// Discards the device space of a removed group, before `Space::free_device_space`.
    pub(crate) fn discard_removed(&self, removed: &RemovedGroup) {
        if !self.is_sync() {
            return;
        }
        for (devid, offset, len) in removed.device_ranges() {
            self.count_sync(len, self.pool.discard_physical(devid, offset, len));
        }
    }

    fn count_sync(&self, len: u64, discarded: Result<u64, DeviceError>) {
        if self.covers_region(&discarded, len) {
            self.counters.count(&discarded, len);
            self.counters.sync_bytes.fetch_add(len, Ordering::Relaxed);
        }
    }
}

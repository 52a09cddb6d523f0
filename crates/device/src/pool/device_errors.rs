//! The errors of each device, as the items `DEV_STATS` keep them, and the devices that are read last for them.
//!
//! Invariants
//! - MISSED-1: a device that missed a write, a flush or a commit is read only where no other mirror is sound. Data without
//!   checksums may be older there, and nothing else tells. Resetting the counts ends it.
//! - MISSED-2: a flush fails if it failed on a device that data without checksums was written to since the last one.
//!
//! Not here: the items themselves, which the transaction layer reads and writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ubtrfs_format::ids::DevId;
use ubtrfs_format::superblock::Superblock;

use super::{Pool, PoolDevice};
use crate::access::Access;
use crate::read_errors::{ReadErrorKind, ReadErrorRecord};

/// The counts of one device: writes, reads, flushes, corruptions, generations.
pub type ErrorCounts = [u64; 5];

/// Failures of one device that are told before only powers of two are.
const TOLD: u64 = 10;

/// A kind of errors of a device, with its place among the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceErrorKind {
    Write = 0,
    Read = 1,
    Flush = 2,
    Corruption = 3,
    Generation = 4,
}

impl DeviceErrorKind {
    /// The kinds after which a device may hold older bytes than its mirrors.
    const MISSED: [DeviceErrorKind; 3] = [Self::Write, Self::Flush, Self::Generation];
}

#[derive(Debug, Default)]
pub(super) struct DeviceErrors {
    counts: [AtomicU64; 5],
    /// Those that were saved before are part of the counts.
    has_saved: AtomicBool,
    /// The counts changed since they were last taken for the items.
    is_unsaved: AtomicBool,
    /// Its superblock was older than the volume's when the pool was opened.
    is_stale: AtomicBool,
    /// Data without checksums was written since the last flush began.
    has_unflushed_unsummed: AtomicBool,
    /// A write failed since the last flush began: its other copies are not durable yet.
    has_failed_write: AtomicBool,
}

impl DeviceErrors {
    /// Counts an error. Returns whether it should be logged: a failing device fails again and again.
    pub(super) fn count(&self, kind: DeviceErrorKind) -> bool {
        let count = self.counts[kind as usize].fetch_add(1, Ordering::AcqRel) + 1;
        self.is_unsaved.store(true, Ordering::Release);
        count <= TOLD || count.is_power_of_two()
    }

    /// Sets whether the device's superblock is older than the volume's.
    pub(super) fn set_stale(&self, is_stale: bool) {
        self.is_stale.store(is_stale, Ordering::Release);
    }

    fn has(&self, kind: DeviceErrorKind) -> bool {
        self.counts[kind as usize].load(Ordering::Acquire) > 0
    }

    fn values(&self) -> ErrorCounts {
        std::array::from_fn(|kind| self.counts[kind].load(Ordering::Acquire))
    }

    /// Returns whether the device may hold older bytes than its mirrors.
    pub(super) fn missed_writes(&self) -> bool {
        let mut missed = DeviceErrorKind::MISSED.into_iter();
        self.is_stale.load(Ordering::Acquire) || missed.any(|kind| self.has(kind))
    }

    pub(super) fn note_failed_write(&self) {
        self.has_failed_write.swap(true, Ordering::AcqRel);
    }

    /// Returns whether a write failed since the last call.
    pub(super) fn take_failed_write(&self) -> bool {
        self.has_failed_write.swap(false, Ordering::AcqRel)
    }

    pub(super) fn note_unsummed(&self) {
        // An exchange: a flush on another thread sees either this one or the one after the write.
        self.has_unflushed_unsummed.swap(true, Ordering::AcqRel);
    }

    /// Begins a flush. Returns whether it covers data without checksums.
    pub(super) fn begin_flush(&self) -> bool {
        self.has_unflushed_unsummed.swap(false, Ordering::AcqRel)
    }

    /// Returns whether data without checksums was written since a flush began.
    pub(super) fn has_unsummed(&self) -> bool {
        self.has_unflushed_unsummed.load(Ordering::Acquire)
    }
}

impl Pool {
    /// Returns the error counts of a device, those that were saved before included.
    pub fn error_counts(&self, devid: DevId) -> Option<ErrorCounts> {
        let table = self.devices.load();
        Some(table.get(&devid)?.errors.values())
    }

    /// Sets the error counts of a device to 0, and returns them.
    pub fn reset_error_counts(&self, devid: DevId) -> Option<ErrorCounts> {
        let table = self.devices.load();
        let errors = &table.get(&devid)?.errors;
        let counts = std::array::from_fn(|kind| errors.counts[kind].swap(0, Ordering::AcqRel));
        errors.is_unsaved.store(true, Ordering::Release);
        Some(counts)
    }

    /// Adds the counts that were saved, once the chunk tree was read. A device that is behind the volume is noted (MISSED-1):
    /// for writing its missed commits count as an error of its generation.
    pub fn add_saved_errors(&self, saved: &BTreeMap<DevId, ErrorCounts>) {
        let generation = self.superblock.generation.get();
        for (devid, device) in self.devices.load().iter() {
            let errors = &device.errors;
            if errors.has_saved.swap(true, Ordering::AcqRel) {
                continue;
            }
            let saved = saved.get(devid).copied().unwrap_or_default();
            for (count, saved) in errors.counts.iter().zip(saved) {
                count.fetch_add(saved, Ordering::AcqRel);
            }
            if !device.is_own(&self.superblock) {
                continue;
            }
            let behind = match &device.present {
                Some(present) => generation.saturating_sub(present.superblock.generation.get()),
                None => u64::MAX,
            };
            errors.set_stale(behind > 0);
            // A power cut between two superblocks leaves a device one commit behind that missed nothing else.
            if behind > 1
                && self.access == Access::Write
                && !errors.has(DeviceErrorKind::Generation)
            {
                errors.count(DeviceErrorKind::Generation);
            }
        }
    }

    /// Returns the counts that changed since the last call.
    pub fn take_unsaved_errors(&self) -> Vec<(DevId, ErrorCounts)> {
        let table = self.devices.load();
        let named = table.values().filter(|device| device.is_named);
        let unsaved = named.filter(|device| device.errors.is_unsaved.swap(false, Ordering::AcqRel));
        unsaved
            .map(|device| (device.devid, device.errors.values()))
            .collect()
    }

    /// Returns how many flushes of devices have failed and were tolerated.
    pub fn failed_flushes(&self) -> u64 {
        self.failed_flushes.load(Ordering::Acquire)
    }

    /// Adds a failed try to read to the record, and counts it as an error of its device.
    pub(super) fn add_read_error(&self, record: ReadErrorRecord) {
        let kind = match record.kind {
            ReadErrorKind::Io(_) => Some(DeviceErrorKind::Read),
            ReadErrorKind::Content => Some(DeviceErrorKind::Corruption),
            ReadErrorKind::Rebuild(_) => None,
        };
        if let (Some(kind), Some(device)) = (kind, self.devices.load().get(&record.devid)) {
            device.errors.count(kind);
        }
        self.read_errors.add(record);
    }

    /// Returns whether every chunk is still whole somewhere without these devices and those that are missing.
    pub(super) fn tolerates_loss_of(&self, failed: &BTreeSet<DevId>) -> bool {
        self.chunk_map.all().iter().all(|chunk| {
            let stripes = chunk.stripes().iter();
            let lost = stripes.filter(|s| failed.contains(&s.devid) || self.present(s).is_none());
            lost.count() <= chunk.profile().tolerated_failures()
        })
    }
}

impl PoolDevice {
    /// Returns whether it takes the superblocks of the volume: no stranger's device and no seed's.
    pub(super) fn is_own(&self, superblock: &Superblock) -> bool {
        let item = self.item.filter(|_| self.is_named);
        item.is_some_and(|item| item.fsid == *superblock.metadata_fsid())
    }
}

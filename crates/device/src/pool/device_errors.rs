//! Error counts of each device, as in the `DEV_STATS` items, and the devices that are read last because of errors.
//!
//! Invariants
//! - MISSED-1: a device that missed a write, a flush or a commit is read only if no other mirror is valid. It may
//!   have older data, which cannot be detected without checksums. Resetting the counts ends this state.
//! - MISSED-2: a flush fails if it fails on a device that received data without checksums since the last flush.
//!
//! Not here: the items, which the transaction layer reads and writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ubtrfs_format::ids::DevId;
use ubtrfs_format::superblock::Superblock;

use super::{Pool, PoolDevice};
use crate::access::Access;
use crate::read_errors::{ReadErrorKind, ReadErrorRecord};

/// The counts of one device: write, read, flush, corruption and generation errors.
pub type ErrorCounts = [u64; 5];

/// Number of events of one kind that are logged in full. After that only powers of two are logged.
const TOLD: u64 = 10;

/// Returns whether to log the event with this number, because a failing device produces many.
pub(super) fn is_told(count: u64) -> bool {
    count <= TOLD || count.is_power_of_two()
}

/// A kind of device error, with its index in the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceErrorKind {
    Write = 0,
    Read = 1,
    Flush = 2,
    Corruption = 3,
    Generation = 4,
}

impl DeviceErrorKind {
    /// The kinds of errors after which a device may have older data than its mirrors.
    const MISSED: [DeviceErrorKind; 3] = [Self::Write, Self::Flush, Self::Generation];
}

#[derive(Debug, Default)]
pub(super) struct DeviceErrors {
    counts: [AtomicU64; 5],
    /// Whether the counts include those saved in the items.
    has_saved: AtomicBool,
    /// Whether the counts changed since they were last taken for the items.
    is_unsaved: AtomicBool,
    /// Whether the superblock was older than the volume's when the pool was opened.
    is_stale: AtomicBool,
    /// Whether the device is read last on request.
    is_read_last: AtomicBool,
    /// Whether data without checksums was written since the start of the last flush.
    has_unflushed_unsummed: AtomicBool,
    /// Whether a write failed since the start of the last flush. The other copies of its data are not durable yet.
    has_failed_write: AtomicBool,
}

impl DeviceErrors {
    /// Counts an error. Returns whether to log it, because a failing device produces many errors.
    pub(super) fn count(&self, kind: DeviceErrorKind) -> bool {
        let count = self.counts[kind as usize].fetch_add(1, Ordering::AcqRel) + 1;
        self.is_unsaved.store(true, Ordering::Release);
        is_told(count)
    }

    /// Makes the counts of a new device 0, also in the saved items.
    pub(super) fn start_at_zero(&self) {
        self.has_saved.store(true, Ordering::Release);
        self.is_unsaved.store(true, Ordering::Release);
    }

    /// Sets whether the device's superblock is older than the volume's.
    pub(super) fn set_stale(&self, is_stale: bool) {
        self.is_stale.store(is_stale, Ordering::Release);
    }

    /// Sets whether the device is read only where no other mirror is good.
    fn set_read_last(&self, is_last: bool) {
        self.is_read_last.store(is_last, Ordering::Release);
    }

    fn has(&self, kind: DeviceErrorKind) -> bool {
        self.counts[kind as usize].load(Ordering::Acquire) > 0
    }

    fn values(&self) -> ErrorCounts {
        std::array::from_fn(|kind| self.counts[kind].load(Ordering::Acquire))
    }

    /// Returns whether the device may have older data than its mirrors.
    pub(super) fn missed_writes(&self) -> bool {
        let mut missed = DeviceErrorKind::MISSED.into_iter();
        let is_last = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        is_last(&self.is_stale) || is_last(&self.is_read_last) || missed.any(|kind| self.has(kind))
    }

    pub(super) fn note_failed_write(&self) {
        self.has_failed_write.swap(true, Ordering::AcqRel);
    }

    /// Returns whether a write failed since the last call.
    pub(super) fn take_failed_write(&self) -> bool {
        self.has_failed_write.swap(false, Ordering::AcqRel)
    }

    pub(super) fn note_unsummed(&self) {
        // A swap: a concurrent flush sees either this one or the second one, after the write.
        self.has_unflushed_unsummed.swap(true, Ordering::AcqRel);
    }

    /// Begins a flush. Returns whether it covers data without checksums.
    pub(super) fn begin_flush(&self) -> bool {
        self.has_unflushed_unsummed.swap(false, Ordering::AcqRel)
    }

    /// Returns whether data without checksums was written since the start of the last flush.
    pub(super) fn has_unsummed(&self) -> bool {
        self.has_unflushed_unsummed.load(Ordering::Acquire)
    }
}

impl Pool {
    /// Returns the error counts of a device, including the saved ones.
    pub fn error_counts(&self, devid: DevId) -> Option<ErrorCounts> {
        let table = self.devices.load();
        Some(table.get(&devid)?.errors.values())
    }

    /// Resets the error counts of a device to 0 and returns the old ones.
    pub fn reset_error_counts(&self, devid: DevId) -> Option<ErrorCounts> {
        let table = self.devices.load();
        let errors = &table.get(&devid)?.errors;
        let counts = std::array::from_fn(|kind| errors.counts[kind].swap(0, Ordering::AcqRel));
        errors.is_unsaved.store(true, Ordering::Release);
        Some(counts)
    }

    /// Adds errors to the counts of a device, in the order of [`ErrorCounts`].
    pub fn add_errors(&self, devid: DevId, added: ErrorCounts) {
        let table = self.devices.load();
        let Some(device) = table.get(&devid).filter(|_| added != [0; 5]) else {
            return;
        };
        for (count, added) in device.errors.counts.iter().zip(added) {
            count.fetch_add(added, Ordering::AcqRel);
        }
        device.errors.is_unsaved.store(true, Ordering::Release);
    }

    /// Sets whether a device is read only where no other mirror is good.
    pub fn read_last(&self, devid: DevId, is_last: bool) {
        if let Some(device) = self.devices.load().get(&devid) {
            device.errors.set_read_last(is_last);
        }
    }

    /// Adds the saved counts after the chunk tree was read. Marks devices that are behind the volume as stale
    /// (MISSED-1). For writing, missed commits also count as a generation error.
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
            // After a power cut between two superblock writes, a device may be one commit behind without having
            // missed anything else.
            if behind > 1
                && self.options.access == Access::Write
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

    /// Returns the number of failed device flushes that were tolerated.
    pub fn failed_flushes(&self) -> u64 {
        self.failed_flushes.load(Ordering::Acquire)
    }

    /// Adds a failed read attempt to the log, and counts it as an error of its device.
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

    /// Returns whether every chunk stays readable without these devices and the missing ones.
    pub(super) fn tolerates_loss_of(&self, failed: &BTreeSet<DevId>) -> bool {
        self.chunk_map.all().iter().all(|chunk| {
            let stripes = chunk.stripes().iter();
            let lost = stripes.filter(|s| failed.contains(&s.devid) || self.present(s).is_none());
            lost.count() <= chunk.profile().tolerated_failures()
        })
    }
}

impl PoolDevice {
    /// Returns whether the device stores superblocks of this volume: it is neither foreign nor a seed.
    pub(super) fn is_own(&self, superblock: &Superblock) -> bool {
        let item = self.item.filter(|_| self.is_named);
        item.is_some_and(|item| item.fsid == *superblock.metadata_fsid())
    }
}

//! Unallocated space of the devices: the parts that are trimmed, and the parts that wait for a discard.
//!
//! A removed group leaves its untrimmed space here. All other space is in an unknown state until a trim of the whole
//! volume.
//!
//! Invariants
//! - UNALLOCATED-1: waiting and trimmed ranges, and the one being discarded, are in holes between the chunks.
//! - UNALLOCATED-2: a new chunk never overlaps a discard in flight, but waits for it. Discards begin with `chunks`
//!   held, as chunk allocation does.
//!
//! Locks: after `chunks`. Waits only for the device IO of a single discard, which needs neither lock.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};
use ubtrfs_format::ids::DevId;

use crate::range_set::RangeSet;

#[derive(Debug, Default)]
pub(super) struct Unallocated {
    state: Mutex<State>,
    returned: Condvar,
    has_waiting: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    devices: BTreeMap<DevId, DeviceState>,
    in_flight: Option<DeviceRegion>,
}

#[derive(Debug, Default)]
struct DeviceState {
    waiting: RangeSet,
    trimmed: RangeSet,
}

/// Unallocated space of a device that is being discarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRegion {
    pub devid: DevId,
    pub offset: u64,
    pub len: u64,
}

impl DeviceRegion {
    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.len
    }
}

impl Unallocated {
    /// Adds the untrimmed space of a removed group.
    pub(super) fn add_waiting(&self, devid: DevId, range: Range<u64>) {
        let mut state = self.state.lock();
        state.devices.entry(devid).or_default().waiting.add(range);
        self.has_waiting.store(true, Ordering::Release);
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.has_waiting.load(Ordering::Acquire)
    }

    /// Returns the number of waiting ranges, and their total length.
    pub(super) fn waiting(&self) -> (u64, u64) {
        let state = self.state.lock();
        let devices = state.devices.values();
        let each = devices.map(|device| (device.waiting.count(), device.waiting.len_bytes()));
        each.fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
    }

    /// Removes a range that a chunk takes. Returns how much of it waited. Waits for a discard there (UNALLOCATED-2).
    pub(super) fn take(&self, devid: DevId, range: Range<u64>) -> u64 {
        let mut state = self.state.lock();
        let meets = |region: &DeviceRegion| {
            region.devid == devid
                && region.offset < range.end
                && range.start < region.offset + region.len
        };
        while state.in_flight.as_ref().is_some_and(meets) {
            self.returned.wait(&mut state);
        }
        let Some(device) = state.devices.get_mut(&devid) else {
            return 0;
        };
        // UNALLOCATED-1
        device.trimmed.remove(range.clone());
        device.waiting.remove(range)
    }

    /// Begins a discard of the first waiting range, or of its front. The caller holds `chunks` (UNALLOCATED-2). Only
    /// one discard is in progress at a time.
    pub(super) fn begin_waiting(&self, max: u64) -> Option<DeviceRegion> {
        let mut state = self.state.lock();
        let mut devices = state.devices.iter();
        let first = devices.find_map(|(&devid, device)| {
            let range = device.waiting.iter().next()?;
            Some((devid, range))
        });
        let Some((devid, range)) = first else {
            self.has_waiting.store(false, Ordering::Release);
            return None;
        };
        Some(state.begin(devid, range, max))
    }

    /// Begins a discard of the first part of a hole that is not known to be trimmed, or of its front. The caller holds
    /// `chunks`.
    pub(super) fn begin_in_hole(
        &self,
        devid: DevId,
        hole: Range<u64>,
        max: u64,
    ) -> Option<DeviceRegion> {
        let mut state = self.state.lock();
        let device = state.devices.entry(devid).or_default();
        let gap = device.trimmed.first_gap(&hole)?;
        Some(state.begin(devid, gap, max))
    }

    /// Ends a discard. A failed region no longer waits, and is not known to be trimmed.
    pub(super) fn end(&self, region: &DeviceRegion, is_trimmed: bool) {
        let mut state = self.state.lock();
        state.in_flight = None;
        if is_trimmed && let Some(device) = state.devices.get_mut(&region.devid) {
            device.trimmed.add(region.range());
        }
        self.returned.notify_all();
    }
}

impl State {
    fn begin(&mut self, devid: DevId, range: Range<u64>, max: u64) -> DeviceRegion {
        debug_assert!(self.in_flight.is_none(), "two discards at once");
        let len = range.end - range.start;
        let region = DeviceRegion {
            devid,
            offset: range.start,
            len: if max == 0 { len } else { len.min(max) },
        };
        if let Some(device) = self.devices.get_mut(&devid) {
            device.waiting.remove(region.range());
        }
        self.in_flight = Some(region.clone());
        region
    }
}

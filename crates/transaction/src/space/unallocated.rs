//! Unallocated space of the devices: what is trimmed of it, and what waits for that.
//!
//! A removed group leaves its untrimmed space here. All else is unknown until a trim of the whole volume has discarded it.
//!
//! Invariants
//! - UNALLOCATED-1: what waits, is trimmed or is being discarded lies in holes between the chunks.
//! - UNALLOCATED-2: a chunk is never made over a discard in flight: it waits for that. Discards begin with `chunks` held, as
//!   chunks are made.
//!
//! Locks: after `chunks`. Waiting here is for device IO of a single discard, which needs neither.

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
    /// Adds the space that a removed group has left untrimmed.
    pub(super) fn add_waiting(&self, devid: DevId, range: Range<u64>) {
        let mut state = self.state.lock();
        state.devices.entry(devid).or_default().waiting.add(range);
        self.has_waiting.store(true, Ordering::Release);
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.has_waiting.load(Ordering::Acquire)
    }

    /// Returns how many ranges wait, and their bytes.
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

    /// Begins a discard of the first range that waits, or of its front. The caller holds `chunks` (UNALLOCATED-2). Only
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

    /// Ends a discard. A region that failed waits no more, and is not known to be trimmed.
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

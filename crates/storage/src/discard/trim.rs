//! Discards of all free space, on request (FITRIM).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use ubtrfs_device::DeviceError;
use ubtrfs_format::ids::DevId;

use super::Discard;
use super::queue::Queue;
use crate::space::BlockGroup;

/// Maximum bytes taken out of the free space at a time.
const STEP_BYTES: u64 = 256 << 20;

/// A request to discard the free space of a range.
#[derive(Clone, Debug)]
pub struct TrimRequest {
    /// Logical addresses.
    pub range: Range<u64>,
    /// The minimum length of a free run.
    pub min_bytes: u64,
}

/// A trim in progress.
struct Trim<'d, 'g> {
    discard: &'d Discard,
    keep_going: &'g mut dyn FnMut() -> bool,
    is_ended: bool,
    bytes: u64,
    error: Option<DeviceError>,
}

impl Discard {
    /// Discards free runs of all block groups in the range, and unallocated space that was not discarded before on
    /// every device. Returns the bytes sent to devices; each copy counts.
    ///
    /// `keep_going` is called before each region, and returns false to end the trim. Closing the volume ends it as well.
    /// Neither is an error.
    ///
    /// Errors: the first error of a device. The trim still processes all other regions.
    pub fn trim(
        &self,
        request: &TrimRequest,
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Result<u64, DeviceError> {
        let mut trim = Trim {
            discard: self,
            keep_going,
            is_ended: false,
            bytes: 0,
            error: None,
        };
        let min = request.min_bytes.max(self.pool.discard_granularity());
        for group in self.space.groups().iter() {
            let from = group.start().0.max(request.range.start);
            let range = from..group.end().0.min(request.range.end);
            let is_meant = !range.is_empty() && self.pool.can_discard_at(group.start());
            if is_meant && !trim.trim_group(group, range, min) {
                break;
            }
        }
        for devid in self.space.devices() {
            if self.pool.can_discard_on(devid) {
                trim.trim_unallocated(devid);
            }
        }
        match trim.error {
            Some(error) => Err(error),
            None => Ok(trim.bytes),
        }
    }
}

impl<'d> Trim<'d, '_> {
    /// Locks the queue for the next discard, or returns None if the trim is over. No other discard runs while the guard
    /// is held.
    fn next(&mut self) -> Option<MutexGuard<'d, Queue>> {
        let discard = self.discard;
        self.is_ended = self.is_ended || !(self.keep_going)() || !discard.is_possible();
        if self.is_ended {
            return None;
        }
        let queue = discard.queue.lock();
        // ASYNC-DISCARD-4
        (!discard.is_stopped()).then_some(queue)
    }

    /// Discards the free space of a group in a range. Returns false if the trim is over.
    fn trim_group(&mut self, group: &Arc<BlockGroup>, range: Range<u64>, min: u64) -> bool {
        let discard = self.discard;
        let is_whole = range == (group.start().0..group.end().0);
        // The group is marked as proven first, because a concurrent free must be able to clear the mark. A failure
        // clears it at the end.
        let proves = is_whole && min <= discard.pool.discard_granularity();
        let was_unproven = proves && group.begin_proof();
        let had_failed = self.error.is_some();
        let (mut from, mut run_end) = (range.start, range.start);
        let mut is_done = false;
        while let Some(_queue) = self.next() {
            // The rest of a run that was split is discarded even if it is shorter than `min`.
            let least = if from < run_end { 1 } else { min };
            let rest = from..range.end;
            let taken = discard.space.take_free_run(group, &rest, least, STEP_BYTES);
            let Some(mut out) = taken else {
                is_done = true;
                break;
            };
            let region = out.region().clone();
            (from, run_end) = (region.end(), region.run_end);
            let discarded = discard.pool.discard(region.start, region.len);
            out.set_trimmed(self.count(region.len, discarded));
        }
        if was_unproven && (!is_done || had_failed != self.error.is_some()) {
            group.set_unproven();
        }
        is_done
    }

    fn trim_unallocated(&mut self, devid: DevId) {
        let discard = self.discard;
        let mut from = 0;
        while let Some(_queue) = self.next() {
            let begun = discard.space.begin_unallocated_of(devid, from, STEP_BYTES);
            let Some(mut out) = begun else {
                break;
            };
            let (offset, len) = (out.region().offset, out.region().len);
            from = offset + len;
            let discarded = discard.pool.discard_physical(devid, offset, len);
            out.set_trimmed(self.count(len, discarded));
        }
    }

    fn count(&mut self, len: u64, discarded: Result<u64, DeviceError>) -> bool {
        let is_trimmed = self.discard.covers_region(&discarded, len);
        self.discard.counters.count(&discarded, len);
        match discarded {
            Ok(bytes) => {
                self.bytes += bytes;
                let counters = &self.discard.counters;
                counters.trim_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
        is_trimmed
    }
}

//! One step of the background: discard the next region that is due.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ubtrfs_device::DeviceError;

use super::queue::{DiscardPlace, Entry, List, Queue, Turn, delay};
use super::{Discard, DiscardMode};
use crate::space::{BlockGroup, RegionOut, UnallocatedOut};

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardStep {
    /// The queue is empty, or discards are off.
    Idle,
    /// A region is due, but the devices are busy.
    Busy,
    /// Nothing is due for this duration.
    NotBefore(Duration),
    /// A region was discarded, or a device failed to do so.
    Done,
}

/// The result of processing one entry of the queue.
enum Look {
    Done,
    /// The entry needed no IO; try the next one.
    Again,
}

impl Discard {
    /// Discards the next region that is due; only in mode `async`. `may_run` is called with the queue locked, so no
    /// discard begins after a `wait_until_idle` that follows a change of its answer. `is_busy` is called when a region
    /// is due.
    pub fn step(&self, may_run: impl FnOnce() -> bool, is_busy: impl Fn() -> bool) -> DiscardStep {
        let mut queue = self.queue.lock();
        let is_on = self.mode() == DiscardMode::Async && !self.is_stopped();
        if !is_on || !self.is_possible() || !may_run() {
            return DiscardStep::Idle;
        }
        self.queue_listed(&mut queue);
        loop {
            let now = self.clock.now();
            let entry = match queue.turn(now) {
                Turn::Idle => return DiscardStep::Idle,
                Turn::At(at) => return DiscardStep::NotBefore(at - now),
                Turn::Now(_) if is_busy() => return DiscardStep::Busy,
                Turn::Now(entry) => entry,
            };
            if let Look::Done = self.look_at(&mut queue, &entry) {
                return DiscardStep::Done;
            }
        }
    }

    /// Queues the groups that have got untrimmed space since the last step.
    fn queue_listed(&self, queue: &mut Queue) {
        if !self.space.has_listed_untrimmed() {
            return;
        }
        let now = self.clock.now();
        if self.space.has_untrimmed_unallocated()
            && queue.list_of(DiscardPlace::Unallocated).is_none()
        {
            queue.join(DiscardPlace::Unallocated, List::Empty, now);
        }
        for group in self.space.take_listed_untrimmed() {
            let place = DiscardPlace::Group(group.start());
            let is_long = || group.longest_untrimmed() >= List::Long.min_bytes();
            match queue.list_of(place) {
                Some(List::Empty) => {}
                _ if group.used() == 0 => queue.join(place, List::Empty, now),
                None => queue.join(place, List::Long, now),
                Some(List::Short) if is_long() => queue.join(place, List::Long, now),
                Some(List::Long | List::Short) => {}
            }
        }
    }

    fn look_at(&self, queue: &mut Queue, entry: &Entry) -> Look {
        match entry.place {
            DiscardPlace::Unallocated => self.look_at_unallocated(queue, entry),
            DiscardPlace::Group(start) => match self.space.group_at(start) {
                Some(group) => self.look_at_group(queue, entry, &group),
                None => {
                    queue.leave(entry.place);
                    Look::Again
                }
            },
        }
    }

    fn look_at_group(&self, queue: &mut Queue, entry: &Entry, group: &Arc<BlockGroup>) -> Look {
        // The group is in use again, so the longer delay applies.
        if entry.list == List::Empty && group.used() != 0 {
            queue.join(entry.place, List::Long, self.clock.now());
            return Look::Again;
        }
        if !self.pool.can_discard_at(group.start()) {
            return self.unlist(queue, entry, group, Look::Again);
        }
        if !entry.has_begun {
            // An empty group, or one with tracked frees: also discard space that an earlier mount may have left
            // untrimmed.
            if entry.list == List::Empty || group.tracks_trims() {
                self.space.queue_unproven(group);
            }
            queue.note_begun(entry.place);
        }
        let min = entry.list.min_bytes().max(self.pool.discard_granularity());
        let max = self.limits().max_discard_size;
        let Some(out) = self.space.take_longest_untrimmed(group, min, max) else {
            // No region of the minimum length is left.
            queue.end_pass(entry, self.clock.now());
            return Look::Again;
        };
        self.pause(queue, out.region().len);
        if self.discard_out(out) {
            Look::Done
        } else {
            self.unlist(queue, entry, group, Look::Done)
        }
    }

    /// Ignores a group until something is freed in it.
    fn unlist(&self, queue: &mut Queue, entry: &Entry, group: &BlockGroup, look: Look) -> Look {
        queue.leave(entry.place);
        group.unlist();
        look
    }

    /// Discards a region and returns it to the free space. Returns false if the discard failed.
    pub(super) fn discard_out(&self, mut out: RegionOut<'_>) -> bool {
        let region = out.region().clone();
        // ASYNC-DISCARD-2
        let discarded = self.pool.discard(region.start, region.len);
        let is_trimmed = self.covers_region(&discarded, region.len);
        out.set_trimmed(is_trimmed);
        drop(out);
        if is_trimmed {
            let counters = &self.counters;
            counters.count(&discarded, region.len);
            let bytes = if region.in_bitmap {
                &counters.bitmap_bytes
            } else {
                &counters.extent_bytes
            };
            bytes.fetch_add(region.len, Ordering::Relaxed);
        }
        is_trimmed
    }

    fn look_at_unallocated(&self, queue: &mut Queue, entry: &Entry) -> Look {
        let max = self.limits().max_discard_size;
        let Some(out) = self.space.begin_unallocated(max) else {
            queue.leave(entry.place);
            return Look::Again;
        };
        if !self.pool.can_discard_on(out.region().devid) {
            return Look::Again;
        }
        self.pause(queue, out.region().len);
        self.discard_unallocated(out);
        Look::Done
    }

    pub(super) fn discard_unallocated(&self, mut out: UnallocatedOut<'_>) {
        let region = out.region().clone();
        let (offset, len) = (region.offset, region.len);
        let discarded = self.pool.discard_physical(region.devid, offset, len);
        let is_trimmed = self.covers_region(&discarded, len);
        out.set_trimmed(is_trimmed);
        drop(out);
        if is_trimmed {
            self.counters.count(&discarded, len);
            let bytes = &self.counters.extent_bytes;
            bytes.fetch_add(len, Ordering::Relaxed);
        }
    }

    /// Returns whether all whole device units within a region of `len` bytes were discarded (ASYNC-DISCARD-3).
    pub(super) fn covers_region(&self, discarded: &Result<u64, DeviceError>, len: u64) -> bool {
        match discarded {
            // The host has no space left to punch the hole, or one of several devices does not support discards.
            Ok(0) if len >= 2 * self.pool.discard_granularity() => false,
            Ok(_) => self.is_possible(),
            Err(error) => {
                self.note_failure(error);
                false
            }
        }
    }

    /// Delays the next discard, after one of `bytes`.
    fn pause(&self, queue: &mut Queue, bytes: u64) {
        let waiting = self.space.untrimmed().extents;
        let delay = delay(&self.limits(), waiting, bytes);
        queue.pause_until(self.clock.now() + delay);
    }
}

//! Unallocated space of devices.
//!
//! Invariants
//! - HOLE-1: holes begin after the first MiB, and start and end at multiples of the stripe length. They neither touch
//!   each other nor overlap a device extent that is in use.
//! - HOLE-2: no hole reaches beyond the limit of its device, which is its size unless the end is closed.

use std::collections::BTreeMap;
use std::ops::Range;

use ubtrfs_format::ids::{DevId, Physical};
use ubtrfs_format::superblock::SUPERBLOCK_OFFSETS;
use ubtrfs_format::uuid::Uuid;

use crate::STRIPE_LEN;

/// Size of the area at the start of each device that no chunk uses.
pub const RESERVED_BYTES: u64 = 1 << 20;

/// A device for new chunks.
#[derive(Clone, Debug)]
pub struct DeviceSpace {
    pub devid: DevId,
    pub uuid: Uuid,
    pub total_bytes: u64,
    /// The device extents in use (start, length), in any order.
    pub extents: Vec<(Physical, u64)>,
}

#[derive(Clone, Debug)]
pub struct DeviceHoles {
    pub devid: DevId,
    pub uuid: Uuid,
    pub total_bytes: u64,
    /// Maps the start of each hole to its end.
    holes: BTreeMap<u64, u64>,
    /// The sum of all holes.
    free_bytes: u64,
    /// HOLE-2
    limit: u64,
    /// Unused ranges above the limit.
    closed: Vec<Range<u64>>,
}

impl DeviceHoles {
    pub fn new(space: DeviceSpace) -> DeviceHoles {
        let mut extents = space.extents;
        extents.sort_unstable();
        let mut device = DeviceHoles {
            devid: space.devid,
            uuid: space.uuid,
            total_bytes: space.total_bytes,
            holes: BTreeMap::new(),
            free_bytes: 0,
            limit: space.total_bytes,
            closed: Vec::new(),
        };
        let mut from = RESERVED_BYTES;
        for (start, len) in extents {
            device.add(from, start.0);
            from = from.max(start.0.saturating_add(len));
        }
        device.add(from, space.total_bytes);
        device
    }

    fn add(&mut self, from: u64, end: u64) {
        // HOLE-1
        let end = end - end % STRIPE_LEN;
        if let Some(from) = from.checked_next_multiple_of(STRIPE_LEN)
            && from < end
        {
            self.holes.insert(from, end);
            self.free_bytes += end - from;
        }
    }

    /// Removes the hole at `start` and returns its end.
    fn remove(&mut self, start: u64) -> Option<u64> {
        let end = self.holes.remove(&start)?;
        self.free_bytes -= end - start;
        Some(end)
    }

    pub fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Returns the holes, ascending.
    pub fn holes(&self) -> impl Iterator<Item = Range<u64>> {
        self.holes.iter().map(|(&start, &end)| start..end)
    }

    /// Returns how many superblock copies are in holes.
    pub fn superblocks(&self) -> u64 {
        let in_hole = |offset: &&u64| {
            let before = self.holes.range(..=**offset).next_back();
            before.is_some_and(|(_, end)| *offset < end)
        };
        SUPERBLOCK_OFFSETS.iter().filter(in_hole).count() as u64
    }

    /// Finds the first hole with `want` bytes, or else the largest one, and its size.
    pub fn find(&self, want: u64) -> Option<(u64, u64)> {
        let holes = self.holes.iter().map(|(&start, &end)| (start, end - start));
        let mut best: Option<(u64, u64)> = None;
        for (start, len) in holes {
            if len >= want {
                return Some((start, len));
            }
            if best.is_none_or(|best| best.1 < len) {
                best = Some((start, len));
            }
        }
        best
    }

    /// Removes `len` bytes from the start of a hole.
    pub fn take(&mut self, start: u64, len: u64) {
        let end = self.remove(start);
        debug_assert!(end.is_some_and(|end| end - start >= len));
        self.add(start + len, end.unwrap_or(start));
    }

    /// Closes the space from `limit` on: it is no hole until [`DeviceHoles::open`].
    pub fn close_from(&mut self, limit: u64) {
        self.limit = limit;
        for (start, end) in std::mem::take(&mut self.holes) {
            self.free_bytes -= end - start;
            self.release(start, end - start);
        }
    }

    /// Reverts [`DeviceHoles::close_from`].
    pub fn open(&mut self) {
        self.limit = self.total_bytes;
        for range in std::mem::take(&mut self.closed) {
            self.release(range.start, range.end - range.start);
        }
    }

    /// Sets the size of the device. New space becomes a hole. Space that is cut off must be closed, and unused.
    pub fn resize(&mut self, total_bytes: u64) {
        let old = std::mem::replace(&mut self.total_bytes, total_bytes);
        self.limit = total_bytes;
        self.closed.clear();
        if total_bytes > old {
            // The last, incomplete stripe length may be in use, unless a hole ends before it.
            let floor = old - old % STRIPE_LEN;
            let ends_in_hole = self.holes.values().next_back() == Some(&floor);
            let from = if ends_in_hole {
                floor
            } else {
                old.next_multiple_of(STRIPE_LEN)
            };
            self.release(from, total_bytes.saturating_sub(from));
        }
    }

    /// Returns the space of a stripe, and merges it with adjacent holes.
    pub fn release(&mut self, start: u64, len: u64) {
        let (mut from, mut end) = (start.max(RESERVED_BYTES), start.saturating_add(len));
        // HOLE-2
        if end > self.limit {
            self.closed.push(from.max(self.limit)..end);
            end = self.limit;
        }
        if from >= end {
            return;
        }
        if let Some((&before, &before_end)) = self.holes.range(..=from).next_back()
            && before_end >= from
        {
            self.remove(before);
            (from, end) = (before, end.max(before_end));
        }
        if let Some(after_end) = self.remove(end) {
            end = after_end;
        }
        self.add(from, end);
    }
}

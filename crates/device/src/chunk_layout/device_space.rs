//! Unallocated space of devices.
//!
//! Invariants
//! - HOLE-1: holes begin after the first MiB, and start and end at multiples of the stripe length. They neither touch
//!   each other nor overlap a device extent that is in use.

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

    /// Returns the space of a stripe, and merges it with adjacent holes.
    pub fn release(&mut self, start: u64, len: u64) {
        let (mut from, mut end) = (start.max(RESERVED_BYTES), start.saturating_add(len));
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

//! Space of the devices that chunks have left.
//!
//! Invariants
//! - HOLE-1: holes lie behind the first MiB and start and end at multiples of the stripe length. They touch neither
//!   each other nor a device extent that is in use.

use std::collections::BTreeMap;
use std::ops::Range;

use ubtrfs_format::ids::{DevId, Physical};
use ubtrfs_format::superblock::SUPERBLOCK_OFFSETS;
use ubtrfs_format::uuid::Uuid;

use crate::STRIPE_LEN;

/// The beginning of each device, which no chunk is put on.
pub const RESERVED_BYTES: u64 = 1 << 20;

/// A device on which chunks may be made.
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
    /// Start to end.
    holes: BTreeMap<u64, u64>,
    /// In all holes.
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

    /// Takes out the hole that starts here; returns its end.
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

    /// Returns how many superblock copies lie in holes.
    pub fn superblocks(&self) -> u64 {
        let in_hole = |offset: &&u64| {
            let before = self.holes.range(..=**offset).next_back();
            before.is_some_and(|(_, end)| *offset < end)
        };
        SUPERBLOCK_OFFSETS.iter().filter(in_hole).count() as u64
    }

    /// Finds the first hole of `want` bytes, else the largest, with its size.
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

    /// Takes the front of a hole.
    pub fn take(&mut self, start: u64, len: u64) {
        let end = self.remove(start);
        debug_assert!(end.is_some_and(|end| end - start >= len));
        self.add(start + len, end.unwrap_or(start));
    }

    /// Makes a hole where a stripe was.
    pub fn give_back(&mut self, start: u64, len: u64) {
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

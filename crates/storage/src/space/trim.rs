//! Taking free and unallocated space out for a discard, and returning it.
//!
//! Not here: the states (`block_group::trim`, `unallocated`), the schedule (`discard`).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ubtrfs_format::ids::{DevId, Logical};

use super::block_group::{BlockGroup, TrimRegion};
use super::trim_gate::Entered;
use super::trim_totals::Untrimmed;
use super::unallocated::DeviceRegion;
use super::{Pinned, Space, joined};

impl Space {
    /// Sets whether groups record freed space from now on; metadata groups only if `metadata` is set.
    pub(crate) fn track_trims(&self, tracks: bool, metadata: bool) {
        self.trims.set_tracks(tracks, metadata);
        if tracks {
            for group in self.groups().iter() {
                group.list_again();
            }
        }
    }

    /// Returns whether a group is listed with new untrimmed space, or unallocated space waits.
    pub(crate) fn has_listed_untrimmed(&self) -> bool {
        self.trims.has_listed() || self.unallocated.has_waiting()
    }

    /// Takes the list of groups with new untrimmed space.
    pub(crate) fn take_listed_untrimmed(&self) -> Vec<Arc<BlockGroup>> {
        let listed = self.trims.take_listed().into_iter();
        listed.filter_map(|start| self.group_at(start)).collect()
    }

    /// Clears the list of groups. Later frees and `track_trims` list them again.
    pub(crate) fn forget_listed_untrimmed(&self) {
        self.trims.take_listed();
        for group in self.groups().iter() {
            group.unlist();
        }
    }

    pub(crate) fn has_untrimmed_unallocated(&self) -> bool {
        self.unallocated.has_waiting()
    }

    /// Returns the group that begins at an address.
    pub(crate) fn group_at(&self, start: Logical) -> Option<Arc<BlockGroup>> {
        self.find(start).filter(|group| group.start() == start)
    }

    /// Returns the amount of space that waits for a discard, including unallocated space.
    pub fn untrimmed(&self) -> Untrimmed {
        let get = |number: &std::sync::atomic::AtomicU64| number.load(Ordering::Relaxed);
        let (extents, bytes) = self.unallocated.waiting();
        Untrimmed {
            extents: get(&self.trims.extents) + extents,
            bytes: get(&self.trims.bytes) + bytes,
            saved_bytes: get(&self.trims.saved),
        }
    }

    /// Queues all free space of a group that is not known to be trimmed.
    pub(crate) fn queue_unproven(&self, group: &BlockGroup) {
        group.queue_unproven(&*self.source);
    }

    /// Takes out the longest untrimmed run of a group, or its front. Ignores runs shorter than `min`.
    pub(crate) fn take_longest_untrimmed<'s>(
        &'s self,
        group: &'s BlockGroup,
        min: u64,
        max: u64,
    ) -> Option<RegionOut<'s>> {
        let max = self.whole_sectors(max);
        self.take_out(group, || {
            group.take_longest_untrimmed(min, max, &*self.source)
        })
    }

    /// Takes out the first free run of at least `min` in a range of a group, or its front.
    pub(crate) fn take_free_run<'s>(
        &'s self,
        group: &'s BlockGroup,
        range: &Range<u64>,
        min: u64,
        max: u64,
    ) -> Option<RegionOut<'s>> {
        let max = self.whole_sectors(max);
        self.take_out(group, || {
            group.take_free_run(range, min, max, &*self.source)
        })
    }

    /// Takes a region out under the gate (TRIM-GATE-1).
    fn take_out<'s>(
        &'s self,
        group: &'s BlockGroup,
        take: impl FnOnce() -> Option<TrimRegion>,
    ) -> Option<RegionOut<'s>> {
        let entered = self.trim_gate.enter();
        Some(RegionOut {
            group,
            region: take()?,
            is_trimmed: false,
            _entered: entered,
        })
    }

    /// Rounds a limit down to whole sectors, at least one. 0 means no limit.
    fn whole_sectors(&self, max: u64) -> u64 {
        let sectorsize = u64::from(self.params.sectorsize);
        match max {
            0 => 0,
            max => (max - max % sectorsize).max(sectorsize),
        }
    }

    /// Begins a discard of waiting unallocated space.
    pub(crate) fn begin_unallocated(&self, max: u64) -> Option<UnallocatedOut<'_>> {
        let _chunks = self.chunks.lock();
        let region = self.unallocated.begin_waiting(max)?;
        Some(self.unallocated_out(region))
    }

    fn unallocated_out(&self, region: DeviceRegion) -> UnallocatedOut<'_> {
        UnallocatedOut {
            space: self,
            region,
            is_trimmed: false,
        }
    }

    /// Begins a discard of the first unallocated space of a device, from an offset on, that is not known to be trimmed.
    pub(crate) fn begin_unallocated_of(
        &self,
        devid: DevId,
        from: u64,
        max: u64,
    ) -> Option<UnallocatedOut<'_>> {
        let chunks = self.chunks.lock();
        let holes = chunks.devices.holes(devid);
        let rest = holes.filter_map(|hole| {
            let rest = hole.start.max(from)..hole.end;
            (!rest.is_empty()).then_some(rest)
        });
        let mut parts = rest.filter_map(|rest| self.unallocated.begin_in_hole(devid, rest, max));
        parts.next().map(|region| self.unallocated_out(region))
    }

    /// Returns the devices on which chunks can be placed.
    pub(crate) fn devices(&self) -> Vec<DevId> {
        self.chunks.lock().devices.usable()
    }
}

/// A region taken out of its group, which cannot be removed in this time. A drop returns the region to the free space,
/// untrimmed unless `set_trimmed` was called.
#[derive(Debug)]
pub(crate) struct RegionOut<'s> {
    group: &'s BlockGroup,
    region: TrimRegion,
    is_trimmed: bool,
    /// Must be dropped last.
    _entered: Entered<'s>,
}

impl RegionOut<'_> {
    pub(crate) fn region(&self) -> &TrimRegion {
        &self.region
    }

    pub(crate) fn set_trimmed(&mut self, is_trimmed: bool) {
        self.is_trimmed = is_trimmed;
    }
}

impl Drop for RegionOut<'_> {
    fn drop(&mut self) {
        self.group.put_back(&self.region, self.is_trimmed);
    }
}

/// Unallocated space during a discard. No chunk is placed on it. After a drop it counts as trimmed only if
/// `set_trimmed` was called.
#[derive(Debug)]
pub(crate) struct UnallocatedOut<'s> {
    space: &'s Space,
    region: DeviceRegion,
    is_trimmed: bool,
}

impl UnallocatedOut<'_> {
    pub(crate) fn region(&self) -> &DeviceRegion {
        &self.region
    }

    pub(crate) fn set_trimmed(&mut self, is_trimmed: bool) {
        self.is_trimmed = is_trimmed;
    }
}

impl Drop for UnallocatedOut<'_> {
    fn drop(&mut self) {
        self.space.unallocated.end(&self.region, self.is_trimmed);
    }
}

impl Pinned {
    /// Returns the ranges by group, merged if they touch.
    pub(crate) fn ranges(&self, space: &Space) -> Vec<Range<u64>> {
        let mut ranges = self.0.clone();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut all = Vec::new();
        let mut rest = &ranges[..];
        while let Some(first) = rest.first() {
            let end = space.find(Logical(first.start)).map(|group| group.end().0);
            let Some(end) = end else {
                rest = &rest[1..];
                continue;
            };
            let of_group = rest.partition_point(|range| range.start < end);
            all.extend(joined(&rest[..of_group]));
            rest = &rest[of_group..];
        }
        all
    }
}

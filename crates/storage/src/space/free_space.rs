//! The free space of one block group in memory.
//!
//! A map of extents, with bitmaps in areas that would have too many extents. The group is divided into regions of one
//! bitmap each. A region is stored in one of the two forms, and a free run may span any number of regions.
//!
//! Invariants
//! - FREE-1: each free unit is in one extent of the map, or in the bitmap of its region.
//! - FREE-2: extents are maximal: they never touch each other, and never reach into a region with a bitmap.
//! - FREE-3: at most `MAX_EXTENTS` extents touch a region. This bounds the memory of a region: with sectors of 4 KiB,
//!   less than 64 KiB of memory for each GiB.
//! - FREE-4: the run tree contains the runs of each region, so the longest run of the group is exact.
//!
//! Locks: none; the block group's lock guards it.
//! Not here: pinned space and superblock copies, which are never added (`block_group`).

mod bitmap;
mod run_tree;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

pub(super) use bitmap::Bitmap;
use run_tree::{Found, RunTree, Runs};

/// Units of a region, and bits of its bitmap.
const REGION_UNITS: u64 = 2048;
/// The limit on regions of a group. Groups that would exceed it have larger regions.
const MAX_REGIONS: u64 = 1 << 16;
/// A region that more extents touch is converted to a bitmap.
const MAX_EXTENTS: usize = 8;
/// A region with at most this number of runs is converted back to extents.
const FEW_RUNS: usize = 4;

/// A contradiction between a change and the recorded free space. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FreeSpaceError {
    #[error("{len} bytes at {start} are not whole sectors of the block group")]
    Outside { start: u64, len: u64 },
    #[error("{len} bytes at {start} would be freed, and some of them are free")]
    AlreadyFree { start: u64, len: u64 },
    #[error("{len} bytes at {start} would be allocated, and some of them are in use")]
    NotFree { start: u64, len: u64 },
}

/// A request for an extent; all numbers in bytes.
#[derive(Clone, Copy, Debug)]
pub struct ExtentRequest {
    /// The preferred length, and the maximum.
    pub bytes: u64,
    /// The minimum length.
    pub min_bytes: u64,
    /// Alignment of the start address; a power of two, at least a sector.
    pub align: u64,
    /// The preferred start: the search begins here.
    pub hint: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct FreeSpace {
    start: u64,
    /// A sector. All numbers below are in units, from the start of the group.
    unit_bytes: u64,
    units: u64,
    region_units: u64,
    free_units: u64,
    /// Start to end.
    extents: BTreeMap<u64, u64>,
    bitmaps: BTreeMap<u64, Bitmap>,
    runs: RunTree,
}

impl FreeSpace {
    /// Creates the map of a block group of whole sectors, with nothing free.
    pub fn new(start: u64, len_bytes: u64, sectorsize: u64) -> FreeSpace {
        let units = len_bytes / sectorsize;
        let region_units = REGION_UNITS.max(units.div_ceil(MAX_REGIONS).next_power_of_two());
        let regions = units.div_ceil(region_units).max(1) as usize;
        let lens = (0..regions).map(|region| {
            let from = region as u64 * region_units;
            (units - from).min(region_units)
        });
        FreeSpace {
            start,
            unit_bytes: sectorsize,
            units,
            region_units,
            free_units: 0,
            extents: BTreeMap::new(),
            bitmaps: BTreeMap::new(),
            runs: RunTree::new(lens),
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_units * self.unit_bytes
    }

    /// Returns the length of the longest run.
    pub(crate) fn max_extent_bytes(&self) -> u64 {
        self.runs.longest() * self.unit_bytes
    }

    /// Returns the number of runs.
    pub(crate) fn run_count(&self) -> u64 {
        self.runs.count()
    }

    /// Returns whether an address is in a region stored as a bitmap.
    pub(crate) fn is_in_bitmap(&self, address: u64) -> bool {
        let unit = address.saturating_sub(self.start) / self.unit_bytes;
        self.bitmaps.contains_key(&self.region_of(unit))
    }

    /// Returns the first run of at least `min` bytes at or after an address. A run is cut at the address.
    pub(crate) fn next_run(&self, from: u64, min: u64) -> Option<(u64, u64)> {
        let unit = from.saturating_sub(self.start).div_ceil(self.unit_bytes);
        let want = min.div_ceil(self.unit_bytes).max(1);
        let start = self.first_fit(unit, want)?;
        let run = self.run_from(start)?;
        Some((
            self.start + run.start * self.unit_bytes,
            (run.end - run.start) * self.unit_bytes,
        ))
    }

    /// Frees `len` bytes. Fails if any of them is free.
    pub fn add(&mut self, start: u64, len: u64) -> Result<(), FreeSpaceError> {
        let range = self.units_of(start, len)?;
        if self.any_free(&range) {
            return Err(FreeSpaceError::AlreadyFree { start, len });
        }
        self.free_units += range.end - range.start;
        // FREE-1
        for piece in self.pieces(&range) {
            match piece {
                Piece::Extents(piece) => self.insert_extent(piece),
                Piece::Bitmap(region, bits) => self.bitmap(region).set(bits.start, bits.end),
            }
        }
        self.refresh(&range);
        Ok(())
    }

    /// Allocates `len` bytes. Fails unless all of them are free.
    pub(crate) fn remove(&mut self, start: u64, len: u64) -> Result<(), FreeSpaceError> {
        let range = self.units_of(start, len)?;
        if !self.all_free(&range) {
            return Err(FreeSpaceError::NotFree { start, len });
        }
        self.take(range);
        Ok(())
    }

    /// Removes the free parts of a range, which may extend beyond the group. Returns the number of bytes removed.
    pub(crate) fn exclude(&mut self, start: u64, len: u64) -> u64 {
        let from = start.saturating_sub(self.start) / self.unit_bytes;
        let end = start.saturating_add(len).saturating_sub(self.start);
        let end = end.div_ceil(self.unit_bytes).min(self.units);
        let mut taken = 0;
        let mut at = from;
        while let Some(run) = self.run_from(at).filter(|run| run.start < end) {
            let part = run.start..run.end.min(end);
            at = part.end;
            taken += part.end - part.start;
            self.take(part);
        }
        taken * self.unit_bytes
    }

    /// Finds a free piece of at most `wanted.bytes`.
    ///
    /// Prefers the first piece of this length at or after the hint, then the first one in the group, then the longest.
    pub(crate) fn find(&self, wanted: &ExtentRequest) -> Option<(u64, u64)> {
        let min = wanted.min_bytes.div_ceil(self.unit_bytes).max(1);
        let want = (wanted.bytes / self.unit_bytes).max(min);
        let hint = wanted.hint.unwrap_or(self.start).max(self.start);
        let hint = (hint - self.start).div_ceil(self.unit_bytes);
        let near = |want: u64| {
            self.aligned_fit(hint, want, wanted.align)
                .or_else(|| self.aligned_fit(0, want, wanted.align))
        };
        let longest = self.runs.longest();
        let found = if longest >= want { near(want) } else { None };
        // The alignment may make the longest run too short, but a shorter run may be aligned and long enough.
        let found = found
            .or_else(|| {
                let shorter = longest.min(want);
                (shorter >= min).then(|| near(shorter)).flatten()
            })
            .or_else(|| (longest >= min).then(|| near(min)).flatten())?;
        let len = found.end - found.start;
        Some((
            self.start + found.start * self.unit_bytes,
            len * self.unit_bytes,
        ))
    }

    /// Finds and allocates an extent.
    pub fn allocate(&mut self, wanted: &ExtentRequest) -> Option<(u64, u64)> {
        let (start, len) = self.find(wanted)?;
        self.remove(start, len).ok()?;
        Some((start, len))
    }

    fn units_of(&self, start: u64, len: u64) -> Result<Range<u64>, FreeSpaceError> {
        let outside = FreeSpaceError::Outside { start, len };
        let from = start.checked_sub(self.start).ok_or(outside)?;
        let end = from.checked_add(len).ok_or(outside)?;
        let whole = from.is_multiple_of(self.unit_bytes) && len.is_multiple_of(self.unit_bytes);
        let range = from / self.unit_bytes..end / self.unit_bytes;
        if !whole || range.is_empty() || range.end > self.units {
            return Err(outside);
        }
        Ok(range)
    }

    fn region_of(&self, unit: u64) -> u64 {
        unit / self.region_units
    }

    /// Returns the range of a region, in units.
    fn region(&self, region: u64) -> Range<u64> {
        let from = region * self.region_units;
        from..(from + self.region_units).min(self.units)
    }

    fn regions(&self, range: &Range<u64>) -> std::ops::RangeInclusive<u64> {
        self.region_of(range.start)..=self.region_of(range.end - 1)
    }

    fn bitmap(&mut self, region: u64) -> &mut Bitmap {
        self.bitmaps
            .get_mut(&region)
            .expect("pieces names regions with bitmaps")
    }

    /// Splits a range at the borders between regions of different forms.
    fn pieces(&self, range: &Range<u64>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut at = range.start;
        for (&region, _) in self.bitmaps.range(self.regions(range)) {
            let units = self.region(region);
            let from = units.start.max(range.start);
            if at < from {
                pieces.push(Piece::Extents(at..from));
            }
            at = units.end.min(range.end);
            pieces.push(Piece::Bitmap(region, from - units.start..at - units.start));
        }
        if at < range.end {
            pieces.push(Piece::Extents(at..range.end));
        }
        pieces
    }

    fn any_free(&self, range: &Range<u64>) -> bool {
        let before = self.extents.range(..range.end).next_back();
        before.is_some_and(|(_, &end)| end > range.start)
            || self.pieces(range).iter().any(|piece| match piece {
                Piece::Extents(_) => false,
                Piece::Bitmap(region, bits) => self
                    .bitmaps
                    .get(region)
                    .is_some_and(|bitmap| bitmap.any(bits.start, bits.end)),
            })
    }

    fn all_free(&self, range: &Range<u64>) -> bool {
        self.pieces(range).iter().all(|piece| match piece {
            Piece::Extents(piece) => self
                .extent_at(piece.start)
                .is_some_and(|extent| extent.end >= piece.end),
            Piece::Bitmap(region, bits) => self
                .bitmaps
                .get(region)
                .is_some_and(|bitmap| bitmap.all(bits.start, bits.end)),
        })
    }

    /// Returns the extent that contains a unit.
    fn extent_at(&self, unit: u64) -> Option<Range<u64>> {
        let (&start, &end) = self.extents.range(..=unit).next_back()?;
        (unit < end).then_some(start..end)
    }

    /// Inserts an extent and merges it with its neighbours.
    fn insert_extent(&mut self, extent: Range<u64>) {
        // FREE-2
        let mut extent = extent;
        if let Some((&start, &end)) = self.extents.range(..extent.start).next_back()
            && end == extent.start
        {
            extent.start = start;
        }
        if let Some(end) = self.extents.remove(&extent.end) {
            extent.end = end;
        }
        self.extents.insert(extent.start, extent.end);
    }

    /// Marks a free range as used.
    fn take(&mut self, range: Range<u64>) {
        self.free_units -= range.end - range.start;
        for piece in self.pieces(&range) {
            match piece {
                Piece::Extents(piece) => self.cut_extents(&piece),
                Piece::Bitmap(region, bits) => self.bitmap(region).clear(bits.start, bits.end),
            }
        }
        self.refresh(&range);
    }

    /// Removes a range from the extents. The range need not be free as a whole.
    fn cut_extents(&mut self, range: &Range<u64>) {
        while let Some((&start, &end)) = self.extents.range(..range.end).next_back() {
            if end <= range.start {
                break;
            }
            self.extents.remove(&start);
            if end > range.end {
                self.extents.insert(range.end, end);
            }
            if start < range.start {
                self.extents.insert(start, range.start);
            }
        }
    }

    /// Calls `each` with the runs of a region, cut off at its borders, as units from its start.
    fn runs_in(&self, region: u64, mut each: impl FnMut(u64, u64)) {
        let units = self.region(region);
        if let Some(bitmap) = self.bitmaps.get(&region) {
            let mut at = 0;
            while let Some((from, to)) = bitmap.run(at) {
                each(from, to);
                at = to;
            }
            return;
        }
        let into = self.extent_at(units.start).map(|extent| extent.start);
        let from = into.unwrap_or(units.start);
        for (&start, &end) in self.extents.range(from..units.end) {
            let (start, end) = (start.max(units.start), end.min(units.end));
            each(start - units.start, end - units.start);
        }
    }

    /// Restores FREE-3 and FREE-4 for the regions of a range that changed.
    fn refresh(&mut self, range: &Range<u64>) {
        let regions = self.regions(range);
        let mut all = Vec::with_capacity((regions.end() - regions.start() + 1) as usize);
        let first = *regions.start() as usize;
        for region in regions {
            let units = self.region(region);
            let mut runs = Runs::none(units.end - units.start);
            let mut count = 0;
            self.runs_in(region, |from, to| {
                runs.push(from, to);
                count += 1;
            });
            all.push(runs);
            // The summaries were computed from the old form. A conversion does not change the runs.
            if self.bitmaps.contains_key(&region) {
                if count <= FEW_RUNS {
                    self.drop_bitmap(region);
                }
            } else if count > MAX_EXTENTS {
                self.make_bitmap(region);
            }
        }
        self.runs.set(first, all.into_iter());
    }

    fn make_bitmap(&mut self, region: u64) {
        let units = self.region(region);
        let mut bitmap = Bitmap::new(units.end - units.start);
        self.runs_in(region, |from, to| bitmap.set(from, to));
        // FREE-2: no extent reaches into the region of a bitmap.
        self.cut_extents(&units);
        self.bitmaps.insert(region, bitmap);
    }

    fn drop_bitmap(&mut self, region: u64) {
        let units = self.region(region);
        let mut extents = Vec::with_capacity(FEW_RUNS);
        self.runs_in(region, |from, to| {
            extents.push(units.start + from..units.start + to);
        });
        self.bitmaps.remove(&region);
        for extent in extents {
            self.insert_extent(extent);
        }
    }

    /// Returns the first run at or after a unit, cut off there.
    fn run_from(&self, unit: u64) -> Option<Range<u64>> {
        let start = self.first_fit(unit, 1)?;
        let mut end = start;
        while end < self.units {
            let region = self.region_of(end);
            let next = match self.bitmaps.get(&region) {
                Some(bitmap) => {
                    let first = self.region(region).start;
                    let run = bitmap.run(end - first);
                    run.filter(|run| run.0 == end - first)
                        .map(|run| first + run.1)
                }
                None => self.extent_at(end).map(|extent| extent.end),
            };
            let Some(next) = next else { break };
            end = next;
        }
        Some(start..end)
    }

    /// Returns the start of the first run of at least `want` units at or after `unit`. A run is cut at `unit`.
    fn first_fit(&self, unit: u64, want: u64) -> Option<u64> {
        if unit >= self.units {
            return None;
        }
        let region = self.region_of(unit);
        let units = self.region(region);
        let skip = unit - units.start;
        if let Some(from) = self.fit_in(region, skip, want) {
            return Some(from);
        }
        // No run inside of the region fits. Search the tree, beginning with the free units at the end of this region.
        let known = self.runs.region(region as usize);
        let before = known.suffix.min(known.len - skip);
        match self.runs.first_fit(region as usize + 1, before, want)? {
            Found::Within(region) => self.fit_in(region as u64, 0, want),
            Found::Across { region, before } => Some(self.region(region as u64).start - before),
        }
    }

    /// Finds the first fit within one region.
    fn fit_in(&self, region: u64, skip: u64, want: u64) -> Option<u64> {
        let units = self.region(region);
        let mut found = None;
        self.runs_in(region, |from, to| {
            let from = from.max(skip);
            if found.is_none() && to.saturating_sub(from) >= want {
                found = Some(units.start + from);
            }
        });
        found
    }

    /// Finds `want` free units from an aligned address on (`first_fit`).
    fn aligned_fit(&self, unit: u64, want: u64, align: u64) -> Option<Range<u64>> {
        let mut at = unit;
        loop {
            let start = self.first_fit(at, want)?;
            let address = self.start + start * self.unit_bytes;
            let skip = address.checked_next_multiple_of(align.max(self.unit_bytes))? - address;
            let aligned = start + skip.div_ceil(self.unit_bytes);
            if aligned == start {
                return Some(start..start + want);
            }
            let end = self.run_from(start)?.end;
            if end.saturating_sub(aligned) >= want {
                return Some(aligned..aligned + want);
            }
            // Too short after alignment, so continue after this run.
            at = end;
        }
    }
}

/// A part of a range within regions of one form.
#[derive(Debug)]
enum Piece {
    Extents(Range<u64>),
    /// A region, and a range of bits in its bitmap.
    Bitmap(u64, Range<u64>),
}

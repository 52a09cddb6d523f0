//! Untrimmed free space of a group, and regions that are taken out of the group while they are discarded.
//!
//! Each group has two records. `waiting` contains the ranges freed since the volume was opened and not discarded since.
//! A group is `unproven` if the rest of its free space may also hold old bytes, freed but never discarded by an earlier
//! mount. A pass over an unproven group moves all of its free space to `waiting`.
//!
//! Invariants
//! - TRIM-1: waiting ranges are free, even if the free space is not loaded. An allocation removes them from both.
//! - TRIM-2: a region that is being discarded is neither free nor waiting, and only free space is ever taken out. So no
//!   used or pinned range and no superblock copy is ever discarded.
//! - TRIM-3: reservations count regions that are taken out as free.
//!
//! Not here: the order of groups (`discard`), allocations that wait for a region (`trim_gate`).

use std::ops::Range;
use std::sync::atomic::Ordering;

use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::Logical;

use super::{BlockGroup, Free, FreeSpaceSource, GroupState};
use crate::space::free_space::FreeSpace;
use crate::space::space_info::replace;
use waiting::Waiting;

mod waiting;

#[cfg(test)]
mod tests;

/// A region is extended to the end of its run if the rest would be shorter than this.
const SHORT_REST: u64 = 32 << 10;

#[derive(Debug, Default)]
pub(super) struct TrimState {
    waiting: Waiting,
    unproven: bool,
    /// Bytes taken out for discards.
    pub(super) out: u64,
    /// The extents and bytes that this group has added to `TrimTotals`.
    counted: (u64, u64),
    /// Whether the group is listed in `TrimTotals`, and not fully processed since.
    is_listed: bool,
}

/// Free space that is taken out of its group for a discard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrimRegion {
    pub start: Logical,
    pub len: u64,
    /// Whether its group stores free space there as a bitmap.
    pub in_bitmap: bool,
    /// The end of the free run whose front this is.
    pub(crate) run_end: u64,
}

impl TrimRegion {
    pub(crate) fn end(&self) -> u64 {
        self.start.0 + self.len
    }
}

impl TrimState {
    pub(super) fn of(is_unproven: bool) -> TrimState {
        TrimState {
            unproven: is_unproven,
            ..TrimState::default()
        }
    }

    /// Removes a range from the waiting space, and returns the number of bytes removed.
    #[inline]
    pub(super) fn remove(&mut self, start: u64, len: u64) -> u64 {
        if self.waiting.is_empty() {
            0
        } else {
            self.waiting.remove(&(start..start + len))
        }
    }
}

impl BlockGroup {
    /// Returns whether the group contains only data.
    fn is_pure_data(&self) -> bool {
        let types = self.flags & (BlockGroupFlags::DATA | BlockGroupFlags::METADATA);
        types == BlockGroupFlags::DATA
    }

    /// Returns whether the group records freed space.
    #[inline]
    pub(crate) fn tracks_trims(&self) -> bool {
        let totals = &self.info.trims;
        totals.tracks() && (self.is_pure_data() || totals.tracks_metadata())
    }

    /// Adds ranges that have become free and are untrimmed.
    #[inline]
    pub(super) fn note_untrimmed(&self, state: &mut GroupState, ranges: &[Range<u64>]) {
        if !self.info.trims.tracks() {
            state.trim.unproven = true;
            return;
        }
        self.keep_untrimmed(state, ranges);
        self.list_if_untrimmed(state);
    }

    fn keep_untrimmed(&self, state: &mut GroupState, ranges: &[Range<u64>]) {
        if !self.tracks_trims() || matches!(state.free, Free::Unusable) {
            state.trim.unproven = true;
            return;
        }
        let empty = || FreeSpace::new(self.start.0, self.len, self.sectorsize);
        for range in ranges {
            state.trim.waiting.add(range, empty);
        }
    }

    fn list_if_untrimmed(&self, state: &mut GroupState) {
        // A group that has become empty is listed again, because the delay for empty groups is shorter.
        let is_empty = self.is_wholly_free(state);
        let has_come = !state.trim.waiting.is_empty() && !state.trim.is_listed;
        if is_empty || has_come {
            state.trim.is_listed = true;
            self.info.trims.list(self.start);
        }
    }

    /// Marks all free space of a new group as untrimmed. The device space may contain bytes of a removed group.
    pub(in crate::space) fn set_untrimmed(&self) {
        let mut state = self.state.lock();
        if let Free::Loaded(free) = &state.free
            && self.tracks_trims()
        {
            state.trim.waiting = Waiting::all_of(free);
            self.list_if_untrimmed(&mut state);
        } else {
            state.trim.unproven = true;
        }
        self.recount(&mut state);
    }

    /// Returns whether some of its free space may be untrimmed.
    pub(in crate::space) fn may_be_untrimmed(&self) -> bool {
        let state = self.state.lock();
        state.trim.unproven || !state.trim.waiting.is_empty()
    }

    /// Lists the group again if it has untrimmed space.
    pub(in crate::space) fn list_again(&self) {
        self.list_if_untrimmed(&mut self.state.lock());
    }

    /// Marks the group as not listed, so that the next free lists it.
    pub(crate) fn unlist(&self) {
        self.state.lock().trim.is_listed = false;
    }

    /// Returns the length of the longest waiting run.
    pub(crate) fn longest_untrimmed(&self) -> u64 {
        self.state.lock().trim.waiting.max_extent_bytes()
    }

    /// Moves all free space to the waiting space if it is not known to be trimmed. Loads the free space.
    pub(crate) fn queue_unproven(&self, source: &dyn FreeSpaceSource) {
        let mut state = self.state.lock();
        if !state.trim.unproven || state.removed || self.is_read_only() {
            return;
        }
        self.load(&mut state, source);
        if let Free::Loaded(free) = &state.free {
            state.trim.waiting = Waiting::all_of(free);
            state.trim.unproven = false;
        }
        self.recount(&mut state);
    }

    /// Takes out the longest waiting run, or its front if it is longer than `max`. Returns None if all are shorter than
    /// `min`; the next free lists the group again.
    pub(in crate::space) fn take_longest_untrimmed(
        &self,
        min: u64,
        max: u64,
        source: &dyn FreeSpaceSource,
    ) -> Option<TrimRegion> {
        let mut state = self.state.lock();
        let taken = self.find_untrimmed(&mut state, min, max, source);
        state.trim.is_listed &= taken.is_some();
        self.recount(&mut state);
        taken
    }

    fn find_untrimmed(
        &self,
        state: &mut GroupState,
        min: u64,
        max: u64,
        source: &dyn FreeSpaceSource,
    ) -> Option<TrimRegion> {
        if self.is_read_only() || state.removed {
            return None;
        }
        loop {
            let longest = state.trim.waiting.longest()?;
            if longest.end - longest.start < min {
                return None;
            }
            self.load(state, source);
            let Free::Loaded(free) = &state.free else {
                // The free space is damaged (GROUP-3). Discarding any of it could destroy data.
                state.trim.waiting = Waiting::default();
                return None;
            };
            let region = cut(&longest, max, free.is_in_bitmap(longest.start));
            if self.take_out(state, &region) {
                return Some(region);
            }
        }
    }

    /// Takes out the first free run of at least `min` in a range of addresses, or its front.
    pub(in crate::space) fn take_free_run(
        &self,
        range: &Range<u64>,
        min: u64,
        max: u64,
        source: &dyn FreeSpaceSource,
    ) -> Option<TrimRegion> {
        let mut state = self.state.lock();
        if self.is_read_only() || state.removed {
            return None;
        }
        self.load(&mut state, source);
        let Free::Loaded(free) = &state.free else {
            return None;
        };
        let (start, len) = free.next_run(range.start, min)?;
        // The part of a run within the range may be too short. Then the range has no other run.
        let end = (start + len).min(range.end);
        if end.saturating_sub(start) < min.max(1) {
            return None;
        }
        let region = cut(&(start..end), max, free.is_in_bitmap(start));
        let taken = self.take_out(&mut state, &region);
        self.recount(&mut state);
        taken.then_some(region)
    }

    /// Takes a region out of the free space (TRIM-2). Returns false if some of it is not free.
    fn take_out(&self, state: &mut GroupState, region: &TrimRegion) -> bool {
        let removed = match &mut state.free {
            Free::Loaded(free) => free.remove(region.start.0, region.len).is_ok(),
            Free::NotLoaded(_) | Free::Unusable => false,
        };
        state.trim.remove(region.start.0, region.len);
        if removed {
            state.trim.out += region.len;
        } else {
            // TRIM-1
            tracing::error!(group = %self.start, ?region, "space that waits for a discard is not free");
        }
        removed
    }

    /// Returns a region to the free space after a discard.
    pub(in crate::space) fn put_back(&self, region: &TrimRegion, is_trimmed: bool) {
        let mut state = self.state.lock();
        state.trim.out -= region.len;
        if let Free::Loaded(free) = &mut state.free {
            let added = free.add(region.start.0, region.len);
            self.disable_on_error(&mut state, added);
        }
        if !is_trimmed {
            let range = region.start.0..region.end();
            self.keep_untrimmed(&mut state, &[range]);
        }
        self.recount(&mut state);
    }

    /// Marks the group as proven before all of its free space is discarded. Returns whether it was unproven.
    pub(crate) fn begin_proof(&self) -> bool {
        std::mem::take(&mut self.state.lock().trim.unproven)
    }

    /// Marks the group as unproven, because not all of its free space was discarded.
    pub(crate) fn set_unproven(&self) {
        self.state.lock().trim.unproven = true;
    }

    /// Updates the totals of untrimmed space (TRIM-TOTALS-1).
    #[inline]
    pub(super) fn recount_trims(&self, state: &mut GroupState) {
        let waiting = &state.trim.waiting;
        let now = if state.removed {
            (0, 0)
        } else {
            (waiting.count(), waiting.bytes())
        };
        if now != state.trim.counted {
            let totals = &self.info.trims;
            replace(&totals.extents, state.trim.counted.0, now.0);
            replace(&totals.bytes, state.trim.counted.1, now.1);
            state.trim.counted = now;
        }
    }

    /// Counts waiting bytes that were allocated again as saved.
    #[inline]
    pub(super) fn note_reuse(&self, state: &mut GroupState, start: u64, len: u64) {
        let saved = state.trim.remove(start, len);
        if saved > 0 {
            self.info.trims.saved.fetch_add(saved, Ordering::Relaxed);
        }
    }
}

/// Returns the front of a run, up to the maximum length of a discard.
fn cut(run: &Range<u64>, max: u64, in_bitmap: bool) -> TrimRegion {
    let len = run.end - run.start;
    TrimRegion {
        start: Logical(run.start),
        len: match max {
            0 => len,
            max if len <= max.saturating_add(SHORT_REST) => len,
            max => max,
        },
        in_bitmap,
        run_end: run.end,
    }
}

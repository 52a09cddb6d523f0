//! Free space of a group that is not discarded yet, and space that is out of the group while it is discarded.
//!
//! Two things are known of a group. `waiting` has what was freed since the volume was opened and was not discarded since. A
//! group is `unproven` if the rest of its free space may hold old bytes as well: what an earlier mount freed and
//! never discarded. A pass over such a group has all of its free space wait.
//!
//! Invariants
//! - TRIM-1: what waits is free, also where the free space is not loaded. Allocating it takes it out of both.
//! - TRIM-2: a region that is being discarded is neither free nor waiting, and only what is free is ever taken out. So
//!   nothing that is used, pinned or a superblock copy is discarded.
//! - TRIM-3: reservations count what is out as free.
//!
//! Not here: which group's turn it is (`discard`), allocations that wait for a region (`trim_gate`).

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

/// A region is not cut for the sake of a rest that is shorter.
const SHORT_REST: u64 = 32 << 10;

#[derive(Debug, Default)]
pub(super) struct TrimState {
    waiting: Waiting,
    unproven: bool,
    /// Bytes that are out.
    pub(super) out: u64,
    /// The extents and bytes that this group has added to `TrimTotals`.
    counted: (u64, u64),
    /// Told to `TrimTotals`, and not looked at to the end since.
    is_listed: bool,
}

/// Free space that is out of its group while it is discarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrimRegion {
    pub start: Logical,
    pub len: u64,
    /// Its group keeps free space there as a bitmap.
    pub in_bitmap: bool,
    /// Where the run ends that it is the front of.
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

    /// Takes out what waits of a range, and returns how much that was.
    #[inline]
    pub(super) fn remove(&mut self, start: u64, len: u64) -> u64 {
        match self.waiting.is_empty() {
            true => 0,
            false => self.waiting.remove(&(start..start + len)),
        }
    }
}

impl BlockGroup {
    /// Returns whether the group holds nothing but data.
    fn is_pure_data(&self) -> bool {
        let types = self.flags & (BlockGroupFlags::DATA | BlockGroupFlags::METADATA);
        types == BlockGroupFlags::DATA
    }

    /// Returns whether freed space is kept of this group.
    #[inline]
    pub(crate) fn tracks_trims(&self) -> bool {
        let totals = &self.info.trims;
        totals.tracks() && (self.is_pure_data() || totals.tracks_metadata())
    }

    /// Notes that these ranges have become free, untrimmed.
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
        // One that has become empty has another delay.
        let is_empty = self.is_wholly_free(state);
        let has_come = !state.trim.waiting.is_empty() && !state.trim.is_listed;
        if is_empty || has_come {
            state.trim.is_listed = true;
            self.info.trims.list(self.start);
        }
    }

    /// Notes that no free space of the group is trimmed. All of it was taken from the devices, where bytes of another
    /// group may lie.
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

    /// Returns whether some of its free space may hold old bytes.
    pub(in crate::space) fn may_be_untrimmed(&self) -> bool {
        let state = self.state.lock();
        state.trim.unproven || !state.trim.waiting.is_empty()
    }

    /// Has the group listed if it has untrimmed space.
    pub(in crate::space) fn list_again(&self) {
        self.list_if_untrimmed(&mut self.state.lock());
    }

    /// Notes that the group is no longer listed. The reason for its listing is forgotten.
    pub(crate) fn unlist(&self) {
        self.state.lock().trim.is_listed = false;
    }

    /// Returns the length of the longest run that waits for a discard.
    pub(crate) fn longest_untrimmed(&self) -> u64 {
        self.state.lock().trim.waiting.max_extent_bytes()
    }

    /// Has all free space wait, if it is not known to be trimmed. Loads it.
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

    /// Takes out the longest run that waits, or the front of it if it is longer than `max`. None if all are shorter than
    /// `min`; the group will be listed again when something is freed.
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
        // A run that ends beyond may be too short within the range. None comes after it.
        let end = (start + len).min(range.end);
        if end.saturating_sub(start) < min.max(1) {
            return None;
        }
        let region = cut(&(start..end), max, free.is_in_bitmap(start));
        let taken = self.take_out(&mut state, &region);
        self.recount(&mut state);
        taken.then_some(region)
    }

    /// TRIM-2. False if some of it is not free.
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

    /// Frees a region again that was taken out for a discard.
    pub(in crate::space) fn put_back(&self, region: &TrimRegion, is_trimmed: bool) {
        let mut state = self.state.lock();
        state.trim.out -= region.len;
        if let Free::Loaded(free) = &mut state.free {
            let added = free.add(region.start.0, region.len);
            self.judge(&mut state, added);
        }
        if !is_trimmed {
            let range = region.start.0..region.end();
            self.keep_untrimmed(&mut state, &[range]);
        }
        self.recount(&mut state);
    }

    /// Begins to discard all free space, which proves it trimmed. Returns whether it was unproven.
    pub(crate) fn begin_proof(&self) -> bool {
        std::mem::take(&mut self.state.lock().trim.unproven)
    }

    /// Notes that the free space is not known to be trimmed, since the proof came to nothing.
    pub(crate) fn set_unproven(&self) {
        self.state.lock().trim.unproven = true;
    }

    /// TRIM-TOTALS-1
    #[inline]
    pub(super) fn recount_trims(&self, state: &mut GroupState) {
        let waiting = &state.trim.waiting;
        let now = match state.removed {
            true => (0, 0),
            false => (waiting.count(), waiting.bytes()),
        };
        if now != state.trim.counted {
            let totals = &self.info.trims;
            replace(&totals.extents, state.trim.counted.0, now.0);
            replace(&totals.bytes, state.trim.counted.1, now.1);
            state.trim.counted = now;
        }
    }

    /// Counts the waiting bytes that an allocation took as saved.
    #[inline]
    pub(super) fn note_reuse(&self, state: &mut GroupState, start: u64, len: u64) {
        let saved = state.trim.remove(start, len);
        if saved > 0 {
            self.info.trims.saved.fetch_add(saved, Ordering::Relaxed);
        }
    }
}

/// Returns the front of a run, as much as is discarded at once.
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

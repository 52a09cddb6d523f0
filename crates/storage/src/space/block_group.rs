//! One block group: its used, free and pinned space.
//!
//! Free space is loaded at the first allocation in the group. Until then, its size is computed from the length and the
//! used bytes. A volume with thousands of groups therefore opens without reading any free space.
//!
//! Invariants
//! - GROUP-1: superblock copies and pinned ranges are not part of the free space.
//! - GROUP-2: loading a group takes its free space from the source, minus the ranges pinned at that time. The source
//!   shows a committed state. `unpin` returns ranges that are free in the source but pinned.
//! - GROUP-3: nothing is allocated any longer from a group whose free space cannot be loaded, contradicts itself, or is
//!   larger than the unused part. An extent missing from the extent tree would be overwritten.
//!
//! Locks: the state's, one group at a time; loading reads with it held, so that unpinning waits.
//! Not here: the order of the groups in a search (`alloc`), the order of pinning and commits.

mod trim;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ubtrfs_format::block_group_flags::{BlockGroupFlags, BlockGroupType};
use ubtrfs_format::ids::{Logical, Transid};

use super::free_space::{ExtentRequest, FreeSpace, FreeSpaceError};
use super::nocow_writers::NocowWriters;
use super::space_info::{SpaceInfo, replace};
use crate::error::Error;
use crate::range_set::RangeSet;
use trim::TrimState;

pub use trim::TrimRegion;

#[cfg(test)]
mod tests;

/// The source of a group's free space.
pub trait FreeSpaceSource: Send + Sync {
    /// Calls `each` with the free ranges (start, length) of the block group, ascending, as of the last
    /// published commit at the time of the call.
    fn load(&self, start: Logical, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), Error>;
}

/// The `created` of a group that no transaction has used yet.
const UNCLAIMED: u64 = u64::MAX;

#[derive(Debug)]
pub struct BlockGroup {
    start: Logical,
    len: u64,
    flags: BlockGroupFlags,
    sectorsize: u64,
    created: AtomicU64,
    used: AtomicU64,
    /// The ranges of superblock copies.
    superblocks: Box<[Range<u64>]>,
    info: Arc<SpaceInfo>,
    /// Copies of numbers in the state, readable without its lock; hints for the choice of a group.
    free_bytes: AtomicU64,
    max_extent_bytes: AtomicU64,
    runs: AtomicU64,
    allocated: AtomicU64,
    nocow_writers: NocowWriters,
    state: Mutex<GroupState>,
}

#[derive(Debug)]
struct GroupState {
    free: Free,
    pinned: u64,
    trim: TrimState,
    /// The amount that this group contributes to `SpaceInfo::free_bytes`.
    counted_room: u64,
    counted_used: u64,
    removed: bool,
}

#[derive(Debug)]
enum Free {
    /// Pinned ranges, start to end. The source may report them as free.
    NotLoaded(BTreeMap<u64, u64>),
    Loaded(FreeSpace),
    /// GROUP-3
    Unusable,
}

/// The properties of a new `BlockGroup`.
#[derive(Clone, Debug)]
pub(super) struct NewGroup {
    pub(super) start: Logical,
    pub(super) len: u64,
    pub(super) flags: BlockGroupFlags,
    pub(super) used: u64,
    pub(super) superblocks: Vec<Range<u64>>,
}

impl BlockGroup {
    /// Creates a group that exists on the volume, or a new and empty one that no transaction has used (`created` is
    /// None).
    pub(super) fn new(
        new: NewGroup,
        created: Option<Transid>,
        sectorsize: u64,
        info: Arc<SpaceInfo>,
    ) -> Arc<BlockGroup> {
        let group = BlockGroup {
            start: new.start,
            len: new.len,
            flags: new.flags,
            sectorsize,
            created: AtomicU64::new(created.map_or(UNCLAIMED, |created| created.0)),
            used: AtomicU64::new(new.used),
            superblocks: new.superblocks.into(),
            info,
            free_bytes: AtomicU64::new(0),
            max_extent_bytes: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            allocated: AtomicU64::new(0),
            nocow_writers: NocowWriters::default(),
            state: Mutex::new(GroupState {
                free: Free::NotLoaded(BTreeMap::new()),
                pinned: 0,
                trim: TrimState::of(created == Some(Transid(0))),
                counted_room: 0,
                counted_used: 0,
                removed: false,
            }),
        };
        group.info.total.fetch_add(group.len, Ordering::SeqCst);
        {
            let mut state = group.state.lock();
            // A new group: the trees know nothing of it, and all of it is free.
            if created.is_none_or(|created| created.0 != 0) {
                let mut free = group.empty_space();
                group.fill(&mut free, |each| {
                    each(group.start.0, group.len);
                    Ok(())
                });
                state.free = free;
            }
            group.recount(&mut state);
        }
        Arc::new(group)
    }

    /// Holds the lock of the group's state.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn hold(&self) -> impl Drop {
        self.state.lock()
    }

    pub fn start(&self) -> Logical {
        self.start
    }

    pub fn len_bytes(&self) -> u64 {
        self.len
    }

    /// Returns the first address after the group.
    pub fn end(&self) -> Logical {
        Logical(self.start.0.saturating_add(self.len))
    }

    pub fn flags(&self) -> BlockGroupFlags {
        self.flags
    }

    pub fn kind(&self) -> BlockGroupType {
        BlockGroupType::of(self.flags)
    }

    pub(crate) fn contains(&self, logical: Logical) -> bool {
        self.start <= logical && logical < self.end()
    }

    /// Returns the transaction that created the group: 0 for a group that was there at opening, None before its first
    /// use.
    pub(crate) fn created(&self) -> Option<Transid> {
        let created = self.created.load(Ordering::SeqCst);
        (created != UNCLAIMED).then_some(Transid(created))
    }

    /// Returns whether a transaction up to `upto` uses it. Other groups have no items yet, and exist in memory only.
    pub(crate) fn is_of(&self, upto: Transid) -> bool {
        self.created().is_some_and(|created| created <= upto)
    }

    /// Returns the number of bytes in extent items, as of the commit in progress.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the bytes in extent items plus the bytes allocated since, which have no items yet.
    ///
    /// Extents freed by the commit in progress are not included.
    pub fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Adjusts the bytes in extent items by the result of a commit. Only the commit calls this, after it has pinned the
    /// deleted extents.
    pub(crate) fn change_used(&self, delta: i64) {
        let mut state = self.state.lock();
        let used = self.used();
        let new = used.saturating_add_signed(delta);
        if new > self.len || i128::from(used) + i128::from(delta) != i128::from(new) {
            tracing::error!(group = %self.start, used, delta, "used bytes of a block group are wrong");
        }
        self.used.store(new, Ordering::Relaxed);
        self.recount(&mut state);
    }

    pub(super) fn nocow_writers(&self) -> &NocowWriters {
        &self.nocow_writers
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.nocow_writers.is_closed()
    }

    /// Makes the group read-only, which prevents allocations in it. Waits until no nocow write is in progress.
    pub(crate) fn set_read_only(&self) {
        self.nocow_writers.close();
        self.recount(&mut self.state.lock());
    }

    /// Makes the group read-only, like [`BlockGroup::set_read_only`]. Returns false if it was already.
    pub(super) fn set_read_only_once(&self) -> bool {
        let was_open = self.nocow_writers.close_once();
        self.recount(&mut self.state.lock());
        was_open
    }

    /// Returns whether the group was removed from the volume.
    pub(super) fn is_removed(&self) -> bool {
        self.state.lock().removed
    }

    /// Makes it read-only, unless a nocow write is in progress. Returns whether it did.
    pub(crate) fn try_set_read_only(&self) -> bool {
        let closed = self.nocow_writers.try_close();
        self.recount(&mut self.state.lock());
        closed
    }

    pub(crate) fn set_writable(&self) {
        self.nocow_writers.open();
        self.recount(&mut self.state.lock());
    }

    /// Returns the recent length of the longest free run. It is an upper bound if the free space is not loaded.
    pub(super) fn max_extent_bytes(&self) -> u64 {
        self.max_extent_bytes.load(Ordering::Relaxed)
    }

    /// Returns the recent free bytes and the number of free runs. The number is 1 if the free space is not loaded.
    pub(super) fn room_and_runs(&self) -> (u64, u64) {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        (get(&self.free_bytes), get(&self.runs))
    }

    /// Returns whether a transaction may use the group. Claims a group that no transaction has used.
    pub(super) fn claim(&self, transid: Transid) -> bool {
        let claimed =
            self.created
                .compare_exchange(UNCLAIMED, transid.0, Ordering::SeqCst, Ordering::SeqCst);
        claimed.is_ok() || claimed.is_err_and(|created| created <= transid.0)
    }

    /// Claims the group for a commit.
    ///
    /// The commit then inserts the items of the group, even if only later transactions have used it so far. The space
    /// reserved for the commit may be there.
    pub(super) fn take_over(&self, transid: Transid) {
        if self.created.load(Ordering::SeqCst) > transid.0 {
            self.created.fetch_min(transid.0, Ordering::SeqCst);
        }
    }

    /// Finds and allocates space.
    pub(super) fn allocate(
        &self,
        wanted: &ExtentRequest,
        source: &dyn FreeSpaceSource,
    ) -> Option<(u64, u64)> {
        self.with_free(source, |free| {
            let found = free.allocate(wanted)?;
            Some((found, found.1))
        })
    }

    /// Finds space and allocates its first `bytes`.
    pub(super) fn allocate_front(
        &self,
        wanted: &ExtentRequest,
        bytes: u64,
        source: &dyn FreeSpaceSource,
    ) -> Option<(u64, u64)> {
        self.with_free(source, |free| {
            let found = free.find(wanted)?;
            free.remove(found.0, bytes).ok()?;
            Some((found, bytes))
        })
    }

    /// Allocates an exact range, if it is free.
    pub(super) fn allocate_at(&self, start: u64, len: u64, source: &dyn FreeSpaceSource) -> bool {
        let taken = self.with_free(source, |free| {
            free.remove(start, len).ok()?;
            Some(((start, len), len))
        });
        taken.is_some()
    }

    /// Allocates with `take`, which returns the range found, and the length allocated from its front.
    fn with_free(
        &self,
        source: &dyn FreeSpaceSource,
        take: impl FnOnce(&mut FreeSpace) -> Option<((u64, u64), u64)>,
    ) -> Option<(u64, u64)> {
        let mut state = self.state.lock();
        if self.nocow_writers.is_closed() || state.removed {
            return None;
        }
        self.load(&mut state, source);
        let taken = match &mut state.free {
            Free::Loaded(free) => take(free),
            Free::NotLoaded(_) | Free::Unusable => None,
        };
        if let Some(((start, _), len)) = taken {
            // TRIM-1
            self.note_reuse(&mut state, start, len);
        }
        self.recount(&mut state);
        taken.map(|(found, _)| found)
    }

    /// Returns the ranges that are neither free nor for superblocks.
    pub(super) fn ranges_in_use(&self, source: &dyn FreeSpaceSource) -> Vec<Range<u64>> {
        let mut state = self.state.lock();
        self.load(&mut state, source);
        let mut used = RangeSet::default();
        used.add(self.start.0..self.end().0);
        if let Free::Loaded(free) = &state.free {
            let mut at = self.start.0;
            while let Some((start, len)) = free.next_run(at, 1) {
                used.remove(start..start + len);
                at = start + len;
            }
        }
        for range in &self.superblocks {
            used.remove(range.clone());
        }
        used.iter().collect()
    }

    fn load(&self, state: &mut GroupState, source: &dyn FreeSpaceSource) {
        let Free::NotLoaded(pinned) = &state.free else {
            return;
        };
        let mut free = self.empty_space();
        let mut free_bytes = 0u64;
        self.fill(&mut free, |each| {
            source.load(self.start, self.len, &mut |start, len| {
                free_bytes = free_bytes.saturating_add(len);
                each(start, len);
            })
        });
        // Until the group is loaded, the used bytes only shrink, and they do so before the source shows the change.
        if free_bytes > self.len.saturating_sub(self.used()) {
            tracing::error!(
                group = %self.start, used = self.used(), free_bytes,
                "more of a block group is called free than its used bytes leave: nothing is written there"
            );
            free = Free::Unusable;
        }
        if let Free::Loaded(free) = &mut free {
            // GROUP-2
            for (&start, &end) in pinned {
                free.exclude(start, end - start);
            }
        }
        state.free = free;
    }

    fn empty_space(&self) -> Free {
        Free::Loaded(FreeSpace::new(self.start.0, self.len, self.sectorsize))
    }

    /// GROUP-1 for superblocks, GROUP-3.
    fn fill(
        &self,
        into: &mut Free,
        load: impl FnOnce(&mut dyn FnMut(u64, u64)) -> Result<(), Error>,
    ) {
        let Free::Loaded(free) = into else { return };
        let mut wrong = Ok(());
        let loaded = load(&mut |start, len| wrong = wrong.and_then(|()| free.add(start, len)));
        for range in &self.superblocks {
            free.exclude(range.start, range.end - range.start);
        }
        if let Err(error) = &loaded {
            tracing::error!(group = %self.start, %error, "cannot load the free space of a block group");
        }
        if let Err(error) = &wrong {
            tracing::error!(group = %self.start, %error, "free space of a block group is damaged");
        }
        if loaded.is_err() || wrong.is_err() {
            *into = Free::Unusable;
        }
    }

    /// Frees space that was allocated but never used.
    pub(super) fn release(&self, start: u64, len: u64) {
        let mut state = self.state.lock();
        if let Free::Loaded(free) = &mut state.free {
            let added = free.add(start, len);
            self.disable_on_error(&mut state, added);
            let freed = start..start + len;
            self.note_untrimmed(&mut state, std::slice::from_ref(&freed));
        }
        self.recount(&mut state);
    }

    pub(super) fn pin(&self, start: u64, len: u64) {
        let mut state = self.state.lock();
        match &mut state.free {
            Free::NotLoaded(pinned) => {
                // The source may report the range as free when the group is loaded (GROUP-2).
                pinned.insert(start, start.saturating_add(len));
            }
            // The blocks of a log are pinned at mount, although the free-space tree lists them as free.
            Free::Loaded(free) => {
                if free.exclude(start, len) > 0 {
                    state.trim.remove(start, len);
                }
            }
            Free::Unusable => {}
        }
        state.pinned += len;
        self.info.pinned.fetch_add(len, Ordering::SeqCst);
        self.recount(&mut state);
    }

    /// Makes pinned ranges available for allocation.
    pub(super) fn unpin(&self, ranges: &[Range<u64>]) {
        let mut state = self.state.lock();
        let mut bytes = 0;
        let mut wrong = Ok(());
        for range in ranges {
            bytes += range.end - range.start;
            match &mut state.free {
                // The ranges are merged: one may cover several entries of the map.
                Free::NotLoaded(pinned) => {
                    let mut later = pinned.split_off(&range.start);
                    pinned.append(&mut later.split_off(&range.end));
                }
                Free::Loaded(free) => {
                    let added = free.add(range.start, range.end - range.start);
                    wrong = wrong.and(added);
                }
                Free::Unusable => {}
            }
        }
        state.pinned = state.pinned.saturating_sub(bytes);
        self.info.pinned.fetch_sub(bytes, Ordering::SeqCst);
        self.disable_on_error(&mut state, wrong);
        self.note_untrimmed(&mut state, ranges);
        self.recount(&mut state);
    }

    /// Makes the group unusable if the result is an error (GROUP-3).
    fn disable_on_error(&self, state: &mut GroupState, result: Result<(), FreeSpaceError>) {
        if let Err(error) = result {
            tracing::error!(group = %self.start, %error, "free space of a block group is damaged");
            state.free = Free::Unusable;
        }
    }

    /// Returns whether the whole group is free, with nothing allocated or pinned.
    fn is_wholly_free(&self, state: &GroupState) -> bool {
        let full = self.len - self.superblock_bytes();
        let is_empty = match &state.free {
            Free::NotLoaded(_) => true,
            Free::Loaded(free) => free.free_bytes() == full,
            Free::Unusable => false,
        };
        is_empty && self.used() == 0 && state.pinned == 0 && !state.removed
    }

    /// Removes an empty group from the sums. Returns false if anything in it is allocated or pinned.
    pub(super) fn retire(&self) -> bool {
        let mut state = self.state.lock();
        if !self.is_wholly_free(&state) {
            return false;
        }
        state.removed = true;
        self.info.total.fetch_sub(self.len, Ordering::SeqCst);
        self.recount(&mut state);
        true
    }

    /// Reverts `retire`.
    pub(super) fn reinstate(&self) {
        let mut state = self.state.lock();
        state.removed = false;
        self.info.total.fetch_add(self.len, Ordering::SeqCst);
        self.recount(&mut state);
    }

    fn superblock_bytes(&self) -> u64 {
        let lens = self.superblocks.iter().map(|range| range.end - range.start);
        lens.sum::<u64>().min(self.len)
    }

    /// Updates the sums of the group's type (SPACE-INFO-1), and the copies that are read without the lock.
    fn recount(&self, state: &mut GroupState) {
        self.recount_trims(state);
        let (mut free_bytes, mut max_extent_bytes, mut runs) = match &state.free {
            Free::NotLoaded(_) => {
                let taken = self.used().saturating_add(state.pinned);
                let taken = taken.saturating_add(self.superblock_bytes());
                let free_bytes = self.len.saturating_sub(taken);
                // As if all free space were one run, which is an upper bound for the longest.
                (free_bytes, free_bytes, 1)
            }
            Free::Loaded(free) => {
                // TRIM-3
                let free_bytes = free.free_bytes() + state.trim.out;
                (free_bytes, free.max_extent_bytes(), free.run_count())
            }
            Free::Unusable => (0, 0, 0),
        };
        let allocated = match &state.free {
            Free::Loaded(_) => {
                let not_allocated = free_bytes.saturating_add(state.pinned);
                self.len
                    .saturating_sub(not_allocated.saturating_add(self.superblock_bytes()))
            }
            Free::NotLoaded(_) | Free::Unusable => self.used(),
        };
        if self.nocow_writers.is_closed() || state.removed {
            (free_bytes, max_extent_bytes, runs) = (0, 0, 0);
        }
        let used = if state.removed { 0 } else { self.used() };
        replace(&self.info.free_bytes, state.counted_room, free_bytes);
        replace(&self.info.used, state.counted_used, used);
        (state.counted_room, state.counted_used) = (free_bytes, used);
        self.free_bytes.store(free_bytes, Ordering::Relaxed);
        self.max_extent_bytes
            .store(max_extent_bytes, Ordering::Relaxed);
        self.runs.store(runs, Ordering::Relaxed);
        self.allocated.store(allocated, Ordering::Relaxed);
    }
}

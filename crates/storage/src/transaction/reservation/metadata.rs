//! Metadata reservations for the commit in progress and for the running transaction, and the global reserve for
//! operations that free space.
//!
//! Invariants
//! - RESERVATION-1: a freeze takes nothing from the reserved space. The need of the frozen transaction is counted
//!   separately until it is published, minus the blocks that its commit has allocated.
//! - RESERVATION-2: a reservation counts as part of the running transaction. It is added before the limit is checked,
//!   and removed only after the edits themselves are counted.
//! - RESERVATION-3: the global reserve is reserved from the opening on, so that no data chunk takes it.
//! - RESERVATION-4: each thread adds its reservation before it sums up all of them, in one order for all threads
//!   (`SeqCst`). Of two concurrent threads, at least one sees both reservations.
//!
//! Locks: none. The caller that passes the counts of the running transaction holds the freeze guard, shared. So these
//! edits are not counted as frozen at the same time.
//! Not here: the space needed for a change (`worst_case`), allocation (`space`), waiting for space
//! (`reserve`), batches for small operations (`cache`).

use std::sync::Arc;

use super::cache::{ReservationCache, ReservationUnits};
use super::edit_tallies::EditTallies;
use super::estimate::{EditCounts, EditEstimate};
use super::worst_case::TreeSizes;
use crate::space::Space;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// Bounds of the global reserve that is kept free, in bytes. It always suffices for at least one operation that frees space.
const MIN_KEPT_RESERVE: u64 = 2 << 20;
const MAX_KEPT_RESERVE: u64 = 128 << 20;

/// The metadata reservations of a volume.
#[derive(Debug)]
pub(crate) struct MetadataReservations {
    space: Arc<Space>,
    nodesize: u64,
    /// Bytes of all tree blocks, and of the extent tree, as of the last commit.
    used: AtomicU64,
    extent_tree: AtomicU64,
    /// Whether any tree may share blocks with a snapshot.
    sharing: Arc<AtomicBool>,
    /// Reserved edits that are not made yet, for example for buffered data.
    reserved_items: AtomicU64,
    reserved_leaves: AtomicU64,
    reserved_bytes: AtomicU64,
    /// The part of these that no operation has taken yet.
    cache: ReservationCache,
    /// Bytes that the commit in progress may still allocate (RESERVATION-1), and its maximum growth of the trees.
    frozen_need: AtomicU64,
    frozen_growth_bytes: AtomicU64,
}

impl MetadataReservations {
    pub(crate) fn new(
        space: &Arc<Space>,
        nodesize: u64,
        extent_tree: u64,
        sharing: Arc<AtomicBool>,
    ) -> MetadataReservations {
        MetadataReservations {
            used: AtomicU64::new(space.metadata_used()),
            space: Arc::clone(space),
            nodesize,
            extent_tree: AtomicU64::new(extent_tree),
            sharing,
            reserved_items: AtomicU64::new(0),
            reserved_leaves: AtomicU64::new(0),
            reserved_bytes: AtomicU64::new(0),
            cache: ReservationCache::default(),
            frozen_need: AtomicU64::new(0),
            frozen_growth_bytes: AtomicU64::new(0),
        }
    }

    /// Counts a reservation until `release`, after the edits are made or abandoned.
    pub(in crate::transaction) fn reserve(&self, cost: EditCounts) {
        // RESERVATION-4
        self.reserved_items.fetch_add(cost.items, Ordering::SeqCst);
        self.reserved_leaves
            .fetch_add(cost.leaves, Ordering::SeqCst);
        self.reserved_bytes.fetch_add(cost.bytes, Ordering::SeqCst);
    }

    pub(in crate::transaction) fn release(&self, cost: EditCounts) {
        // RESERVATION-2. Release ordering: a thread that sees the lower reservation also sees the edits that replaced
        // it.
        self.reserved_items.fetch_sub(cost.items, Ordering::Release);
        self.reserved_leaves
            .fetch_sub(cost.leaves, Ordering::Release);
        self.reserved_bytes.fetch_sub(cost.bytes, Ordering::Release);
    }

    fn reserved(&self) -> EditCounts {
        EditCounts {
            items: self.reserved_items.load(Ordering::SeqCst),
            leaves: self.reserved_leaves.load(Ordering::SeqCst),
            bytes: self.reserved_bytes.load(Ordering::SeqCst),
        }
    }

    /// Takes units for a small operation from its thread's cache. They stay reserved until they are consumed.
    pub(in crate::transaction) fn take_cached(&self, units: ReservationUnits) -> bool {
        self.cache.take(units)
    }

    pub(in crate::transaction) fn consume_cached(&self, units: ReservationUnits) {
        self.cache.consume(units);
    }

    /// Reduces `units` to the number that the operation's edits needed. The next operation may use the rest.
    #[inline]
    pub(in crate::transaction) fn release_unused(
        &self,
        units: &mut ReservationUnits,
        used: EditCounts,
    ) {
        let unused = units.split_unused(used);
        if !unused.is_none() {
            self.cache.release(unused);
        }
    }

    /// Reserves a batch and takes `units` of it, if there is space for many more (RESERVATION-CACHE-2).
    pub(in crate::transaction) fn take_batch(
        &self,
        running: &EditTallies,
        lazy: EditCounts,
        units: ReservationUnits,
    ) -> bool {
        let batch = ReservationUnits::BATCH.cost();
        let with_kept = |more: EditCounts| {
            let need = self.need(running, lazy.and(more));
            need.saturating_add(self.global_reserve(need))
        };
        // Batches need ample space: otherwise unused units in the caches would make other operations fail. So the whole
        // need, including the global reserve, must fit twice.
        if !self.space.fits_metadata(with_kept(batch).saturating_mul(2)) {
            return false;
        }
        // RESERVATION-CACHE-1: the whole batch is reserved before a unit of it is taken.
        self.reserve(batch);
        if !self
            .space
            .reserve_metadata(with_kept(EditCounts::default()))
        {
            self.release(batch);
            return false;
        }
        self.release(self.cache.refill(units).cost());
        true
    }

    /// Releases the unused units in the cache. Returns false if there are none.
    pub(in crate::transaction) fn drain_cache(&self) -> bool {
        let units = self.cache.drain();
        self.release(units.cost());
        !units.is_none()
    }

    pub(in crate::transaction) fn has_reserved(&self) -> bool {
        self.drain_cache();
        self.reserved_items.load(Ordering::Relaxed) > 0
    }

    /// Reserves the worst-case need for all edits so far, for all reservations and for `lazy`. Returns false if there
    /// is not enough space. An operation that frees space `may_use_global_reserve`.
    pub(in crate::transaction) fn reserve_space(
        &self,
        running: &EditTallies,
        lazy: EditCounts,
        may_use_global_reserve: bool,
    ) -> bool {
        let need = self.need(running, lazy);
        let with_kept = need.saturating_add(self.global_reserve(need));
        // The second attempt only needs `need` bytes to be available, and still keeps the global reserve from data
        // chunks.
        self.space.reserve_metadata(with_kept)
            || may_use_global_reserve && self.space.reserve_metadata_keeping(need, with_kept)
    }

    /// Releases the excess over a reduced need. No other thread may reserve concurrently.
    pub(in crate::transaction) fn shrink_to(&self, running: &EditTallies, lazy: EditCounts) {
        self.drain_cache();
        let need = self.need(running, lazy);
        let with_kept = need.saturating_add(self.global_reserve(need));
        self.space.shrink_metadata_reservation(with_kept);
    }

    /// Reserves the global reserve (RESERVATION-3), even if there is not enough space for it.
    pub(in crate::transaction) fn keep_global_reserve(&self) {
        let need = self.need_of(EditCounts::default(), self.reserved());
        let with_kept = need.saturating_add(self.global_reserve(need));
        self.space.reserve_metadata_keeping(0, with_kept);
    }

    /// Returns the worst-case need in bytes for all edits so far, for all reservations and for `more`.
    fn need(&self, running: &EditTallies, more: EditCounts) -> u64 {
        // RESERVATION-2. Edits that replace a reservation concurrently count twice. In the other order, they might not
        // count.
        let reserved = self.reserved().and(more);
        self.need_of(running.counts(), reserved)
    }

    fn need_of(&self, running: EditCounts, reserved: EditCounts) -> u64 {
        let counts = running.and(self.counts_of(reserved));
        let frozen = self.frozen_need.load(Ordering::SeqCst);
        frozen.saturating_add(self.sizes().worst_case_bytes(counts))
    }

    /// Returns the size of the global reserve after commits have allocated `need`.
    fn global_reserve(&self, need: u64) -> u64 {
        let mut sizes = self.sizes();
        // The operation may be the last one, after the extent tree has grown by the need of all others.
        sizes.extent_tree = sizes.extent_tree.saturating_add(need);
        let one = sizes.worst_case_bytes(self.counts_of(EditEstimate::of_freeing().counts));
        one.max((sizes.all / 4).clamp(MIN_KEPT_RESERVE, MAX_KEPT_RESERVE))
    }

    fn counts_of(&self, cost: EditCounts) -> EditCounts {
        cost.with_sharing(self.sharing.load(Ordering::Relaxed))
    }

    /// Returns upper bounds for the sizes of the trees after the commit in progress.
    fn sizes(&self) -> TreeSizes {
        let growth = self.frozen_growth_bytes.load(Ordering::Relaxed);
        let grown = |size: &AtomicU64| size.load(Ordering::Relaxed).saturating_add(growth);
        TreeSizes {
            nodesize: self.nodesize,
            all: grown(&self.used),
            extent_tree: grown(&self.extent_tree),
        }
    }
}

/// Functions for commits.
impl MetadataReservations {
    /// Moves the need of the running transaction to the commit in progress. No operation may join concurrently.
    pub(in crate::transaction) fn freeze(&self, counts: EditCounts) {
        let sizes = self.sizes();
        let (need, growth) = (sizes.worst_case_bytes(counts), sizes.growth_bytes(counts));
        self.frozen_need.store(need, Ordering::Relaxed);
        self.frozen_growth_bytes.store(growth, Ordering::Relaxed);
    }

    /// Subtracts a block that the commit in progress has allocated.
    pub(in crate::transaction) fn charge_block(&self) {
        let take = |need: u64| Some(need.saturating_sub(self.nodesize));
        let _ = self
            .frozen_need
            .try_update(Ordering::Relaxed, Ordering::Relaxed, take);
    }

    /// Reserves space for the cleaner in the commit in progress, in addition to the commit's `counts`. Returns the
    /// number of references that it may drop: at most `most`, at least as many as a leaf has. Returns None if there is no
    /// space.
    pub(in crate::transaction) fn reserve_for_cleaner(
        &self,
        counts: EditCounts,
        running: &EditTallies,
        most: u64,
    ) -> Option<u64> {
        self.drain_cache();
        let sizes = self.sizes();
        let before = sizes.worst_case_bytes(counts);
        let least = sizes.extents_of_leaf();
        // First leave room for another operation that frees space. Without room for both, the cleaner has priority.
        for beside in [EditEstimate::of_freeing().counts, EditCounts::default()] {
            let mut refs = most.max(least);
            loop {
                let more = sizes.worst_case_bytes(counts.and(EditCounts::items(refs))) - before;
                let need = self.need(running, beside).saturating_add(more);
                if self.space.reserve_metadata(need) {
                    // A thread that computed its need before this line did not include `more`, so check again with
                    // `more` counted.
                    self.frozen_need.fetch_add(more, Ordering::SeqCst);
                    if self.space.reserve_metadata(self.need(running, beside)) {
                        return Some(refs);
                    }
                    self.frozen_need.fetch_sub(more, Ordering::Relaxed);
                }
                if refs == least {
                    break;
                }
                // Shrink by a quarter until it fits, but not below one leaf.
                refs = (refs * 3 / 4).max(least);
            }
        }
        None
    }

    /// Reserves `more` for the commit in progress, in addition to its `counts`. Leaves room for the `running`
    /// transaction and an operation that frees space. Returns false without any change if it does not fit.
    pub(in crate::transaction) fn extend_commit_reservation(
        &self,
        counts: EditCounts,
        more: EditCounts,
        running: &EditTallies,
    ) -> bool {
        self.drain_cache();
        let sizes = self.sizes();
        let need = sizes.worst_case_bytes(counts.and(more)) - sizes.worst_case_bytes(counts);
        let growth = sizes.growth_bytes(more);
        // RESERVATION-4
        self.frozen_need.fetch_add(need, Ordering::SeqCst);
        self.frozen_growth_bytes
            .fetch_add(growth, Ordering::Relaxed);
        let reserved = self
            .space
            .reserve_metadata(self.need(running, EditEstimate::of_freeing().counts));
        if !reserved {
            self.frozen_need.fetch_sub(need, Ordering::Relaxed);
            self.frozen_growth_bytes
                .fetch_sub(growth, Ordering::Relaxed);
        }
        reserved
    }

    /// Returns whether a commit with a reservation is in progress.
    pub(in crate::transaction) fn is_committing(&self) -> bool {
        self.frozen_need.load(Ordering::Relaxed) > 0
    }

    /// Returns the maximum number of extents that a leaf can reference.
    pub(in crate::transaction) fn extents_of_leaf(&self) -> u64 {
        self.sizes().extents_of_leaf()
    }

    /// Ends the reservation of the commit in progress after it is durable.
    pub(in crate::transaction) fn publish(&self, extent_tree: Option<u64>) {
        self.used
            .store(self.space.metadata_used(), Ordering::Relaxed);
        if let Some(bytes) = extent_tree {
            self.extent_tree.store(bytes, Ordering::Relaxed);
        }
        self.frozen_need.store(0, Ordering::Release);
        self.frozen_growth_bytes.store(0, Ordering::Relaxed);
    }
}

//! What commits are promised of space: the one under way, that of the running transaction, and what operations need that
//! free space.
//!
//! Invariants
//! - BALANCE-1: a freeze takes nothing from what is promised: what the frozen transaction needs is counted apart from
//!   then until it is published, less what its commit has allocated.
//! - BALANCE-2: what is owed (buffered data, operations on their way in) counts as if it were in the running
//!   transaction. It is owed before it is judged, and until it counts there.
//! - BALANCE-3: what is kept back for operations that free space is promised from the opening on, so that no chunk of
//!   data takes it.
//!
//! Locks: none. The freeze guard is held, shared, by who hands over the running transaction's load, so that it does not
//! count as frozen as well.
//! Not here: how much a change needs (`need`), where space comes from (`space`), who waits for it (`writer`),
//! what is owed for operations to come (`allowances`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::allowances::{Allowances, Units};
use super::cost::Cost;
use super::need::{Load, TreeSizes};
use super::running::Running;
use crate::space::Space;

/// What is kept back for operations that free space, in bytes: at least enough for one of them.
const LEAST_RESERVE: u64 = 2 << 20;
const MOST_RESERVE: u64 = 128 << 20;

#[derive(Debug)]
pub(crate) struct Balance {
    space: Arc<Space>,
    nodesize: u64,
    /// Bytes of tree blocks as of the last commit, and those of the extent tree.
    used: AtomicU64,
    extent_tree: AtomicU64,
    /// Some tree may share blocks with a snapshot.
    sharing: Arc<AtomicBool>,
    /// Edits that were admitted and come later, as those of buffered data.
    owed_items: AtomicU64,
    owed_leaves: AtomicU64,
    owed_bytes: AtomicU64,
    /// What of it is there for operations to come.
    allowances: Allowances,
    /// What the commit under way may still allocate (BALANCE-1), and by how much it may make the trees larger.
    frozen_need: AtomicU64,
    frozen_growth: AtomicU64,
}

impl Balance {
    pub(crate) fn new(
        space: &Arc<Space>,
        nodesize: u64,
        extent_tree: u64,
        sharing: Arc<AtomicBool>,
    ) -> Balance {
        Balance {
            used: AtomicU64::new(space.metadata_used()),
            space: Arc::clone(space),
            nodesize,
            extent_tree: AtomicU64::new(extent_tree),
            sharing,
            owed_items: AtomicU64::new(0),
            owed_leaves: AtomicU64::new(0),
            owed_bytes: AtomicU64::new(0),
            allowances: Allowances::default(),
            frozen_need: AtomicU64::new(0),
            frozen_growth: AtomicU64::new(0),
        }
    }

    /// Counts edits that come later, until they are settled: made, or given up.
    pub(super) fn owe(&self, cost: Cost) {
        self.owed_items.fetch_add(cost.items, Ordering::Relaxed);
        self.owed_leaves.fetch_add(cost.leaves, Ordering::Relaxed);
        self.owed_bytes.fetch_add(cost.bytes, Ordering::Relaxed);
    }

    pub(super) fn settle(&self, cost: Cost) {
        // Who sees that it is not owed any more sees what it became.
        self.owed_items.fetch_sub(cost.items, Ordering::Release);
        self.owed_leaves.fetch_sub(cost.leaves, Ordering::Release);
        self.owed_bytes.fetch_sub(cost.bytes, Ordering::Release);
    }

    fn owed(&self) -> Cost {
        Cost {
            items: self.owed_items.load(Ordering::Acquire),
            leaves: self.owed_leaves.load(Ordering::Acquire),
            bytes: self.owed_bytes.load(Ordering::Acquire),
            frees: false,
        }
    }

    /// Leave for a small operation, of room that is promised already. It is owed until it is spent.
    pub(super) fn take_allowed(&self, units: Units) -> bool {
        self.allowances.take(units)
    }

    pub(super) fn spend_allowed(&self, units: Units) {
        self.allowances.spend(units);
    }

    /// The same, and promises a batch of it if there is room for many (ALLOWANCE-2).
    pub(super) fn take_batch(&self, running: &Running, lazy: Cost, units: Units) -> bool {
        let batch = Units::BATCH.cost();
        let with_kept = |more: Cost| {
            let need = self.need_of(running.load(), self.owed().and(lazy).and(more));
            need.saturating_add(self.kept_after(need))
        };
        if !self
            .space
            .can_promise_metadata(with_kept(batch).saturating_mul(2))
        {
            return false;
        }
        self.owe(batch);
        if !self.space.promise_metadata(with_kept(Cost::default())) {
            self.settle(batch);
            return false;
        }
        self.settle(self.allowances.refill(units).cost());
        true
    }

    /// Takes back what is allowed and not taken. False if nothing is.
    pub(super) fn reclaim(&self) -> bool {
        let units = self.allowances.reclaim();
        self.settle(units.cost());
        !units.is_none()
    }

    pub(super) fn is_owing(&self) -> bool {
        self.reclaim();
        self.owed_items.load(Ordering::Relaxed) > 0
    }

    /// Promises what commits of all edits so far, of what is owed and of `lazy` need at worst. False if that much is not
    /// there. Who `frees` space may use what is kept back for that.
    pub(super) fn promise(&self, running: &Running, lazy: Cost, frees: bool) -> bool {
        let owed = self.owed();
        let need = self.need_of(running.load(), owed.and(lazy));
        let with_kept = need.saturating_add(self.kept_after(need));
        self.space.promise_metadata(with_kept)
            || frees && self.space.promise_metadata_of(need, with_kept)
    }

    /// Takes back what is promised beyond that, now that less is needed. Nobody else promises meanwhile.
    pub(super) fn renew(&self, running: Load, lazy: Cost) {
        self.reclaim();
        let need = self.need(running, lazy);
        let with_kept = need.saturating_add(self.kept_after(need));
        self.space.lower_metadata_promise(with_kept);
    }

    /// BALANCE-3, whether there is as much or not.
    pub(super) fn keep(&self) {
        let need = self.need(Load::default(), Cost::default());
        let with_kept = need.saturating_add(self.kept_after(need));
        self.space.promise_metadata_of(0, with_kept);
    }

    fn need(&self, running: Load, cost: Cost) -> u64 {
        self.need_of(running, self.owed().and(cost))
    }

    fn need_of(&self, running: Load, owed: Cost) -> u64 {
        let load = running.and(self.load_of(owed));
        let frozen = self.frozen_need.load(Ordering::Relaxed);
        frozen.saturating_add(self.sizes().need(load))
    }

    /// What is kept back for later, when commits may have taken so much.
    fn kept_after(&self, need: u64) -> u64 {
        let mut sizes = self.sizes();
        sizes.extent_tree = sizes.extent_tree.saturating_add(need);
        let one = sizes.need(self.load_of(Cost::of_freeing()));
        one.max((sizes.all / 4).clamp(LEAST_RESERVE, MOST_RESERVE))
    }

    fn load_of(&self, cost: Cost) -> Load {
        Load::of(cost, self.sharing.load(Ordering::Relaxed))
    }

    /// As they may be once the commit under way is done.
    fn sizes(&self) -> TreeSizes {
        let growth = self.frozen_growth.load(Ordering::Relaxed);
        let grown = |size: &AtomicU64| size.load(Ordering::Relaxed).saturating_add(growth);
        TreeSizes {
            nodesize: self.nodesize,
            all: grown(&self.used),
            extent_tree: grown(&self.extent_tree),
        }
    }
}

/// What a commit does.
impl Balance {
    /// The transaction that changes so much is frozen. Nobody enters meanwhile.
    pub(super) fn freeze(&self, load: Load) {
        let sizes = self.sizes();
        let (need, growth) = (sizes.need(load), sizes.growth(load));
        self.frozen_need.store(need, Ordering::Relaxed);
        self.frozen_growth.store(growth, Ordering::Relaxed);
    }

    /// The commit under way has allocated a block.
    pub(super) fn took_block(&self) {
        let take = |need: u64| Some(need.saturating_sub(self.nodesize));
        let _ = self
            .frozen_need
            .try_update(Ordering::Relaxed, Ordering::Relaxed, take);
    }

    /// Promises the commit under way, which changes `load` as it is, what dropping references takes as well: up to `most`
    /// of them, if there is room for that beside the `running` transaction. Returns how many, at least a leaf's; None if
    /// there is no room even for that.
    pub(super) fn promise_dropping(&self, load: Load, running: Load, most: u64) -> Option<u64> {
        self.reclaim();
        let sizes = self.sizes();
        let before = sizes.need(load);
        let least = sizes.extents_of_leaf();
        // Others go on freeing space, unless that leaves no room for this.
        for beside in [Cost::of_freeing(), Cost::default()] {
            let mut refs = most.max(least);
            loop {
                let more = sizes.need(load.and(Load::edits(refs))) - before;
                let need = self.need(running, beside).saturating_add(more);
                if self.space.promise_metadata(need) {
                    // Others that judged meanwhile did not see it yet.
                    self.frozen_need.fetch_add(more, Ordering::Relaxed);
                    if self.space.promise_metadata(self.need(running, beside)) {
                        return Some(refs);
                    }
                    self.frozen_need.fetch_sub(more, Ordering::Relaxed);
                }
                if refs == least {
                    break;
                }
                refs = (refs * 3 / 4).max(least);
            }
        }
        None
    }

    /// Promises the commit under way, which changes `load`, that it may change `more` as well. False, and the promise is
    /// as before, if there is no room for that beside the `running` transaction and what frees space.
    pub(super) fn promise_more(&self, load: Load, more: Load, running: Load) -> bool {
        self.reclaim();
        let sizes = self.sizes();
        let need = sizes.need(load.and(more)) - sizes.need(load);
        let growth = sizes.growth(more);
        self.frozen_need.fetch_add(need, Ordering::Relaxed);
        self.frozen_growth.fetch_add(growth, Ordering::Relaxed);
        let promised = self
            .space
            .promise_metadata(self.need(running, Cost::of_freeing()));
        if !promised {
            self.frozen_need.fetch_sub(need, Ordering::Relaxed);
            self.frozen_growth.fetch_sub(growth, Ordering::Relaxed);
        }
        promised
    }

    /// Whether a commit is under way that something is kept for.
    pub(super) fn is_committing(&self) -> bool {
        self.frozen_need.load(Ordering::Relaxed) > 0
    }

    /// The most extents that a leaf can name.
    pub(super) fn extents_of_leaf(&self) -> u64 {
        self.sizes().extents_of_leaf()
    }

    /// The commit under way is durable.
    pub(super) fn publish(&self, extent_tree: Option<u64>) {
        self.used
            .store(self.space.metadata_used(), Ordering::Relaxed);
        if let Some(bytes) = extent_tree {
            self.extent_tree.store(bytes, Ordering::Relaxed);
        }
        self.frozen_need.store(0, Ordering::Relaxed);
        self.frozen_growth.store(0, Ordering::Relaxed);
    }
}

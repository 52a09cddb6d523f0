//! Room for small operations that is owed in batches, one for each stripe of threads, so that letting one in and out
//! changes nothing that others change as well.
//!
//! Invariants
//! - ALLOWANCE-1: a batch is owed as a whole, and promised, before anybody takes of it. What of it was taken is owed until
//!   who took it has left; how much that is, is told with the next batch or with `reclaim`.
//! - ALLOWANCE-2: batches are there only where there is room for many more. Who finds none takes them back (`reclaim`).
//!
//! Locks: none.
//! Not here: whether there is room (`balance`).

use std::sync::atomic::{AtomicU64, Ordering};

use super::cost::Cost;
use super::stripes::Striped;

/// What one unit is good for.
const UNIT: Cost = Cost {
    items: 8,
    bytes: 1024,
    leaves: 8,
    frees: false,
};
const BATCH_UNITS: u64 = 16;
/// An operation that takes more than this asks for itself.
const MOST_UNITS: u64 = BATCH_UNITS / 2;

#[derive(Debug, Default)]
pub(super) struct Allowances {
    stripes: Striped<Allowance>,
}

/// In units.
#[derive(Debug, Default)]
struct Allowance {
    left: AtomicU64,
    /// Those whose operations have left.
    spent: AtomicU64,
}

/// So many units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units(u64);

impl Units {
    pub(super) const BATCH: Units = Units(BATCH_UNITS);

    /// Those that serve for `cost`; None if it is nothing, or much.
    pub(super) fn of(cost: Cost) -> Option<Units> {
        let items = cost.items.max(cost.leaves).div_ceil(UNIT.items);
        let units = items.max(cost.bytes.div_ceil(UNIT.bytes));
        (1..=MOST_UNITS).contains(&units).then_some(Units(units))
    }

    pub(super) fn cost(self) -> Cost {
        Cost {
            items: UNIT.items * self.0,
            bytes: UNIT.bytes * self.0,
            leaves: UNIT.leaves * self.0,
            frees: false,
        }
    }

    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl Allowances {
    /// False if not so many are left for this thread.
    pub(super) fn take(&self, units: Units) -> bool {
        let left = &self.stripes.mine().left;
        let take = |left: u64| left.checked_sub(units.0);
        left.try_update(Ordering::Acquire, Ordering::Relaxed, take)
            .is_ok()
    }

    /// Who took them has left.
    pub(super) fn spend(&self, units: Units) {
        // Who sees that they are spent sees what they became.
        let spent = &self.stripes.mine().spent;
        spent.fetch_add(units.0, Ordering::Release);
    }

    /// A batch that is owed is there for this thread, which has taken `taken` of it. Returns what was spent of those
    /// before, which is the caller's to settle.
    pub(super) fn refill(&self, taken: Units) -> Units {
        let mine = self.stripes.mine();
        let rest = BATCH_UNITS - taken.0;
        mine.left.fetch_add(rest, Ordering::Release);
        Units(mine.spent.swap(0, Ordering::Acquire))
    }

    /// Takes back what nobody has taken, and what was spent: for the caller to settle.
    pub(super) fn reclaim(&self) -> Units {
        let all = self.stripes.iter().map(|allowance| {
            let left = allowance.left.swap(0, Ordering::Acquire);
            left + allowance.spent.swap(0, Ordering::Acquire)
        });
        Units(all.sum())
    }
}

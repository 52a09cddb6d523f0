//! A cache of metadata reservations for small operations, in stripes of threads. An operation served by the cache
//! changes no counter that threads of other stripes change.
//!
//! Invariants
//! - RESERVATION-CACHE-1: a batch is reserved as a whole before an operation takes from it. Taken units stay reserved
//!   until their operation has left. Units that its edits needed are then released with the next batch or by `drain`.
//!   The rest is available to the next operation.
//! - RESERVATION-CACHE-2: batches exist only while there is space for many more. An operation that finds no space
//!   drains them.
//!
//! Locks: none.
//! Not here: whether there is space (`reservation`).

use super::estimate::EditCounts;
use crate::sync::{AtomicU64, Ordering};
use crate::transaction::stripes::Striped;

/// The edits that one unit covers.
const UNIT: EditCounts = EditCounts {
    items: 8,
    leaves: 8,
    bytes: 1024,
};
const BATCH_UNITS: u64 = 16;
/// The maximum for one operation. Larger operations make their own reservation.
const MOST_UNITS: u64 = BATCH_UNITS / 2;

#[derive(Debug, Default)]
pub(in crate::transaction) struct ReservationCache {
    stripes: Striped<CachedUnits>,
}

/// The units of one stripe.
#[derive(Debug, Default)]
struct CachedUnits {
    left: AtomicU64,
    /// Units whose operations have left.
    consumed: AtomicU64,
}

/// A number of units.
#[derive(Clone, Copy, Debug)]
pub(in crate::transaction) struct ReservationUnits(u64);

impl ReservationUnits {
    pub(in crate::transaction) const BATCH: ReservationUnits = ReservationUnits(BATCH_UNITS);

    /// Returns the units that cover `cost`. Returns None if `cost` is empty or too large for the cache.
    pub(in crate::transaction) fn of(cost: EditCounts) -> Option<ReservationUnits> {
        let items = cost.items.max(cost.leaves).div_ceil(UNIT.items);
        let units = items.max(cost.bytes.div_ceil(UNIT.bytes));
        (1..=MOST_UNITS)
            .contains(&units)
            .then_some(ReservationUnits(units))
    }

    /// Splits off the units that `used` does not need.
    #[inline]
    pub(in crate::transaction) fn split_unused(&mut self, used: EditCounts) -> ReservationUnits {
        let items = used.items.max(used.leaves).div_ceil(UNIT.items);
        let needed = items.max(used.bytes.div_ceil(UNIT.bytes)).min(self.0);
        let unused = ReservationUnits(self.0 - needed);
        self.0 = needed;
        unused
    }

    pub(in crate::transaction) fn cost(self) -> EditCounts {
        EditCounts {
            items: UNIT.items * self.0,
            bytes: UNIT.bytes * self.0,
            leaves: UNIT.leaves * self.0,
        }
    }

    pub(in crate::transaction) fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl ReservationCache {
    /// Takes units of this thread's stripe. Returns false if there are too few.
    pub(in crate::transaction) fn take(&self, units: ReservationUnits) -> bool {
        let left = &self.stripes.mine().left;
        let take = |left: u64| left.checked_sub(units.0);
        left.try_update(Ordering::Acquire, Ordering::Relaxed, take)
            .is_ok()
    }

    /// Notes that the operation that took `units` has left.
    pub(in crate::transaction) fn consume(&self, units: ReservationUnits) {
        // Release: a thread that sees them consumed also sees the edits.
        let consumed = &self.stripes.mine().consumed;
        consumed.fetch_add(units.0, Ordering::Release);
    }

    /// Returns unused units of an operation to its thread's stripe.
    #[inline]
    pub(in crate::transaction) fn release(&self, units: ReservationUnits) {
        let left = &self.stripes.mine().left;
        // Release: a thread that takes them also sees the edits that needed the other units.
        left.fetch_add(units.0, Ordering::Release);
    }

    /// Adds a reserved batch to this thread's stripe, except for the units `taken` by its operation. Returns the
    /// consumed units of earlier batches, which the caller must release.
    pub(in crate::transaction) fn refill(&self, taken: ReservationUnits) -> ReservationUnits {
        let mine = self.stripes.mine();
        let rest = BATCH_UNITS - taken.0;
        mine.left.fetch_add(rest, Ordering::Release);
        ReservationUnits(mine.consumed.swap(0, Ordering::Acquire))
    }

    /// Takes all unused and consumed units. The caller must release them.
    pub(in crate::transaction) fn drain(&self) -> ReservationUnits {
        let all = self.stripes.iter().map(|cached| {
            let left = cached.left.swap(0, Ordering::Acquire);
            left + cached.consumed.swap(0, Ordering::Acquire)
        });
        ReservationUnits(all.sum())
    }
}

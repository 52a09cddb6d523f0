//! A cache of metadata reservations for small operations, with one part for each stripe of threads. An operation that
//! takes from it changes no counter that threads of other stripes change.
//!
//! Invariants
//! - RESERVATION-CACHE-1: a batch is reserved as a whole before an operation takes of it. Units that were taken stay reserved
//!   until their operation has left. Those that its edits needed are then released with the next batch or by `drain`. The
//!   others are left to the next operation.
//! - RESERVATION-CACHE-2: batches exist only where there is space for many more. An operation that finds no space drains them.
//!
//! Locks: none.
//! Not here: whether there is space (`reservation`).

use super::estimate::EditEstimate;
use super::stripes::Striped;
use crate::sync::{AtomicU64, Ordering};

/// The edits that one unit stands for.
const UNIT: EditEstimate = EditEstimate {
    items: 8,
    bytes: 1024,
    leaves: 8,
    frees: false,
};
const BATCH_UNITS: u64 = 16;
/// An operation that needs more than this reserves for itself.
const MOST_UNITS: u64 = BATCH_UNITS / 2;

#[derive(Debug, Default)]
pub(super) struct ReservationCache {
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
pub(super) struct ReservationUnits(u64);

impl ReservationUnits {
    pub(super) const BATCH: ReservationUnits = ReservationUnits(BATCH_UNITS);

    /// Returns the units that cover `cost`, or None if it is nothing, or much.
    pub(super) fn of(cost: EditEstimate) -> Option<ReservationUnits> {
        let items = cost.items.max(cost.leaves).div_ceil(UNIT.items);
        let units = items.max(cost.bytes.div_ceil(UNIT.bytes));
        (1..=MOST_UNITS)
            .contains(&units)
            .then_some(ReservationUnits(units))
    }

    /// Splits off the units that `used` does not need.
    #[inline]
    pub(super) fn split_unused(&mut self, used: EditEstimate) -> ReservationUnits {
        let items = used.items.max(used.leaves).div_ceil(UNIT.items);
        let needed = items.max(used.bytes.div_ceil(UNIT.bytes)).min(self.0);
        let unused = ReservationUnits(self.0 - needed);
        self.0 = needed;
        unused
    }

    pub(super) fn cost(self) -> EditEstimate {
        EditEstimate {
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

impl ReservationCache {
    /// Takes units of this thread's stripe. False if not as many are left.
    pub(super) fn take(&self, units: ReservationUnits) -> bool {
        let left = &self.stripes.mine().left;
        let take = |left: u64| left.checked_sub(units.0);
        left.try_update(Ordering::Acquire, Ordering::Relaxed, take)
            .is_ok()
    }

    /// Notes that the operation which took `units` has left.
    pub(super) fn consume(&self, units: ReservationUnits) {
        // Release ordering: a thread that sees them consumed also sees the edits.
        let consumed = &self.stripes.mine().consumed;
        consumed.fetch_add(units.0, Ordering::Release);
    }

    /// Leaves units that an operation has taken and did not need to the next one of this thread.
    #[inline]
    pub(super) fn give_back(&self, units: ReservationUnits) {
        let left = &self.stripes.mine().left;
        // Release ordering: a thread that takes them also sees the edits that needed the others.
        left.fetch_add(units.0, Ordering::Release);
    }

    /// Adds a reserved batch for this thread, which has taken `taken` of it. Returns the units consumed of earlier batches,
    /// which the caller releases.
    pub(super) fn refill(&self, taken: ReservationUnits) -> ReservationUnits {
        let mine = self.stripes.mine();
        let rest = BATCH_UNITS - taken.0;
        mine.left.fetch_add(rest, Ordering::Release);
        ReservationUnits(mine.consumed.swap(0, Ordering::Acquire))
    }

    /// Takes all units that are left or consumed. The caller releases them.
    pub(super) fn drain(&self) -> ReservationUnits {
        let all = self.stripes.iter().map(|cached| {
            let left = cached.left.swap(0, Ordering::Acquire);
            left + cached.consumed.swap(0, Ordering::Acquire)
        });
        ReservationUnits(all.sum())
    }
}

//! Units of the reservation cache. A separate file, because `tests/models` compiles the cache for its own tests.

use crate::transaction::EditCounts;
use crate::transaction::reservation::{ReservationCache, ReservationUnits};

const ITEMS_OF_UNIT: u64 = 8;
const BATCH_UNITS: u64 = 16;

fn units(count: u64) -> ReservationUnits {
    ReservationUnits::of(EditCounts::items(count * ITEMS_OF_UNIT)).unwrap()
}

fn count(units: ReservationUnits) -> u64 {
    units.cost().items / ITEMS_OF_UNIT
}

/// RESERVATION-CACHE-1
#[test]
fn units_that_no_edit_needed_serve_the_next_operation() {
    let cache = ReservationCache::default();
    let mut taken = units(5);
    assert!(cache.refill(taken).is_none());
    let unused = taken.split_unused(EditCounts::items(9));
    assert_eq!((count(taken), count(unused)), (2, 3));
    cache.release(unused);
    cache.consume(taken);
    // An operation takes half a batch at most.
    assert!(cache.take(units(BATCH_UNITS / 2)));
    assert!(cache.take(units(BATCH_UNITS / 2 - 2)));
    assert!(!cache.take(units(1)));
    assert_eq!(count(cache.drain()), 2);
}

#[test]
fn edits_beyond_what_was_taken_leave_nothing_unused() {
    let mut taken = units(2);
    let unused = taken.split_unused(EditCounts {
        bytes: 1 << 20,
        ..EditCounts::items(1)
    });
    assert!(unused.is_none());
    assert_eq!(count(taken), 2);
}

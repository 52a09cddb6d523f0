//! RESERVATION-2, RESERVATION-4 and RESERVATION-CACHE-1.

use std::sync::Arc;

use loom::thread;

use super::reservation::{
    EditCounts, EditEstimate, EditTallies, MetadataReservations, ReservationUnits,
};
use super::stripes;
use crate::check;
use crate::space::Space;
use crate::sync::AtomicBool;

const NODESIZE: u64 = 16384;
/// More than any model needs, so that only the edits matter.
const TREES: u64 = 64 << 30;
const FREE: u64 = 128 << 30;
/// A commit with a larger reservation does not keep the global reserve, whose maximum this is. Edits of `MANY` items
/// need much more.
const GLOBAL_RESERVE: u64 = 128 << 20;
const MANY: u64 = 50_000;
const NOTHING: EditCounts = EditCounts {
    items: 0,
    leaves: 0,
    bytes: 0,
};

/// Returns the estimate of an operation that edits `items` items.
fn cost_of(items: u64) -> EditCounts {
    EditEstimate::items(items).counts
}

/// A volume with an operation about to change it.
struct Volume {
    space: Arc<Space>,
    reservations: MetadataReservations,
    running: EditTallies,
}

impl Volume {
    fn new() -> Arc<Volume> {
        let space = Space::new(TREES, FREE);
        let sharing = Arc::new(AtomicBool::new(false));
        let reservations = MetadataReservations::new(&space, NODESIZE, TREES, sharing);
        Arc::new(Volume {
            space,
            reservations,
            running: EditTallies::default(),
        })
    }

    /// Reserves for an operation.
    fn reserve(&self, cost: EditCounts) {
        self.reservations.reserve(cost);
        let nothing = EditCounts::default();
        assert!(
            self.reservations
                .reserve_space(&self.running, nothing, false)
        );
    }

    /// Edits `items` items.
    fn edit(&self, items: u64) {
        let cost = cost_of(items);
        self.running.grew(cost.bytes as i64, cost.items);
    }

    /// Asserts that at least `need` bytes are reserved for commits.
    fn has_reserved(&self, need: u64) {
        let reserved = self.space.reserved();
        assert!(reserved >= need, "{reserved} bytes for {need}");
    }

    /// Returns the bytes that commits may need for edits of `items` items, and for `frozen`.
    fn need(items: u64, frozen: Option<EditCounts>) -> u64 {
        let volume = Volume::new();
        if let Some(counts) = frozen {
            volume.reservations.freeze(counts);
        }
        volume.reserve(cost_of(items));
        volume.space.reserved()
    }
}

fn spawn(
    volume: &Arc<Volume>,
    work: impl FnOnce(&Volume) + Send + 'static,
) -> thread::JoinHandle<()> {
    let volume = Arc::clone(volume);
    thread::spawn(move || {
        stripes::use_another();
        work(&volume);
    })
}

#[test]
fn edits_count_before_their_reservation_is_released() {
    check(4, || {
        let volume = Volume::new();
        let cost = cost_of(8);
        volume.reserve(cost);
        let operation = spawn(&volume, move |volume| {
            volume.edit(8);
            volume.reservations.release(cost);
        });
        volume.reserve(cost_of(1));
        volume.has_reserved(Volume::need(9, None));
        operation.join().unwrap();
    });
}

#[test]
fn cached_units_count_until_the_edits_do() {
    check(4, || {
        let volume = Volume::new();
        let units = ReservationUnits::of(cost_of(8)).unwrap();
        let nothing = EditCounts::default();
        assert!(
            volume
                .reservations
                .take_batch(&volume.running, nothing, units)
        );
        // The batch is larger than all later reservations.
        volume.space.shrink_metadata_reservation(0);
        let operation = spawn(&volume, move |volume| {
            volume.edit(8);
            volume.reservations.consume_cached(units);
        });
        // Another operation drains the cache, because it has found no space.
        volume.reservations.drain_cache();
        volume.reserve(cost_of(1));
        volume.has_reserved(Volume::need(9, None));
        operation.join().unwrap();
    });
}

/// A batch is reserved while an operation leaves.
#[test]
fn batch_is_reserved_beside_edits_that_replace_a_reservation() {
    check(4, || {
        let volume = Volume::new();
        let cost = cost_of(8);
        volume.reserve(cost);
        let operation = spawn(&volume, move |volume| {
            volume.edit(8);
            volume.reservations.release(cost);
        });
        let units = ReservationUnits::of(cost_of(8)).unwrap();
        let nothing = EditCounts::default();
        assert!(
            volume
                .reservations
                .take_batch(&volume.running, nothing, units)
        );
        let batch = ReservationUnits::BATCH.cost().items;
        volume.has_reserved(Volume::need(8 + batch, None));
        operation.join().unwrap();
    });
}

#[test]
fn one_of_two_reservations_at_once_sees_both() {
    check(3, || {
        let volume = Volume::new();
        let operation = spawn(&volume, |volume| volume.reserve(cost_of(3)));
        volume.reserve(cost_of(5));
        operation.join().unwrap();
        volume.has_reserved(Volume::need(8, None));
    });
}

#[test]
fn commit_and_operation_that_reserve_at_once_do_not_miss_each_other() {
    check(3, || {
        let volume = Volume::new();
        let operation = spawn(&volume, |volume| volume.reserve(cost_of(MANY)));
        let more = EditCounts::items(MANY);
        assert!(
            volume
                .reservations
                .extend_commit_reservation(NOTHING, more, &volume.running)
        );
        operation.join().unwrap();
        volume.has_reserved(Volume::need(MANY, Some(more)) - GLOBAL_RESERVE);
    });
}

#[test]
fn commit_reserves_beside_edits_that_replace_a_reservation() {
    check(4, || {
        let volume = Volume::new();
        let cost = cost_of(MANY);
        volume.reservations.reserve(cost);
        let operation = spawn(&volume, move |volume| {
            volume.edit(MANY);
            volume.reservations.release(cost);
        });
        let more = EditCounts::items(MANY);
        assert!(
            volume
                .reservations
                .extend_commit_reservation(NOTHING, more, &volume.running)
        );
        volume.has_reserved(Volume::need(MANY, Some(more)) - GLOBAL_RESERVE);
        operation.join().unwrap();
    });
}

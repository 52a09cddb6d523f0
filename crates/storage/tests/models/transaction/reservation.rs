//! The files of `reservation` that loom checks, without those that wait for commits.

#[path = "../../../src/transaction/reservation/cache.rs"]
mod cache;
#[path = "../../../src/transaction/reservation/edit_tallies.rs"]
mod edit_tallies;
#[path = "../../../src/transaction/reservation/metadata.rs"]
mod metadata;
#[path = "../../../src/transaction/reservation/worst_case.rs"]
mod worst_case;

pub(super) use cache::ReservationUnits;
pub(super) use edit_tallies::EditTallies;
pub(super) use estimate::{EditCounts, EditEstimate};
pub(super) use metadata::MetadataReservations;

mod estimate {
    pub(crate) use ubtrfs_storage::{EditCounts, EditEstimate};
}

//! Reservations: the worst case of each operation is set aside before it joins a transaction.
//!
//! From low to high: `estimate` < `worst_case` < `edit_tallies`, `cache` < `metadata`. Operations wait in `space_queue`.
//!
//! Not here: reserving for an operation, which may wait for a commit (`reserve`).

mod cache;
mod edit_tallies;
mod estimate;
mod metadata;
mod space_queue;
mod worst_case;

#[cfg(test)]
pub(super) use cache::ReservationCache;
pub(super) use cache::ReservationUnits;
pub(super) use edit_tallies::EditTallies;
pub use estimate::{EditCounts, EditEstimate, FREEING_ITEMS};
pub(crate) use metadata::MetadataReservations;
pub(super) use space_queue::SpaceQueues;

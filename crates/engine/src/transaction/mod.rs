//! Transactions: entering the running one, and committing it.
//!
//! From low to high: `delayed_refs`, `extent_items`, `worst_case`, `stripes` < `running`, `gate`, `handle`, `reservation_cache`, `reservation` < `manager` < `commit` < `open`.

mod commit;
pub(crate) mod delayed_refs;
mod estimate;
pub(crate) mod extent_items;
mod gate;
mod handle;
mod lifetime;
mod manager;
mod open;
mod pending_subvolumes;
mod published;
mod reclaim;
mod reservation;
mod reservation_cache;
mod running;
mod shared_extents;
mod stripes;
mod superblock_edits;
mod waits;
mod worst_case;

#[cfg(test)]
mod tests;

pub(crate) use delayed_refs::DelayedRefs;
pub(crate) use estimate::{DataRef, DiskExtent, EditEstimate, FREEING_ITEMS};
pub(crate) use handle::{Reservation, TransactionHandle};
pub use lifetime::Lifetime;
pub use manager::{CommitPhases, WriterStats};
pub(crate) use manager::{TransactionManager, Wakening};
pub(crate) use open::TransactionOptions;
pub(crate) use pending_subvolumes::{Origin, PendingSubvolume, Puts};
pub(crate) use reclaim::SpaceReclaim;
pub use waits::Waits;

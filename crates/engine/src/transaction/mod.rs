//! Transactions: entering the running one, and committing it.
//!
//! From low to high: `delayed_refs`, `extent_items`, `need`, `stripes` < `running`, `gate`, `handle`, `allowances`, `balance` < `manager` < `commit` < `open`.

mod allowances;
mod balance;
mod commit;
mod cost;
pub(crate) mod delayed_refs;
pub(crate) mod extent_items;
mod gate;
mod handle;
mod lifetime;
mod manager;
mod need;
mod open;
mod pending_subvolumes;
mod published;
mod reclaim;
mod running;
mod shared_extents;
mod stripes;
mod superblock_edits;
mod waits;

#[cfg(test)]
mod tests;

pub(crate) use cost::{Cost, DataRef, DiskExtent, FREEING_ITEMS};
pub(crate) use delayed_refs::DelayedRefs;
pub(crate) use handle::{Permit, Txn};
pub use lifetime::Lifetime;
pub use manager::{CommitPhases, WriterStats};
pub(crate) use manager::{TransactionManager, Wakening};
pub(crate) use open::TransactionOptions;
pub(crate) use pending_subvolumes::{Origin, PendingSubvolume, Puts};
pub(crate) use reclaim::SpaceReclaim;
pub use waits::Waits;

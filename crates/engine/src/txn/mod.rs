//! Transactions: entering the running one, and committing it.
//!
//! From low to high: `delayed_refs`, `extent_items`, `need`, `stripes` < `running`, `gate`, `handle`, `allowances`, `balance` < `commit` < `background`.

mod allowances;
mod background;
mod balance;
mod commit;
mod cost;
pub(crate) mod delayed_refs;
pub(crate) mod extent_items;
mod gate;
mod handle;
mod lifetime;
mod need;
mod pending_subvolumes;
mod published;
mod running;
mod shared_extents;
mod stripes;
mod superblock_edits;
mod waits;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use balance::Balance;
pub(crate) use commit::free_by_extents;
pub(crate) use cost::{Cost, DataRef, DiskExtent, FREEING_ITEMS};
pub(crate) use delayed_refs::DelayedRefs;
pub use delayed_refs::{ExtentShape, RefKey};
pub use extent_items::RefError;
pub(crate) use handle::{Permit, Txn};
pub use lifetime::Lifetime;
pub(crate) use pending_subvolumes::{Origin, PendingSubvolume, Puts};
pub use waits::Waits;
pub(crate) use writer::Writer;
pub use writer::{CommitPhases, WriterStats};

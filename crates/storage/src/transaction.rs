//! Transactions: joining the running one, and committing it.
//!
//! From low to high:
//! - `failpoint`, `delayed_refs`, `extent_items`, `stripes` < `reservation` < `running` < `barrier`;
//! - the state in `published`, `data_flush`, `cleaner_state` and `log_trees`;
//! - `manager`, which has all of these;
//! - `handle`, `device_writes`, `release`, `threads`, `background_discard` < `reserve` < `commit`;
//! - `log_session`, `open`, `relocation`.
//!
//! The trait in `reclaim` is implemented by the layer above. Only data writes and flushes use `flush_order`.

mod background_discard;
mod barrier;
mod cleaner_state;
mod commit;
mod data_flush;
mod data_ref;
pub(crate) mod delayed_refs;
mod device_changes;
mod device_writes;
mod edit_target;
mod exclusive;
mod extent_barrier;
pub(crate) mod extent_items;
pub mod failpoint;
mod flush_order;
mod full_commit_reason;
mod handle;
mod lifetime;
mod log_places;
mod log_session;
mod log_trees;
mod manager;
mod open;
mod operation_gate;
mod pending_subvolumes;
mod published;
mod reclaim;
mod release;
mod relocation;
mod replace;
mod reservation;
mod reserve;
mod running;
mod shared_extents;
mod stats;
mod stripes;
mod superblock_edits;
mod threads;
mod waits;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use background_discard::DiscardPace;
pub use data_ref::{DataRef, DiskExtent};
pub use delayed_refs::DelayedRefs;
pub use edit_target::{EditTarget, EditsInMemory};
pub use extent_barrier::{ExtentBarrier, InsideBarrier};
pub use full_commit_reason::FullCommitReason;
pub use handle::{Reservation, TransactionHandle};
pub use lifetime::Lifetime;
pub use log_session::{LogOutcome, LogSession};
pub use manager::TransactionManager;
pub use open::TransactionOptions;
pub use operation_gate::{Entered, OperationGate, OperationGroup};
pub use pending_subvolumes::{Origin, PendingSubvolume, Puts};
pub use reclaim::SpaceReclaim;
pub use relocation::{RelocationOptions, RelocationReport};
pub use replace::ReplaceCounts;
pub use reservation::{EditCounts, EditEstimate, FREEING_ITEMS};
pub use stats::{CommitPhases, WriterStats};
pub use threads::{Wakening, begin_background};
pub use waits::Waits;

//! The storage engine of a volume: its trees, its space and its transactions.
//!
//! From low to high: `space` and `roots` (trees by id) < `csum_tree` and `backref` < `transaction`. Readers use views
//! of the trees. Edits join the running transaction, and a commit makes them durable.
//!
//! Not here: the meaning of the items, such as inodes and names (`fs`).

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod backref;
pub mod csum_tree;
pub mod discard;
mod error;
mod file_id;
pub mod lock;
mod range_set;
pub mod roots;
pub mod space;
mod sync;
mod transaction;

pub use backref::{BackRefs, DataExtent, ExtentUser, RootsOfBlocks};
pub use error::{
    CorruptItem, DeviceSetError, Error, ExtentShape, RefError, RefKey, Result, SpaceError,
};
pub use file_id::{FileId, IdHasher};
pub use range_set::RangeSet;
pub use transaction::failpoint;
#[cfg(any(test, feature = "testing"))]
pub use transaction::testing;
pub use transaction::{
    CommitPhases, DataRef, DelayedRefs, DiscardPace, DiskExtent, EditCounts, EditEstimate,
    EditTarget, EditsInMemory, Entered, ExtentBarrier, FREEING_ITEMS, FullCommitReason,
    InsideBarrier, Lifetime, LogOutcome, LogSession, OperationGate, OperationGroup, Origin,
    PendingSubvolume, Puts, RelocationOptions, RelocationReport, ReplaceCounts, Reservation,
    SpaceReclaim, TransactionHandle, TransactionManager, TransactionOptions, Waits, Wakening,
    WriterStats, begin_background,
};

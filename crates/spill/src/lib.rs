//! Collections in bounded memory that move to temporary files.
//!
//! - [`Sorter`]: an external sort of records, by sorted runs and one merge
//! - [`Log`]: bytes that are appended, and read at any offset
//! - [`Pages`]: a sparse array of records with a fixed size
//! - [`Paged`]: a vector of such records, on pages
//!
//! [`ScratchDir`] has the only policy for the folder of temporary files. A collection creates its file when its memory
//! is full. The file has no name, so it is removed with the collection, and after a crash.
//!
//! Invariants
//! - SPILL-1: a collection has a fixed limit of memory, however large it becomes. Only `Log` has no limit for a single
//!   push.
//!
//! An error of a temporary file names its folder (`ScratchError`). It is wrapped in an `io::Error` with the kind of the
//! cause, so that readers implement `Read` and callers decide by kind.
//!
//! Not here: the meaning of the records, and shares of memory.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod arena;
mod file;
mod log;
mod paged;
mod pages;
mod scratch_dir;
mod sorter;

pub use arena::{Position, Tail};
pub use log::{Log, LogReader};
pub use paged::Paged;
pub use pages::{PageRecord, Pages, Paging};
pub use scratch_dir::{Refusal, ScratchDir, ScratchError};
pub use sorter::{Group, RunReader, SortRecord, Sorted, Sorter};

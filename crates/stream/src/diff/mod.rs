//! Changes between two snapshots of one volume, in path order.
//!
//! The trees are compared as for an incremental stream: what both share is not read. So the cost is that of the
//! difference. Changes are found in the order of inode numbers, and sorted by path.
//!
//! A name is a directory and an entry in it. Moving a directory is one change, not one for each path below it.
//!
//! Invariants
//! - DIFF-1: memory is bounded by the caller's budget, however much differs. Changes beyond it lie in a temporary file.
//!
//! Not here: contents. Data ranges are those whose extents differ, also if the bytes in them are the same.

mod change;
mod entry;
mod error;
mod paths;
mod ranges;
mod sorter;
#[cfg(test)]
mod tests;
mod walk;

use std::sync::Arc;

use ubtrfs_engine::Snapshot;

pub use entry::{
    Attributes, ByteRange, ChangeKind, DiffEntry, DiffTime, EntryType, XattrChange, XattrChangeKind,
};
pub use error::DiffError;
use sorter::Sorted;
use walk::Walk;

/// Changes in the order of their paths.
#[derive(Debug)]
pub struct Diff {
    sorted: Sorted,
}

impl Diff {
    /// Compares two snapshots, and keeps at most `memory_bytes` of what was found in memory.
    ///
    /// # Errors
    ///
    /// The snapshots are of different volumes; those of reading trees and of the temporary file.
    pub fn new(old: &Snapshot, new: &Snapshot, memory_bytes: usize) -> Result<Diff, DiffError> {
        if !Arc::ptr_eq(old.volume(), new.volume()) {
            return Err(DiffError::OtherVolume);
        }
        // DIFF-1
        let sorted = Walk::new(old, new, memory_bytes).run()?;
        // The data that was read belongs together if both are as they were.
        old.check_unchanged()?;
        new.check_unchanged()?;
        Ok(Diff { sorted })
    }

    /// Returns the next change. Directories come before what they hold.
    pub fn next_entry(&mut self) -> Result<Option<DiffEntry>, DiffError> {
        self.sorted.next()
    }
}

//! Changes between two snapshots of one volume, in path order.
//!
//! The trees are compared as for an incremental stream: shared parts are not read, so that the cost depends on the
//! difference. Changes are found in inode order, and sorted by path.
//!
//! A name is a directory and an entry in it. Moving a directory is a single change, not one for each path below it.
//!
//! Invariants
//! - DIFF-1: memory is bounded by the caller's budget, however large the difference. Further changes are in a
//!   temporary file.
//!
//! Not here: contents. Data ranges are ranges with different extents, even if the bytes are equal.

mod change;
mod error;
mod inode_differences;
mod paths;
mod ranges;
mod record;
#[cfg(test)]
mod tests;
mod walk;

use std::sync::Arc;

use ubtrfs_fs::Snapshot;
use ubtrfs_spill::Sorted;

pub use change::{Change, ChangeKind, FileAttributes, XattrChange, XattrChangeKind};
pub use error::DiffError;
use record::Record;
use walk::Walk;

/// Changes in path order.
#[derive(Debug)]
pub struct Diff {
    sorted: Sorted<Record>,
}

impl Diff {
    /// Compares two snapshots, with at most `memory_bytes` of results in memory.
    ///
    /// # Errors
    ///
    /// The snapshots belong to different volumes, a tree is unreadable, or the temporary file fails.
    pub fn new(old: &Snapshot, new: &Snapshot, memory_bytes: usize) -> Result<Diff, DiffError> {
        if !Arc::ptr_eq(old.volume(), new.volume()) {
            return Err(DiffError::OtherVolume);
        }
        // DIFF-1
        let sorted = Walk::new(old, new, memory_bytes).run()?;
        // The results are only consistent if neither snapshot has changed.
        old.check_unchanged()?;
        new.check_unchanged()?;
        Ok(Diff { sorted })
    }

    /// Returns the next change. Directories precede their contents.
    pub fn next_change(&mut self) -> Result<Option<Change>, DiffError> {
        let next = self.sorted.next_with_tail().map_err(DiffError::Spill)?;
        let change = next.map(|(record, tail)| record.change(tail));
        change.transpose()
    }
}

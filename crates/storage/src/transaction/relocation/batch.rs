//! A batch of extents that one commit moves, and its outcome.

use std::ops::Range;

use parking_lot::Mutex;
use ubtrfs_format::ids::Logical;

use crate::error::Error;

/// A data extent of the group, and its copy.
#[derive(Clone, Copy, Debug)]
pub(in crate::transaction) struct CopiedExtent {
    pub(in crate::transaction) old: Logical,
    pub(in crate::transaction) new: Logical,
    pub(in crate::transaction) len: u64,
}

/// The state of a copied extent after the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transaction) enum CopyState {
    /// It was not part of the commit.
    Waiting,
    Moved,
    /// The extent was freed in the meantime.
    Gone,
}

/// The extents that one commit moves.
#[derive(Debug)]
pub(in crate::transaction) struct RelocationBatch {
    /// The addresses of the block group.
    pub(in crate::transaction) group: Range<u64>,
    pub(in crate::transaction) copies: Vec<CopiedExtent>,
    /// The most tree blocks of the group to move.
    pub(in crate::transaction) max_blocks: usize,
    /// The number of copied tree blocks after which no further extent is added.
    pub(in crate::transaction) max_copied_blocks: usize,
    /// The group to remove, if it is empty.
    pub(in crate::transaction) emptied: Option<Logical>,
    /// Whether that group is removed even if it is the last one of its kind.
    pub(in crate::transaction) replaces_last: bool,
    pub(in crate::transaction) outcome: Mutex<BatchOutcome>,
}

impl RelocationBatch {
    pub(in crate::transaction) fn emptied(&self) -> Option<Logical> {
        self.emptied
    }
}

/// The outcome of a batch.
#[derive(Debug, Default)]
pub(in crate::transaction) struct BatchOutcome {
    /// By the order of the copies.
    pub(in crate::transaction) copies: Vec<CopyState>,
    pub(in crate::transaction) moved_blocks: u64,
    pub(in crate::transaction) copied_blocks: u64,
    /// Whether a tree that is being freed must be freed first.
    pub(in crate::transaction) is_postponed: bool,
    /// The reason why nothing was moved. The commit itself has succeeded.
    pub(in crate::transaction) error: Option<Error>,
}

impl BatchOutcome {
    /// Creates the outcome of a commit that has moved nothing.
    pub(in crate::transaction) fn of_copies(count: usize) -> BatchOutcome {
        BatchOutcome {
            copies: vec![CopyState::Waiting; count],
            ..BatchOutcome::default()
        }
    }
}

//! The state of the receiver while the stream is applied.
//!
//! There is no copy of a tree. Most locations follow from the progress of the current phase; only exceptions are
//! stored.
//!
//! Not here: the moves (`moves`).

use std::collections::{HashMap, HashSet};

use ubtrfs_spill::ScratchDir;

use super::error::Result;
use super::file_tree::Name;
use super::spilled::{FirstSeen, InodeSet};

/// Progress of the stream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Progress {
    /// All remaining items are at their places in the old snapshot.
    #[default]
    Removing,
    /// Directories below this number are placed. In a full send, this applies to all inodes below it.
    Placing(u64),
    /// All directories are placed, and non-directories below this number have their names.
    Naming(u64),
}

#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) progress: Progress,
    /// Directories at different places in the two snapshots.
    pub(super) moved: InodeSet,
    /// Directories that were placed before their turn.
    pub(super) early: InodeSet,
    /// Some of the directories that are placed together with all of their parents.
    pub(super) placed_with_parents: HashSet<u64>,
    /// Inodes of the old snapshot that are in the root directory under a temporary name, which can be derived from
    /// both trees.
    pub(super) asides: InodeSet,
    /// Placed directories of the new snapshot that are temporarily in the root directory.
    pub(super) lifted: HashMap<u64, Vec<u8>>,
    /// The carrier name of the last requested inode, because one with many names is requested repeatedly.
    pub(super) carrier: Option<(u64, Option<Name>)>,
    pub(super) paths: HashMap<Dir, Vec<u8>>,
    /// Directories with changed entries that may not appear in the comparison.
    pub(super) touched: FirstSeen,
}

/// A directory at the receiver: one of the new snapshot, or one that only exists in the old one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Dir {
    New(u64),
    Gone(u64),
}

/// The location of a directory.
pub(super) enum DirPlace {
    In(Dir, Vec<u8>),
    /// In the root directory, under a temporary name.
    Aside(Vec<u8>),
}

impl Receiver {
    pub(super) fn new(scratch_dir: &ScratchDir) -> Receiver {
        Receiver {
            progress: Progress::default(),
            moved: InodeSet::new(scratch_dir),
            early: InodeSet::new(scratch_dir),
            placed_with_parents: HashSet::new(),
            asides: InodeSet::new(scratch_dir),
            lifted: HashMap::new(),
            carrier: None,
            paths: HashMap::new(),
            touched: FirstSeen::new(scratch_dir),
        }
    }

    pub(super) fn forget_paths(&mut self) {
        self.paths.clear();
    }

    pub(super) fn is_aside(&mut self, ino: u64) -> Result<bool> {
        Ok(self.asides.contains(ino)?)
    }

    /// Returns whether the turn of a directory is over.
    pub(super) fn had_its_turn(&mut self, dir: u64) -> Result<bool> {
        Ok(match self.progress {
            Progress::Removing => false,
            Progress::Placing(turn) => dir < turn || self.early.contains(dir)?,
            Progress::Naming(_) => true,
        })
    }
}

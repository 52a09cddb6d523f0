//! How a check is done, and what it tells meanwhile.

use std::path::PathBuf;

use ubtrfs_format::ids::Logical;

#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Budget for buffers, caches and sets, in bytes.
    pub memory_bytes: u64,
    /// Issues listed; the others are counted.
    pub max_issues: usize,
    /// Read the data of every mirror and compare it with its checksums.
    pub data_csums: bool,
    /// Whether devices may be missing. A missing device is a warning then.
    pub degraded: bool,
    /// Which copy of the superblock names the trees; None: the newest.
    pub superblock_copy: Option<usize>,
    /// Take the trees from the newest backup root that can be read.
    pub backup_root: bool,
    /// The root of the root tree.
    pub tree_root: Option<Logical>,
    /// The root of the chunk tree.
    pub chunk_root: Option<Logical>,
    /// Where devices are searched that the given paths lack.
    pub scan: Vec<PathBuf>,
    /// Where records go that memory has no room for; None: the system's temporary folder.
    pub spill_dir: Option<PathBuf>,
}

impl Default for CheckOptions {
    fn default() -> Self {
        CheckOptions {
            memory_bytes: 256 << 20,
            max_issues: 1000,
            data_csums: false,
            degraded: false,
            superblock_copy: None,
            backup_root: false,
            tree_root: None,
            chunk_root: None,
            scan: Vec::new(),
            spill_dir: None,
        }
    }
}

/// The parts of a check, in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Phase {
    Superblocks,
    Chunks,
    Roots,
    Extents,
    FreeSpace,
    Files,
    Checksums,
    References,
}

impl Phase {
    pub const ALL: [Phase; 8] = [
        Phase::Superblocks,
        Phase::Chunks,
        Phase::Roots,
        Phase::Extents,
        Phase::FreeSpace,
        Phase::Files,
        Phase::Checksums,
        Phase::References,
    ];

    /// Returns the number of the phase, from 1.
    pub fn number(self) -> usize {
        self as usize + 1
    }

    /// Returns the name of the checked subject.
    pub fn subject(self) -> &'static str {
        match self {
            Phase::Superblocks => "superblocks",
            Phase::Chunks => "chunks, block groups and device extents",
            Phase::Roots => "root items",
            Phase::Extents => "extents",
            Phase::FreeSpace => "free space tree",
            Phase::Files => "files and directories",
            Phase::Checksums => "checksums",
            Phase::References => "references to extents",
        }
    }
}

/// How far a check is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub phase: Phase,
    /// Tree blocks read so far, in all phases.
    pub blocks: u64,
    /// Issues found so far.
    pub issues: u64,
}

/// A listener to a check. A closure hears of the progress alone.
pub trait CheckObserver {
    /// Hears how far the check is: when a phase begins, and now and then within.
    fn progress(&mut self, progress: &Progress);

    /// Tells whether the check is to end now. It is asked now and then.
    fn is_cancelled(&mut self) -> bool {
        false
    }
}

impl<F: FnMut(&Progress)> CheckObserver for F {
    fn progress(&mut self, progress: &Progress) {
        self(progress);
    }
}

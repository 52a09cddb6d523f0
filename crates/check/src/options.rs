//! Options, phases and progress of a check.

use std::path::PathBuf;

use ubtrfs_format::ids::Logical;

#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Budget for buffers, caches and sets, in bytes.
    pub memory_bytes: u64,
    /// Maximum number of issues in the report; further ones are only counted.
    pub max_issues: usize,
    /// Read the data of every mirror and compare it with its checksums.
    pub data_csums: bool,
    /// Whether devices may be missing. A missing device is only a warning then.
    pub degraded: bool,
    /// The superblock copy that determines the trees; None for the newest.
    pub superblock_copy: Option<usize>,
    /// Use the newest readable backup root.
    pub backup_root: bool,
    /// Address of the root tree's root.
    pub tree_root: Option<Logical>,
    /// Address of the chunk tree's root.
    pub chunk_root: Option<Logical>,
    /// Places to search for devices that are not in the given paths.
    pub scan: Vec<PathBuf>,
    /// Folder for records that exceed the memory; None for the folder that [`ScratchDir`] chooses for the volume.
    ///
    /// [`ScratchDir`]: ubtrfs_spill::ScratchDir
    pub scratch_dir: Option<PathBuf>,
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
            scratch_dir: None,
        }
    }
}

/// The phases of a check, in order.
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

    /// Returns the name of the phase's subject.
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

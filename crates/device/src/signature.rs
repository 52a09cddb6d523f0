//! The name of what a device holds, as blkid(8) calls it.

use std::fmt;

pub(crate) const BTRFS: &str = "btrfs";

/// The content of a device, by its signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signature {
    /// A file system, or a member of a pool, an array or a group.
    FileSystem(&'static str),
    PartitionTable(&'static str),
    /// A file of a virtual disk, by the name of its format.
    DiskImage(&'static str),
}

impl Signature {
    /// Returns whether it is the mark of copy 0 of a superblock of btrfs.
    pub fn is_btrfs(&self) -> bool {
        *self == Signature::FileSystem(BTRFS)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Signature::FileSystem(name) => write!(f, "an existing filesystem ({name})"),
            Signature::PartitionTable(name) => write!(f, "a partition table ({name})"),
            Signature::DiskImage(name) => write!(f, "a virtual disk ({name})"),
        }
    }
}

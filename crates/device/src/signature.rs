//! The names of device contents, as in blkid(8).

use std::fmt;

pub(crate) const BTRFS: &str = "btrfs";

/// The content of a device, by its signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signature {
    /// A file system, or a member of a pool, an array or a volume group.
    FileSystem(&'static str),
    PartitionTable(&'static str),
    /// A virtual disk image, by the name of its format.
    DiskImage(&'static str),
}

impl Signature {
    /// Returns whether it is the magic number of a btrfs superblock at copy 0.
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

//! The reasons why two snapshots cannot be compared.

use std::io;

use rustix::io::Errno;
use ubtrfs_device::errno_of;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::Key;
use ubtrfs_fs::{Error as EngineError, TreeError};

#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    #[error("the snapshots are of different volumes")]
    OtherVolume,
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error("subvolume {tree}: item {key} is damaged")]
    Corrupt { tree: RootId, key: Key },
    #[error("subvolume {tree}: the directories above inode {inode} form a loop or too long a path")]
    Path { tree: RootId, inode: u64 },
    #[error("subvolume {tree}: inode {inode} has too many names")]
    TooManyNames { tree: RootId, inode: u64 },
    #[error("cannot sort changes in a temporary file")]
    Spill(#[source] io::Error),
}

impl DiffError {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(&self) -> Errno {
        match self {
            DiffError::OtherVolume => Errno::XDEV,
            DiffError::Engine(error) => error.errno(),
            DiffError::Tree(error) => error.errno(),
            DiffError::Corrupt { .. } | DiffError::Path { .. } | DiffError::TooManyNames { .. } => {
                Errno::UCLEAN
            }
            DiffError::Spill(error) => errno_of(error),
        }
    }
}

//! The reasons why a check is impossible. A fault of the volume is an issue, not an error.

use rustix::io::Errno;
use ubtrfs_device::progress::Cancelled;
use ubtrfs_device::{DeviceError, errno_of};
use ubtrfs_format::superblock::SuperblockError;

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The devices cannot be opened, or none of them has a usable superblock.
    #[error(transparent)]
    Open(#[from] DeviceError),
    #[error("superblock copy {mirror} cannot be used: {source}")]
    SuperblockCopy {
        mirror: usize,
        source: SuperblockError,
    },
    #[error("there is no superblock copy {mirror}")]
    NoSuperblockCopy { mirror: usize },
    #[error("no backup root can be read")]
    NoBackupRoot,
    /// The requested tree root.
    #[error("no tree block can be read at {bytenr}")]
    NoTreeRoot { bytenr: u64 },
    #[error("cannot start a thread that reads trees: {0}")]
    Thread(std::io::Error),
    #[error("cannot keep records: {0}")]
    Spill(#[from] std::io::Error),
    /// Cancelled by the observer.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl CheckError {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(&self) -> Errno {
        match self {
            CheckError::Open(error) => error.errno(),
            CheckError::SuperblockCopy { .. }
            | CheckError::NoBackupRoot
            | CheckError::NoTreeRoot { .. } => Errno::UCLEAN,
            CheckError::NoSuperblockCopy { .. } => Errno::NOENT,
            CheckError::Cancelled(_) => Errno::INTR,
            CheckError::Thread(error) | CheckError::Spill(error) => errno_of(error),
        }
    }
}

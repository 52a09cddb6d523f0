//! The errors that end a scrub. Damage is a result, not an error.

use std::io;

use rustix::io::Errno;
use ubtrfs_device::{DeviceError, errno_of};
use ubtrfs_fs::Error as EngineError;
use ubtrfs_storage::Error as StorageError;

/// The reason why a scrub could not run.
#[derive(Debug, thiserror::Error)]
pub enum ScrubError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The volume has no device with this id.
    #[error("there is no device {0}")]
    NoDevice(u64),
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// The volume is open for reading only.
    #[error("the volume is read-only: only a read-only scrub is possible")]
    ReadOnly,
}

impl From<StorageError> for ScrubError {
    fn from(error: StorageError) -> ScrubError {
        ScrubError::Engine(error.into())
    }
}

impl ScrubError {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(&self) -> Errno {
        match self {
            ScrubError::Device(error) => error.errno(),
            ScrubError::Engine(error) => error.errno(),
            ScrubError::Thread(error) => errno_of(error),
            ScrubError::NoDevice(_) => Errno::NOENT,
            ScrubError::ReadOnly => Errno::ROFS,
        }
    }
}

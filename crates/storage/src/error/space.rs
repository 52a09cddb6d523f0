//! Reasons why space cannot be allocated, or a block group cannot be removed.

use rustix::io::Errno;
use ubtrfs_device::DeviceError;
use ubtrfs_format::block_group_flags::{BlockGroupType, Profile};
use ubtrfs_format::ids::Logical;

use super::devices::DeviceSetError;

#[derive(Debug, thiserror::Error)]
pub enum SpaceError {
    #[error("no space left on device: {bytes} bytes of {} wanted", kind.name())]
    NoSpace { kind: BlockGroupType, bytes: u64 },
    /// Chunks with parity can be read and written, but not created.
    #[error("no new chunk of {}: profile {} is read-only", kind.name(), profile.name())]
    ReadOnlyProfile {
        kind: BlockGroupType,
        profile: Profile,
    },
    /// The superblock must contain every system chunk.
    #[error("the superblock's array of system chunks is full")]
    SystemChunkArray,
    #[error("no block group at {start}")]
    NoBlockGroup { start: Logical },
    #[error("block group {start} is in use")]
    InUse { start: Logical },
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    DeviceSet(#[from] DeviceSetError),
}

impl SpaceError {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(&self) -> Errno {
        match self {
            SpaceError::NoSpace { .. }
            | SpaceError::ReadOnlyProfile { .. }
            | SpaceError::SystemChunkArray => Errno::NOSPC,
            SpaceError::NoBlockGroup { .. } => Errno::INVAL,
            SpaceError::InUse { .. } => Errno::BUSY,
            SpaceError::Device(error) => error.errno(),
            SpaceError::DeviceSet(error) => error.errno(),
        }
    }
}

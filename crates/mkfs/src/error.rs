//! Errors of creating a volume.

use std::io;

use rustix::io::Errno;
use ubtrfs_device::progress::Cancelled;
use ubtrfs_device::{ChunkProblem, errno_of};
use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::{DevId, Physical};
use ubtrfs_tree::BuildError;

/// If mkfs.btrfs has an error for the same case, the message is identical.
#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    #[error("label of {len_bytes} bytes is too long (max 255)")]
    LabelTooLong { len_bytes: usize },
    #[error("label contains a NUL byte")]
    LabelNul,
    #[error("invalid sectorsize {0}, expected range is [4K, 64K]")]
    SectorsizeRange(u32),
    #[error("invalid sectorsize {0}, must be power of 2")]
    SectorsizePower(u32),
    #[error("illegal nodesize {nodesize} (smaller than {sectorsize})")]
    NodesizeSmall { nodesize: u32, sectorsize: u32 },
    #[error("illegal nodesize {0} (larger than 65536)")]
    NodesizeLarge(u32),
    #[error("illegal nodesize {nodesize} (not aligned to {sectorsize})")]
    NodesizeUnaligned { nodesize: u32, sectorsize: u32 },
    #[error("illegal nodesize {0} (not a power of 2)")]
    NodesizePower(u32),
    #[error("illegal nodesize {nodesize} (not equal to {sectorsize} for mixed block group)")]
    NodesizeMixed { nodesize: u32, sectorsize: u32 },
    #[error("with mixed block groups data and metadata profiles must be the same")]
    MixedProfiles,
    #[error("block group tree requires no-holes and free-space-tree features")]
    BlockGroupTreeNeeds,
    #[error(
        "unable to create FS with {kind} profile {profile} (have {have} devices but {need} devices are required)"
    )]
    TooFewDevices {
        kind: &'static str,
        profile: &'static str,
        have: usize,
        need: usize,
    },
    #[error("{identities} device UUIDs for {devices} devices")]
    DeviceUuids { identities: usize, devices: usize },
    /// `index` counts from 0 in the order of the given devices.
    #[error(
        "device {index} of {len_bytes} bytes is too small, minimum size for each btrfs device is {min_bytes}"
    )]
    DeviceTooSmall {
        index: usize,
        len_bytes: u64,
        min_bytes: u64,
    },
    #[error("sizes of the devices add up to more than the format can hold")]
    TooLarge,
    #[error("not enough free space to allocate chunk ({flags:?})")]
    NoRoomForChunk { flags: BlockGroupFlags },
    #[error("no room for a tree block in chunks of type {flags:?}")]
    NoRoomForBlock { flags: BlockGroupFlags },
    #[error("the trees still change after {rounds} rounds of describing themselves")]
    NotSettled { rounds: usize },
    #[error("chunk: {0}")]
    Chunk(#[from] ChunkProblem),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("{devices} devices given, the layout needs {planned}")]
    DeviceCount { devices: usize, planned: usize },
    #[error("device {devid} has {found} bytes, the layout needs {planned}")]
    DeviceShrank {
        devid: DevId,
        found: u64,
        planned: u64,
    },
    #[error("write to device {devid} at {physical}: {source}")]
    Write {
        devid: DevId,
        physical: Physical,
        source: io::Error,
    },
    #[error("read of device {devid} at {physical}: {source}")]
    Read {
        devid: DevId,
        physical: Physical,
        source: io::Error,
    },
    #[error("flush of device {devid}: {source}")]
    Flush { devid: DevId, source: io::Error },
    #[error("resizing device {devid} to {len_bytes} bytes: {source}")]
    Resize {
        devid: DevId,
        len_bytes: u64,
        source: io::Error,
    },
    /// A temporary file failed, which holds intermediate data of a fill.
    #[error(transparent)]
    Scratch(io::Error),
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl MkfsError {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(&self) -> Errno {
        match self {
            MkfsError::Write { source, .. }
            | MkfsError::Read { source, .. }
            | MkfsError::Flush { source, .. }
            | MkfsError::Resize { source, .. }
            | MkfsError::Scratch(source) => errno_of(source),
            MkfsError::TooLarge => Errno::FBIG,
            MkfsError::DeviceTooSmall { .. }
            | MkfsError::NoRoomForChunk { .. }
            | MkfsError::NoRoomForBlock { .. } => Errno::NOSPC,
            MkfsError::Cancelled(_) => Errno::INTR,
            MkfsError::NotSettled { .. } | MkfsError::Chunk(_) | MkfsError::Build(_) => Errno::IO,
            MkfsError::LabelTooLong { .. }
            | MkfsError::LabelNul
            | MkfsError::SectorsizeRange(_)
            | MkfsError::SectorsizePower(_)
            | MkfsError::NodesizeSmall { .. }
            | MkfsError::NodesizeLarge(_)
            | MkfsError::NodesizeUnaligned { .. }
            | MkfsError::NodesizePower(_)
            | MkfsError::NodesizeMixed { .. }
            | MkfsError::MixedProfiles
            | MkfsError::BlockGroupTreeNeeds
            | MkfsError::TooFewDevices { .. }
            | MkfsError::DeviceUuids { .. }
            | MkfsError::DeviceCount { .. }
            | MkfsError::DeviceShrank { .. } => Errno::INVAL,
        }
    }
}

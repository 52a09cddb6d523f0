//! The defects that make a chunk unusable.

use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::ids::{DevId, Logical};

/// The reason why a chunk is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkProblem {
    #[error("stripe count {count} does not suit {}", profile.name())]
    StripeCount { profile: Profile, count: u16 },
    #[error("has {count} stripes in its head, {found} follow")]
    StripesShort { count: u16, found: usize },
    #[error("sub-stripe count {0} is not 2")]
    SubStripes(u16),
    #[error("start is not aligned to the sector")]
    Start,
    #[error("length {0} is 0, not aligned to the sector, or too large")]
    Length(u64),
    #[error("sector size {found}, the volume has {wanted}")]
    SectorSize { found: u32, wanted: u32 },
    #[error("stripe length {0} is not 65536")]
    StripeLen(u64),
    #[error("type {0:#x} is not a valid combination")]
    Type(u64),
    #[error("stripe {index} at {physical} is not aligned or does not fit any device")]
    StripePlace { index: usize, physical: u64 },
    #[error("two of its stripes are on device {devid}, parity needs one on each")]
    RepeatedDevice { devid: DevId },
    #[error("overlaps the chunk at {other}")]
    Overlap { other: Logical },
}

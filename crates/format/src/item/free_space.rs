//! The free-space tree, and the header of version 1 caches.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::key::DiskKey;

/// The representation of a block group's free space; key (start, FREE_SPACE_INFO, length).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FreeSpaceInfo {
    pub extent_count: U32,
    pub flags: U32,
}
const _: () = assert!(size_of::<FreeSpaceInfo>() == 8);

/// Flag of [`FreeSpaceInfo`]: the group uses bitmaps instead of extents.
pub const FREE_SPACE_USING_BITMAPS: u32 = 1;
/// Size of a full FREE_SPACE_BITMAP item; each bit represents a sector.
pub const FREE_SPACE_BITMAP_BYTES: usize = 256;

/// The header of a version 1 free-space cache; key (FREE_SPACE, 0, block group start).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FreeSpaceHeader {
    pub location: DiskKey,
    pub generation: U64,
    pub num_entries: U64,
    pub num_bitmaps: U64,
}
const _: () = assert!(size_of::<FreeSpaceHeader>() == 41);

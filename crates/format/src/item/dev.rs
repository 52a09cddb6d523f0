//! Devices: their properties, their allocated ranges, and their error counts.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::uuid::Uuid;

/// A device of the volume; in the chunk tree, and in the superblock of the device itself.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DevItem {
    pub devid: U64,
    pub total_bytes: U64,
    pub bytes_used: U64,
    pub io_align: U32,
    pub io_width: U32,
    pub sector_size: U32,
    pub type_: U64,
    pub generation: U64,
    pub start_offset: U64,
    pub dev_group: U32,
    pub seek_speed: u8,
    pub bandwidth: u8,
    pub uuid: Uuid,
    pub fsid: Uuid,
}
const _: () = assert!(size_of::<DevItem>() == 98);

/// An allocated range of a device; key (devid, DEV_EXTENT, physical).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DevExtent {
    pub chunk_tree: U64,
    pub chunk_objectid: U64,
    pub chunk_offset: U64,
    pub length: U64,
    pub chunk_tree_uuid: Uuid,
}
const _: () = assert!(size_of::<DevExtent>() == 48);

/// Error counts of a device: writes, reads, flushes, corruptions, generation mismatches.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DevStatsItem {
    pub values: [U64; 5],
}
const _: () = assert!(size_of::<DevStatsItem>() == 40);

impl DevStatsItem {
    /// Reads the counts of an item. Older items have fewer counts; the missing ones are 0.
    pub fn of(item: &[u8]) -> DevStatsItem {
        let mut stats = DevStatsItem::new_zeroed();
        let len = item.len().min(size_of::<DevStatsItem>());
        let len = len - len % size_of::<U64>();
        stats.as_mut_bytes()[..len].copy_from_slice(&item[..len]);
        stats
    }
}

/// The state of a device replacement.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DevReplaceItem {
    pub src_devid: U64,
    pub cursor_left: U64,
    pub cursor_right: U64,
    pub cont_reading_from_srcdev_mode: U64,
    pub replace_state: U64,
    pub time_started: U64,
    pub time_stopped: U64,
    pub num_write_errors: U64,
    pub num_uncorrectable_read_errors: U64,
}
const _: () = assert!(size_of::<DevReplaceItem>() == 72);

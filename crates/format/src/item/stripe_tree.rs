//! The RAID stripe tree: the device locations of each data extent in a striped or mirrored chunk.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One location of an extent; the item with key (logical, RAID_STRIPE, length) has one for each stripe.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RaidStride {
    pub devid: U64,
    pub physical: U64,
}
const _: () = assert!(size_of::<RaidStride>() == 16);

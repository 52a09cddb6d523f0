//! The RAID stripe tree: where each data extent of a striped or mirrored chunk lies.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One place of an extent; key (logical, RAID_STRIPE, length) holds one per stripe.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RaidStride {
    pub devid: U64,
    pub physical: U64,
}
const _: () = assert!(size_of::<RaidStride>() == 16);

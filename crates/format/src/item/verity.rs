//! fs-verity: the descriptor's head; Merkle tree blocks are plain bytes.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The descriptor's head: key (inode, VERITY_DESC_ITEM, 0); the descriptor itself is at offset 1 onwards.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct VerityDescriptorItem {
    pub size: U64,
    pub reserved: [U64; 2],
    pub encryption: u8,
}
const _: () = assert!(size_of::<VerityDescriptorItem>() == 25);

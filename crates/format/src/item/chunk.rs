//! Chunks (mapping logical addresses to devices) and block groups (used bytes of a chunk).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::block_group_flags::BlockGroupFlags;
use crate::uuid::Uuid;

/// Number of contiguous bytes of a chunk on one stripe: the only stripe length that kernels have used.
pub const STRIPE_LEN: u64 = 64 << 10;

/// The head of a chunk item; `num_stripes` stripes follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Chunk {
    /// Logical bytes.
    pub length: U64,
    /// Always the extent tree's id.
    pub owner: U64,
    pub stripe_len: U64,
    pub type_: U64,
    pub io_align: U32,
    pub io_width: U32,
    pub sector_size: U32,
    pub num_stripes: U16,
    /// Number of copies in RAID10; 1 in other profiles.
    pub sub_stripes: U16,
}
const _: () = assert!(size_of::<Chunk>() == 48);

/// A part of a chunk on one device.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Stripe {
    pub devid: U64,
    pub offset: U64,
    pub dev_uuid: Uuid,
}
const _: () = assert!(size_of::<Stripe>() == 32);

impl Chunk {
    pub fn flags(&self) -> BlockGroupFlags {
        BlockGroupFlags::from_bits_retain(self.type_.get())
    }

    /// Splits an item into the chunk, its stripes, and the remaining bytes. Returns None if they do not fit or there
    /// is no stripe.
    pub fn split(bytes: &[u8]) -> Option<(&Chunk, &[Stripe], &[u8])> {
        let (chunk, rest) = Chunk::ref_from_prefix(bytes).ok()?;
        let count = usize::from(chunk.num_stripes.get());
        let len = count * size_of::<Stripe>();
        if count == 0 || rest.len() < len {
            return None;
        }
        let (stripes, tail) = rest.split_at(len);
        Some((chunk, <[Stripe]>::ref_from_bytes(stripes).ok()?, tail))
    }
}

/// The used bytes of a chunk; key (start, BLOCK_GROUP_ITEM, length).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct BlockGroupItem {
    pub used: U64,
    /// Always [`crate::ids::objectid::FIRST_CHUNK_TREE`].
    pub chunk_objectid: U64,
    pub flags: U64,
}
const _: () = assert!(size_of::<BlockGroupItem>() == 24);

impl BlockGroupItem {
    pub fn flags(&self) -> BlockGroupFlags {
        BlockGroupFlags::from_bits_retain(self.flags.get())
    }
}

//! The check of one chunk, for CHUNK_ITEMs and for the superblock's array of chunks.

use crate::block_group_flags::{BlockGroupFlags, Profile};
use crate::features::Incompat;
use crate::ids::Logical;
use crate::item::{Chunk, STRIPE_LEN};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptChunk {
    #[error("no stripes")]
    NoStripes,
    #[error("start {0} is not aligned to the sector")]
    Alignment(u64),
    #[error("sector size {found}, volume has {wanted}")]
    Sectorsize { wanted: u32, found: u32 },
    #[error("length {0} is 0 or not whole sectors")]
    Length(u64),
    #[error("length {0} is above any that is made")]
    TooLong(u64),
    #[error("start {logical} and length {length} pass the end of the logical space")]
    End { logical: u64, length: u64 },
    #[error("stripe length {0}, the only one in use is 65536")]
    StripeLen(u64),
    #[error("type {0:#x} has unknown bits")]
    UnknownType(u64),
    #[error("type {0:#x} has two profiles")]
    Profile(u64),
    #[error("type {0:#x} has no type bit")]
    NoType(u64),
    #[error("type {0:#x} mixes system with other types")]
    MixedSystem(u64),
    #[error("type {0:#x} mixes data and metadata without the feature mixed-bg")]
    Mixed(u64),
    #[error("{num_stripes} stripes in groups of {sub_stripes} do not fit {}", profile.name())]
    StripeCount {
        profile: Profile,
        num_stripes: u16,
        sub_stripes: u16,
    },
}

/// The kernel counts stripes with 32 bits.
const LENGTH_LIMIT: u64 = STRIPE_LEN * u32::MAX as u64;
const RAID10_COPIES: u16 = 2;

/// Checks a chunk without its stripes; also used for the superblock's chunks.
pub fn check_chunk(
    logical: Logical,
    chunk: &Chunk,
    sectorsize: u32,
    incompat: Incompat,
) -> Result<(), CorruptChunk> {
    if chunk.num_stripes.get() == 0 {
        return Err(CorruptChunk::NoStripes);
    }
    check_range(logical.0, chunk, sectorsize)?;
    check_type(chunk.flags(), incompat)?;
    check_stripe_count(chunk)
}

fn check_range(logical: u64, chunk: &Chunk, sectorsize: u32) -> Result<(), CorruptChunk> {
    if !logical.is_multiple_of(u64::from(sectorsize)) {
        return Err(CorruptChunk::Alignment(logical));
    }
    if chunk.sector_size.get() != sectorsize {
        return Err(CorruptChunk::Sectorsize {
            wanted: sectorsize,
            found: chunk.sector_size.get(),
        });
    }
    let length = chunk.length.get();
    if length == 0 || !length.is_multiple_of(u64::from(sectorsize)) {
        return Err(CorruptChunk::Length(length));
    }
    if logical.checked_add(length).is_none() {
        return Err(CorruptChunk::End { logical, length });
    }
    if chunk.stripe_len.get() != STRIPE_LEN {
        return Err(CorruptChunk::StripeLen(chunk.stripe_len.get()));
    }
    if length >= LENGTH_LIMIT {
        return Err(CorruptChunk::TooLong(length));
    }
    Ok(())
}

fn check_type(flags: BlockGroupFlags, incompat: Incompat) -> Result<(), CorruptChunk> {
    let raw = flags.bits();
    let known = BlockGroupFlags::TYPE_MASK | BlockGroupFlags::PROFILE_MASK;
    if !(flags - known).is_empty() {
        return Err(CorruptChunk::UnknownType(raw));
    }
    if flags.profile().is_none() {
        return Err(CorruptChunk::Profile(raw));
    }
    let kind = flags & BlockGroupFlags::TYPE_MASK;
    if kind.is_empty() {
        return Err(CorruptChunk::NoType(raw));
    }
    let mixed = BlockGroupFlags::DATA | BlockGroupFlags::METADATA;
    if kind.contains(BlockGroupFlags::SYSTEM) && kind.intersects(mixed) {
        return Err(CorruptChunk::MixedSystem(raw));
    }
    if kind == mixed && !incompat.contains(Incompat::MIXED_GROUPS) {
        return Err(CorruptChunk::Mixed(raw));
    }
    Ok(())
}

fn check_stripe_count(chunk: &Chunk) -> Result<(), CorruptChunk> {
    let Some(profile) = chunk.flags().profile() else {
        return Err(CorruptChunk::Profile(chunk.type_.get()));
    };
    let num_stripes = chunk.num_stripes.get();
    let sub_stripes = chunk.sub_stripes.get();
    let sound = match profile {
        Profile::Single => num_stripes == 1,
        Profile::Raid0 => true,
        Profile::Dup | Profile::Raid1 | Profile::Raid1c3 | Profile::Raid1c4 => {
            usize::from(num_stripes) == profile.copies()
        }
        Profile::Raid10 => {
            sub_stripes == RAID10_COPIES && num_stripes.is_multiple_of(RAID10_COPIES)
        }
        Profile::Raid5 | Profile::Raid6 => usize::from(num_stripes) >= profile.min_devices(),
    };
    if sound {
        Ok(())
    } else {
        Err(CorruptChunk::StripeCount {
            profile,
            num_stripes,
            sub_stripes,
        })
    }
}

//! The items of a chunk, which are in three trees.

use ubtrfs_format::block_group_flags::{BlockGroupFlags, Profile};
use ubtrfs_format::ids::{DevId, Logical, RootId, objectid};
use ubtrfs_format::item::{BlockGroupItem, Chunk, DevExtent, Stripe};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::uuid::Uuid;
use zerocopy::IntoBytes;

use crate::{MappedChunk, STRIPE_LEN};

/// Returns the number of stripes with distinct data.
pub fn data_stripes(profile: Profile, stripes: usize) -> usize {
    match profile {
        Profile::Single | Profile::Dup => 1,
        Profile::Raid1 | Profile::Raid1c3 | Profile::Raid1c4 => 1,
        Profile::Raid0 => stripes,
        Profile::Raid10 => stripes / profile.copies(),
        Profile::Raid5 | Profile::Raid6 => stripes.saturating_sub(profile.parities()),
    }
}

/// Creates the fixed part of a chunk item.
pub fn chunk_head(
    flags: BlockGroupFlags,
    profile: Profile,
    stripe_bytes: u64,
    num_stripes: usize,
    sectorsize: u32,
) -> Chunk {
    let data_stripes = data_stripes(profile, num_stripes) as u64;
    let sub_stripes = match profile {
        Profile::Raid10 => profile.copies(),
        _ => 1,
    };
    Chunk {
        length: stripe_bytes.saturating_mul(data_stripes).into(),
        owner: RootId::EXTENT_TREE.0.into(),
        stripe_len: STRIPE_LEN.into(),
        type_: flags.bits().into(),
        io_align: (STRIPE_LEN as u32).into(),
        io_width: (STRIPE_LEN as u32).into(),
        sector_size: sectorsize.into(),
        num_stripes: (num_stripes as u16).into(),
        sub_stripes: (sub_stripes as u16).into(),
    }
}

pub fn chunk_key(logical: Logical) -> Key {
    Key::new(objectid::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, logical.0)
}

pub fn dev_extent(chunk: &MappedChunk, chunk_tree_uuid: Uuid) -> DevExtent {
    DevExtent {
        chunk_tree: RootId::CHUNK_TREE.0.into(),
        chunk_objectid: objectid::FIRST_CHUNK_TREE.into(),
        chunk_offset: chunk.logical().0.into(),
        length: chunk.stripe_bytes().into(),
        chunk_tree_uuid,
    }
}

/// An item to insert or delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkItem {
    pub key: Key,
    pub bytes: Vec<u8>,
}

/// A new or removed chunk with its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkItems {
    pub logical: Logical,
    pub len: u64,
    pub flags: BlockGroupFlags,
    pub stripes: Vec<Stripe>,
    /// For the chunk tree; a system chunk is also added to the superblock.
    pub chunk: ChunkItem,
    /// For the device tree, one item for each stripe.
    pub dev_extents: Vec<ChunkItem>,
    /// For the tree of block groups; its used bytes are 0.
    pub block_group: ChunkItem,
    /// By how much `bytes_used` of each device item grows (or shrinks, for a removed chunk).
    pub device_bytes: Vec<(DevId, u64)>,
}

impl ChunkItems {
    pub fn new(chunk: &MappedChunk, sectorsize: u32, chunk_tree_uuid: Uuid) -> ChunkItems {
        let stripe_bytes = chunk.stripe_bytes();
        let mut head = chunk_head(
            chunk.flags(),
            chunk.profile(),
            stripe_bytes,
            chunk.stripes().len(),
            sectorsize,
        );
        head.length = chunk.len_bytes().into();
        let stripes: Vec<Stripe> = chunk
            .stripes()
            .iter()
            .map(|stripe| Stripe {
                devid: stripe.devid.0.into(),
                offset: stripe.physical.0.into(),
                dev_uuid: stripe.dev_uuid,
            })
            .collect();
        let extent = dev_extent(chunk, chunk_tree_uuid);
        let dev_extents = chunk.stripes().iter().map(|stripe| ChunkItem {
            key: Key::new(stripe.devid.0, KeyType::DEV_EXTENT, stripe.physical.0),
            bytes: extent.as_bytes().to_vec(),
        });
        let group = BlockGroupItem {
            used: 0.into(),
            chunk_objectid: objectid::FIRST_CHUNK_TREE.into(),
            flags: chunk.flags().bits().into(),
        };
        let mut device_bytes: Vec<(DevId, u64)> = Vec::new();
        for stripe in chunk.stripes() {
            match device_bytes.iter_mut().find(|(id, _)| *id == stripe.devid) {
                Some((_, bytes)) => *bytes += stripe_bytes,
                None => device_bytes.push((stripe.devid, stripe_bytes)),
            }
        }
        let start = chunk.logical();
        ChunkItems {
            logical: start,
            len: chunk.len_bytes(),
            flags: chunk.flags(),
            chunk: ChunkItem {
                key: chunk_key(start),
                bytes: [head.as_bytes(), stripes.as_bytes()].concat(),
            },
            dev_extents: dev_extents.collect(),
            block_group: ChunkItem {
                key: Key::new(start.0, KeyType::BLOCK_GROUP_ITEM, chunk.len_bytes()),
                bytes: group.as_bytes().to_vec(),
            },
            stripes,
            device_bytes,
        }
    }
}

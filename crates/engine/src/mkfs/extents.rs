//! Extent items of tree blocks: one reference each, from the tree that owns the block.

use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::Logical;
use ubtrfs_format::item::{ExtentFlags, ExtentHead, TreeBlockInfo};
use ubtrfs_format::key::{Key, KeyType};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::options::Geometry;
use super::trees::{GENERATION, Item, PlacedBlock, Placement};

/// The items of all blocks placed so far.
pub(super) fn items(geometry: &Geometry, known: &Placement) -> Vec<Item> {
    let skinny = geometry
        .features
        .incompat
        .contains(Incompat::SKINNY_METADATA);
    let nodesize = u64::from(geometry.nodesize);
    let item = |(&logical, block): (&Logical, &PlacedBlock)| {
        let key = match skinny {
            true => Key::new(logical.0, KeyType::METADATA_ITEM, u64::from(block.level)),
            false => Key::new(logical.0, KeyType::EXTENT_ITEM, nodesize),
        };
        Item {
            key,
            data: extent(block, skinny),
        }
    };
    known.blocks.iter().map(item).collect()
}

fn extent(block: &PlacedBlock, skinny: bool) -> Vec<u8> {
    let head = ExtentHead {
        refs: 1.into(),
        generation: GENERATION.into(),
        flags: ExtentFlags::TREE_BLOCK.bits().into(),
    };
    let mut bytes = head.as_bytes().to_vec();
    if !skinny {
        let info = TreeBlockInfo {
            key: block.first_key.into(),
            level: block.level,
        };
        bytes.extend_from_slice(info.as_bytes());
    }
    bytes.push(KeyType::TREE_BLOCK_REF.0);
    bytes.extend_from_slice(U64::new(block.owner.0).as_bytes());
    bytes
}

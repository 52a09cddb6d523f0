//! Defects of items in the extent, checksum and free-space trees.

use crate::golden::{GENERATION, Leaf, check_with};
use crate::refuses;
use ubtrfs_format::check::{
    CorruptBlock, CorruptBlockGroup, CorruptCsumItem, CorruptExtent, CorruptExtentRef,
    CorruptFreeSpace, CorruptItem,
};
use ubtrfs_format::features::Incompat;
use ubtrfs_format::item::{
    BlockGroupItem, ExtentDataRef, ExtentFlags, ExtentHead, FreeSpaceInfo, SharedDataRef,
    TreeBlockInfo,
};
use ubtrfs_format::key::KeyType;
use zerocopy::FromBytes;

const EXTENT: KeyType = KeyType::EXTENT_ITEM;
const METADATA: KeyType = KeyType::METADATA_ITEM;
const HEAD: usize = size_of::<ExtentHead>();

/// Finds the first EXTENT_ITEM of a leaf with a first inline reference of this type.
fn with_ref(leaf: &Leaf, item_type: KeyType, ref_type: KeyType) -> usize {
    let mut found = leaf
        .items
        .iter()
        .position(|(key, item)| key.item_type == item_type && item.get(HEAD) == Some(&ref_type.0));
    found.take().expect("such an item")
}

fn data_ref(item: &mut [u8]) -> &mut ExtentDataRef {
    let (data, _) = ExtentDataRef::mut_from_prefix(&mut item[HEAD + 1..]).expect("reference");
    data
}

/// Returns the first data reference of the first extent that has one.
fn first_data_ref(leaf: &mut Leaf) -> &mut ExtentDataRef {
    let slot = with_ref(leaf, EXTENT, KeyType::EXTENT_DATA_REF);
    data_ref(&mut leaf.items[slot].1)
}

#[test]
fn extent_heads_have_limits() {
    use CorruptExtent as C;
    use CorruptItem::Extent;
    refuses!(
        "extents",
        |leaf| leaf.key(EXTENT, 0).objectid += 1,
        Extent(C::Alignment)
    );
    refuses!(
        "extents",
        |leaf| leaf.key(METADATA, 0).offset = 8,
        Extent(C::Level(8))
    );
    refuses!(
        "extents",
        |leaf| leaf
            .view::<ExtentHead>(EXTENT, 0)
            .generation
            .set(GENERATION + 2),
        Extent(C::Generation { .. })
    );
    refuses!(
        "extents",
        |leaf| leaf.view::<ExtentHead>(EXTENT, 0).flags.set(3),
        Extent(C::Kind(3))
    );
    refuses!(
        "extents",
        |leaf| leaf.view::<ExtentHead>(EXTENT, 0).flags.set(0),
        Extent(C::Kind(0))
    );
    refuses!(
        "extents",
        |leaf| leaf.key(EXTENT, 0).offset += 1,
        Extent(C::DataLength(_))
    );
    refuses!(
        "extents",
        |leaf| {
            let flags = ExtentFlags::DATA | ExtentFlags::FULL_BACKREF;
            leaf.view::<ExtentHead>(EXTENT, 0).flags.set(flags.bits());
        },
        Extent(C::DataFullBackref)
    );
    refuses!(
        "extents",
        |leaf| leaf.view::<ExtentHead>(METADATA, 0).flags.set(1),
        Extent(C::DataIsMetadata)
    );
    refuses!(
        "extents",
        |leaf| leaf.bytes(EXTENT, 0).truncate(23),
        CorruptItem::Size {
            wanted: 24,
            found: 23
        }
    );
}

#[test]
fn skinny_items_need_their_feature() {
    let block = Leaf::golden("extents").build();
    let result = check_with(&block, |context| {
        context.incompat -= Incompat::SKINNY_METADATA
    });
    assert!(matches!(
        result,
        Err(CorruptBlock::Item {
            defect: CorruptItem::Extent(CorruptExtent::NotSkinny),
            ..
        })
    ));
}

/// Finds the first EXTENT_ITEM of a tree block.
fn fat(leaf: &Leaf) -> usize {
    let is_block = |item: &[u8]| item[16] == ExtentFlags::TREE_BLOCK.bits() as u8;
    let mut items = leaf.items.iter();
    items
        .position(|(key, item)| key.item_type == EXTENT && is_block(item))
        .expect("a tree block")
}

#[test]
fn tree_blocks_that_are_not_skinny_carry_key_and_level() {
    use CorruptExtent as C;
    use CorruptItem::Extent;
    refuses!(
        "extents_not_skinny",
        |leaf| {
            let slot = fat(leaf);
            leaf.items[slot].0.offset = 8192;
        },
        Extent(C::TreeBlockLength { .. })
    );
    refuses!(
        "extents_not_skinny",
        |leaf| {
            let slot = fat(leaf);
            leaf.items[slot].1[HEAD + size_of::<TreeBlockInfo>() - 1] = 8;
        },
        Extent(C::Level(8))
    );
    refuses!(
        "extents_not_skinny",
        |leaf| {
            let slot = fat(leaf);
            leaf.items[slot].1.truncate(HEAD + 1);
        },
        CorruptItem::Size {
            wanted: 42,
            found: 25
        }
    );
}

#[test]
fn inline_references_are_whole_and_counted() {
    use CorruptExtent as C;
    use CorruptItem::Extent;
    refuses!(
        "extents",
        |leaf| leaf.bytes(EXTENT, 0).push(1),
        Extent(C::RefType(1))
    );
    refuses!(
        "extents",
        |leaf| leaf.bytes(METADATA, 0)[HEAD] = 1,
        Extent(C::RefType(1))
    );
    refuses!(
        "extents",
        |leaf| leaf.bytes(METADATA, 0).truncate(HEAD + 8),
        Extent(C::RefCrossesEnd { rest: 8 })
    );
    refuses!(
        "extents",
        |leaf| leaf.view::<ExtentHead>(METADATA, 0).refs.set(0),
        Extent(C::RefCount { refs: 0, inline: 1 })
    );
}

#[test]
fn inline_references_have_limits() {
    use CorruptExtent::Ref;
    use CorruptExtentRef as C;
    use CorruptItem::Extent;
    refuses!(
        "extents",
        |leaf| first_data_ref(leaf).root.set(2),
        Extent(Ref(C::Root(2)))
    );
    refuses!(
        "extents",
        |leaf| first_data_ref(leaf).objectid.set(2),
        Extent(Ref(C::Inode(2)))
    );
    refuses!(
        "extents",
        |leaf| first_data_ref(leaf).offset.set(1),
        Extent(Ref(C::Offset(1)))
    );
    refuses!(
        "extents",
        |leaf| first_data_ref(leaf).count.set(0),
        Extent(Ref(C::NoCount))
    );
    refuses!(
        "extents_shared",
        |leaf| {
            let slot = with_ref(leaf, METADATA, KeyType::SHARED_BLOCK_REF);
            leaf.items[slot].1[HEAD + 1] = 1;
        },
        Extent(Ref(C::Parent(_)))
    );
    refuses!(
        "extents_shared",
        |leaf| {
            let slot = with_ref(leaf, EXTENT, KeyType::SHARED_DATA_REF);
            leaf.items[slot].1[HEAD + 1] = 1;
        },
        Extent(Ref(C::Parent(_)))
    );
    refuses!(
        "extents_shared",
        |leaf| {
            let slot = with_ref(leaf, EXTENT, KeyType::SHARED_DATA_REF);
            leaf.items[slot].1[HEAD + 9..][..4].fill(0);
        },
        Extent(Ref(C::NoCount))
    );
}

#[test]
fn inline_references_descend_within_a_type() {
    refuses!(
        "extents",
        |leaf| {
            let one = 1 + size_of::<ExtentDataRef>();
            let two = leaf.items.iter().position(|(_, item)| {
                item.len() >= HEAD + 2 * one
                    && item[HEAD] == KeyType::EXTENT_DATA_REF.0
                    && item[HEAD + one] == KeyType::EXTENT_DATA_REF.0
            });
            let slot = two.expect("an extent with two references");
            leaf.items[slot].1[HEAD..][..2 * one].rotate_left(one);
        },
        CorruptItem::Extent(CorruptExtent::RefOrder { .. })
    );
    refuses!(
        "extents",
        |leaf| {
            // An owner reference must precede all others.
            leaf.bytes(METADATA, 0)
                .extend([KeyType::EXTENT_OWNER_REF.0, 0, 1, 0, 0, 0, 0, 0, 0]);
        },
        CorruptItem::Extent(CorruptExtent::RefOrder { .. })
    );
}

#[test]
fn extents_do_not_overlap() {
    refuses!(
        "extents",
        |leaf| {
            leaf.end_at(EXTENT, 0);
            let (mut key, item) = leaf.items.last().expect("extent").clone();
            key.objectid += key.offset - 4096;
            leaf.items.push((key, item));
        },
        CorruptItem::Extent(CorruptExtent::Overlap { .. })
    );
}

#[test]
fn keyed_references_have_limits() {
    use CorruptExtentRef as C;
    use CorruptItem::ExtentRef;
    const KEYED: KeyType = KeyType::EXTENT_DATA_REF;
    const SHARED: KeyType = KeyType::SHARED_DATA_REF;
    refuses!(
        "extents_keyed",
        |leaf| leaf.view::<ExtentDataRef>(KEYED, 0).count.set(0),
        ExtentRef(C::NoCount)
    );
    refuses!(
        "extents_keyed",
        |leaf| leaf.view::<ExtentDataRef>(KEYED, 0).root.set(7),
        ExtentRef(C::Root(7))
    );
    refuses!(
        "extents_keyed",
        |leaf| leaf.bytes(KEYED, 0).push(0),
        CorruptItem::Size {
            wanted: 28,
            found: 29
        }
    );
    refuses!(
        "extents_keyed_shared",
        |leaf| leaf.view::<SharedDataRef>(SHARED, 0).count.set(0),
        ExtentRef(C::NoCount)
    );
    refuses!(
        "extents_keyed_shared",
        |leaf| leaf.key(SHARED, 0).offset += 1,
        ExtentRef(C::Parent(_))
    );
    refuses!(
        "extents_keyed_shared",
        |leaf| leaf.bytes(SHARED, 0).push(0),
        CorruptItem::Size {
            wanted: 4,
            found: 5
        }
    );
    refuses!(
        "extents_keyed_blocks",
        |leaf| leaf.bytes(KeyType::TREE_BLOCK_REF, 0).push(0),
        CorruptItem::Size {
            wanted: 0,
            found: 1
        }
    );
    refuses!(
        "extents_keyed_blocks",
        |leaf| leaf.key(KeyType::TREE_BLOCK_REF, 0).objectid += 1,
        ExtentRef(C::Extent(_))
    );
}

#[test]
fn block_groups_hold_what_they_say() {
    use CorruptBlockGroup as C;
    use CorruptItem::BlockGroup;
    const GROUP: KeyType = KeyType::BLOCK_GROUP_ITEM;
    refuses!(
        "block_groups",
        |leaf| leaf.key(GROUP, 0).offset = 0,
        BlockGroup(C::NoLength)
    );
    refuses!(
        "block_groups",
        |leaf| leaf.view::<BlockGroupItem>(GROUP, 0).used.set(1 << 60),
        BlockGroup(C::Used { .. })
    );
    refuses!(
        "block_groups",
        |leaf| leaf.view::<BlockGroupItem>(GROUP, 0).chunk_objectid.set(1),
        BlockGroup(C::ChunkObjectid(1))
    );
    refuses!(
        "block_groups",
        |leaf| leaf.view::<BlockGroupItem>(GROUP, 0).flags.set(1 | 3 << 3),
        BlockGroup(C::Profile(_))
    );
    for flags in [0, 1 | 2, 2 | 4, 7] {
        let mut leaf = Leaf::golden("block_groups");
        leaf.view::<BlockGroupItem>(GROUP, 0).flags.set(flags);
        let error = leaf.check().expect_err("type").to_string();
        assert!(error.contains("have no type"), "{error}");
    }
    refuses!(
        "block_groups",
        |leaf| leaf.bytes(GROUP, 0).push(0),
        CorruptItem::Size {
            wanted: 24,
            found: 25
        }
    );
}

#[test]
fn sums_are_whole_and_do_not_overlap() {
    use CorruptCsumItem as C;
    use CorruptItem::Csum;
    const SUMS: KeyType = KeyType::EXTENT_CSUM;
    refuses!(
        "csums",
        |leaf| {
            leaf.end_at(SUMS, 0);
            leaf.key(SUMS, 0).objectid = 7;
        },
        Csum(C::Objectid(7))
    );
    refuses!(
        "csums",
        |leaf| leaf.key(SUMS, 0).offset += 1,
        Csum(C::Alignment(_))
    );
    refuses!(
        "csums",
        |leaf| leaf.bytes(SUMS, 0).truncate(5),
        Csum(C::PartialSum { len: 5, .. })
    );
    refuses!(
        "csums",
        |leaf| leaf.key(SUMS, 1).offset = leaf.items[0].0.offset + 4096,
        Csum(C::Overlap { .. })
    );
}

#[test]
fn free_space_lies_within_its_block_group() {
    use CorruptFreeSpace as C;
    use CorruptItem::FreeSpace;
    const INFO: KeyType = KeyType::FREE_SPACE_INFO;
    const EXTENT: KeyType = KeyType::FREE_SPACE_EXTENT;
    const BITMAP: KeyType = KeyType::FREE_SPACE_BITMAP;
    refuses!(
        "free_space",
        |leaf| leaf.key(INFO, 0).objectid += 1,
        FreeSpace(C::Start)
    );
    refuses!(
        "free_space",
        |leaf| leaf.key(INFO, 0).offset = 0,
        FreeSpace(C::Length)
    );
    refuses!(
        "free_space",
        |leaf| leaf.key(EXTENT, 0).offset += 1,
        FreeSpace(C::Length)
    );
    refuses!(
        "free_space",
        |leaf| leaf.view::<FreeSpaceInfo>(INFO, 0).flags.set(2),
        FreeSpace(C::Flags(2))
    );
    refuses!(
        "free_space",
        |leaf| leaf
            .view::<FreeSpaceInfo>(INFO, 0)
            .extent_count
            .set(u32::MAX),
        FreeSpace(C::ExtentCount { .. })
    );
    refuses!(
        "free_space",
        |leaf| leaf.view::<FreeSpaceInfo>(INFO, 0).flags.set(1),
        FreeSpace(C::Form { .. })
    );
    refuses!(
        "free_space",
        |leaf| leaf.key(EXTENT, 0).offset = 1 << 50,
        FreeSpace(C::Outside { .. })
    );
    refuses!(
        "free_space",
        |leaf| {
            let slots = 1..leaf.items.len();
            let kind = |slot: usize| leaf.items[slot].0.item_type;
            let slot = slots
                .into_iter()
                .find(|&slot| (kind(slot - 1), kind(slot)) == (EXTENT, EXTENT));
            let slot = slot.expect("neighbours");
            let start = leaf.items[slot].0.objectid;
            let before = &mut leaf.items[slot - 1].0;
            before.offset = start - before.objectid + 4096;
        },
        FreeSpace(C::Overlap { .. })
    );
    refuses!(
        "free_space",
        |leaf| leaf.bytes(EXTENT, 0).push(0),
        CorruptItem::Size {
            wanted: 0,
            found: 1
        }
    );
    refuses!(
        "free_space_bitmaps",
        |leaf| {
            leaf.bytes(BITMAP, 0).pop();
        },
        FreeSpace(C::BitmapSize { .. })
    );
}

//! Defects of items in the root, chunk, device, quota and UUID trees.

use crate::golden::{GENERATION, Leaf, check_with};
use crate::refuses;
use ubtrfs_format::check::{
    CorruptBlock, CorruptChunk, CorruptDev, CorruptItem, CorruptName, CorruptRaidStripe,
    CorruptRoot, RootGeneration,
};
use ubtrfs_format::features::Incompat;
use ubtrfs_format::item::{Chunk, DevExtent, DevItem, RootItem, RootRefHead};
use ubtrfs_format::key::{Key, KeyType};

const ROOT: KeyType = KeyType::ROOT_ITEM;

#[test]
fn root_items_have_limits() {
    use CorruptItem::Root;
    use CorruptRoot as C;
    use RootGeneration as G;
    refuses!(
        "roots",
        |leaf| leaf.items[0].0 = Key::new(0, ROOT, 0),
        Root(C::NoId)
    );
    refuses!(
        "roots",
        |leaf| {
            let item = leaf.bytes(ROOT, 0).clone();
            leaf.items = vec![(Key::new(-8i64 as u64, ROOT, 2), item)];
        },
        Root(C::RelocatedTree(2))
    );
    refuses!(
        "roots",
        |leaf| leaf
            .view::<RootItem>(ROOT, 0)
            .generation
            .set(GENERATION + 2),
        Root(C::Generation {
            field: G::Generation,
            ..
        })
    );
    refuses!(
        "roots",
        |leaf| leaf
            .view::<RootItem>(ROOT, 0)
            .generation_v2
            .set(GENERATION + 2),
        Root(C::Generation {
            field: G::GenerationV2,
            ..
        })
    );
    refuses!(
        "roots",
        |leaf| leaf
            .view::<RootItem>(ROOT, 0)
            .last_snapshot
            .set(GENERATION + 2),
        Root(C::Generation {
            field: G::LastSnapshot,
            ..
        })
    );
    refuses!(
        "roots",
        |leaf| leaf.view::<RootItem>(ROOT, 0).bytenr.set(7),
        Root(C::Bytenr(7))
    );
    refuses!(
        "roots",
        |leaf| leaf.view::<RootItem>(ROOT, 0).level = 8,
        Root(C::Level(8))
    );
    refuses!(
        "roots",
        |leaf| leaf.view::<RootItem>(ROOT, 0).drop_level = 8,
        Root(C::DropLevel(8))
    );
    refuses!(
        "roots",
        |leaf| leaf.view::<RootItem>(ROOT, 0).flags.set(6),
        Root(C::Flags(6))
    );
    refuses!(
        "roots",
        |leaf| leaf.bytes(ROOT, 0).truncate(240),
        CorruptItem::Size {
            wanted: 439,
            found: 240
        }
    );
}

#[test]
fn old_root_items_pass() {
    let mut leaf = Leaf::golden("roots");
    leaf.bytes(ROOT, 0).truncate(239);
    assert_eq!(leaf.check(), Ok(()));
}

#[test]
fn references_to_roots_hold_one_name() {
    use CorruptItem::Name;
    use CorruptName as C;
    refuses!(
        "roots",
        |leaf| leaf
            .view::<RootRefHead>(KeyType::ROOT_REF, 0)
            .name_len
            .set(0),
        Name(C::CrossesEnd { .. })
    );
    refuses!(
        "roots",
        |leaf| leaf.bytes(KeyType::ROOT_BACKREF, 0).push(0),
        Name(C::CrossesEnd { .. })
    );
    refuses!(
        "roots",
        |leaf| leaf.bytes(KeyType::ROOT_REF, 0).truncate(17),
        CorruptItem::Size {
            wanted: 18,
            found: 17
        }
    );
}

const CHUNK: KeyType = KeyType::CHUNK_ITEM;

#[test]
fn chunks_have_limits() {
    use CorruptChunk as C;
    use CorruptItem::Chunk as Item;
    type Edit = fn(&mut Chunk);
    type Expected = fn(&C) -> bool;
    let edit_and_expect: [(Edit, Expected); 13] = [
        (|chunk| chunk.num_stripes.set(0), |c| *c == C::NoStripes),
        (
            |chunk| chunk.sector_size.set(512),
            |c| matches!(c, C::Sectorsize { found: 512, .. }),
        ),
        (|chunk| chunk.length.set(0), |c| *c == C::Length(0)),
        (|chunk| chunk.length.set(1), |c| *c == C::Length(1)),
        (
            |chunk| chunk.length.set(0u64.wrapping_sub(4096)),
            |c| matches!(c, C::End { .. }),
        ),
        (
            |chunk| chunk.length.set(1 << 60),
            |c| *c == C::TooLong(1 << 60),
        ),
        (
            |chunk| chunk.stripe_len.set(4096),
            |c| *c == C::StripeLen(4096),
        ),
        (
            |chunk| chunk.type_.set(1 << 40),
            |c| *c == C::UnknownType(1 << 40),
        ),
        (
            |chunk| chunk.type_.set(1 | 3 << 3),
            |c| matches!(c, C::Profile(_)),
        ),
        (|chunk| chunk.type_.set(0), |c| *c == C::NoType(0)),
        (|chunk| chunk.type_.set(3), |c| *c == C::MixedSystem(3)),
        (
            |chunk| chunk.type_.set(1 | 1 << 9),
            |c| matches!(c, C::StripeCount { .. }),
        ),
        (
            |chunk| chunk.type_.set(1 | 1 << 6),
            |c| matches!(c, C::StripeCount { .. }),
        ),
    ];
    for (edit, expected) in edit_and_expect {
        let mut leaf = Leaf::golden("chunks");
        edit(leaf.view::<Chunk>(CHUNK, 0));
        match leaf.check() {
            Err(CorruptBlock::Item {
                defect: Item(defect),
                ..
            }) if expected(&defect) => {}
            other => panic!("{other:?}"),
        }
    }
    refuses!(
        "chunks",
        |leaf| leaf.key(CHUNK, 0).offset += 1,
        Item(C::Alignment(_))
    );
    refuses!(
        "chunks",
        |leaf| leaf.bytes(CHUNK, 0).push(0),
        CorruptItem::Size {
            wanted: 80,
            found: 81
        }
    );
}

#[test]
fn mixed_chunks_need_their_feature() {
    let mut leaf = Leaf::golden("chunks");
    leaf.view::<Chunk>(CHUNK, 0).type_.set(1 | 4);
    assert_eq!(leaf.check(), Ok(()));
    let result = check_with(&leaf.build(), |context| {
        context.incompat -= Incompat::MIXED_GROUPS;
    });
    assert!(matches!(
        result,
        Err(CorruptBlock::Item {
            defect: CorruptItem::Chunk(CorruptChunk::Mixed(5)),
            ..
        })
    ));
}

#[test]
fn devices_have_limits() {
    use CorruptDev as C;
    use CorruptItem::Dev;
    const DEV: KeyType = KeyType::DEV_ITEM;
    refuses!(
        "chunks",
        |leaf| leaf.key(DEV, 0).objectid = 0,
        Dev(C::Objectid(0))
    );
    refuses!(
        "chunks",
        |leaf| leaf.view::<DevItem>(DEV, 0).devid.set(9),
        Dev(C::Devid { .. })
    );
    refuses!(
        "chunks",
        |leaf| leaf.view::<DevItem>(DEV, 0).bytes_used.set(u64::MAX),
        Dev(C::BytesUsed { .. })
    );
    refuses!(
        "chunks",
        |leaf| leaf.bytes(DEV, 0).push(0),
        CorruptItem::Size {
            wanted: 98,
            found: 99
        }
    );
}

#[test]
fn device_extents_have_limits_and_do_not_overlap() {
    use CorruptDev as C;
    use CorruptItem::Dev;
    const EXTENT: KeyType = KeyType::DEV_EXTENT;
    let view: fn(&mut Leaf) -> &mut DevExtent = |leaf| leaf.view(EXTENT, 0);
    type Edit = fn(&mut DevExtent);
    let edit_and_expect: [(Edit, C); 4] = [
        (|extent| extent.chunk_tree.set(1), C::ChunkTree(1)),
        (|extent| extent.chunk_objectid.set(1), C::ChunkObjectid(1)),
        (|extent| extent.chunk_offset.set(1), C::ChunkOffset(1)),
        (|extent| extent.length.set(1), C::Length(1)),
    ];
    for (edit, expected) in edit_and_expect {
        let mut leaf = Leaf::golden("dev_extents");
        edit(view(&mut leaf));
        match leaf.check() {
            Err(CorruptBlock::Item {
                defect: Dev(defect),
                ..
            }) => assert_eq!(defect, expected),
            other => panic!("{other:?}"),
        }
    }
    refuses!(
        "dev_extents",
        |leaf| leaf.key(EXTENT, 0).offset += 1,
        Dev(C::Physical(_))
    );
    refuses!(
        "dev_extents",
        |leaf| leaf.view::<DevExtent>(EXTENT, 0).length.set(1 << 50),
        Dev(C::Overlap { .. })
    );
    refuses!(
        "dev_extents",
        |leaf| leaf.bytes(KeyType::DEV_STATS, 0).truncate(39),
        CorruptItem::Size {
            wanted: 40,
            found: 39
        }
    );
}

#[test]
fn quota_and_uuid_items_have_their_sizes() {
    for item_type in [
        KeyType::QGROUP_STATUS,
        KeyType::QGROUP_INFO,
        KeyType::QGROUP_LIMIT,
        KeyType::QGROUP_RELATION,
    ] {
        let mut leaf = Leaf::golden("quota");
        leaf.bytes(item_type, 0).push(0);
        assert!(matches!(
            leaf.check(),
            Err(CorruptBlock::Item {
                defect: CorruptItem::Size { .. },
                ..
            })
        ));
    }
    refuses!(
        "uuids",
        |leaf| leaf.bytes(KeyType::UUID_KEY_SUBVOL, 0).push(0),
        CorruptItem::Size { wanted: 8, .. }
    );
}

#[test]
fn stripes_of_extents_need_their_feature() {
    use CorruptItem::RaidStripe;
    use CorruptRaidStripe as C;
    refuses!(
        "uuids",
        |leaf| leaf.items[0].0 = Key::new(4096, KeyType::RAID_STRIPE, 0),
        RaidStripe(C::NoFeature)
    );
    refuses!(
        "uuids",
        |leaf| leaf.items[0].0 = Key::new(1, KeyType::RAID_STRIPE, 0),
        RaidStripe(C::Alignment(1))
    );
}

//! Defects of headers, packing, order and child pointers.

use crate::golden::{self, GENERATION, Leaf, NODESIZE, check, check_with, seal};
use std::mem::offset_of;
use ubtrfs_format::check::{BlockContext, CorruptBlock, Expect, check_block};
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::{HEADER_SIZE, Header, ITEM_HEAD_SIZE, KeyPtr, Node, header_flags};
use ubtrfs_format::uuid::Uuid;

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

fn edited(name: &str, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut block = golden::block(name);
    put(&mut block, at, bytes);
    seal(&mut block);
    block
}

fn expecting(name: &str, edit: impl FnOnce(&mut Expect)) -> Result<(), CorruptBlock> {
    let block = golden::block(name);
    let node = Node::new(&block).expect("4 KiB");
    let mut expect = Expect::at(node.bytenr());
    edit(&mut expect);
    check_block(&block, &golden::context(&node.header().fsid), &expect)
}

#[test]
fn blocks_of_the_kernel_pass() {
    let names = golden::names();
    assert!(names.len() > 15);
    for name in names {
        check(&golden::block(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn facts_that_the_parent_knows_are_compared() {
    let block = golden::block("files");
    let node = Node::new(&block).expect("4 KiB");
    let (generation, key) = (node.generation(), node.key(0));
    assert_eq!(
        expecting("files", |expect| {
            expect.level = Some(0);
            expect.generation = Some(generation);
            expect.owner = Some(RootId::FS_TREE);
            expect.first_key = key;
        }),
        Ok(())
    );
    assert!(matches!(
        expecting("files", |expect| expect.bytenr = Logical(8192)),
        Err(CorruptBlock::Bytenr { .. })
    ));
    assert!(matches!(
        expecting("files", |expect| expect.level = Some(1)),
        Err(CorruptBlock::Level {
            wanted: 1,
            found: 0
        })
    ));
    assert!(matches!(
        expecting("files", |expect| expect.generation = Some(Transid(1))),
        Err(CorruptBlock::Generation { .. })
    ));
    assert!(matches!(
        expecting("files", |expect| expect.first_key = Some(Key::MIN)),
        Err(CorruptBlock::FirstKey { .. })
    ));
}

#[test]
fn subvolumes_share_blocks_and_other_trees_do_not() {
    let owner = |name, owner| expecting(name, |expect| expect.owner = Some(owner));
    assert_eq!(owner("files", RootId(300)), Ok(()));
    assert_eq!(owner("csums", RootId::CSUM_TREE), Ok(()));
    assert!(matches!(
        owner("files", RootId::CSUM_TREE),
        Err(CorruptBlock::Owner { .. })
    ));
    assert!(matches!(
        owner("csums", RootId::FS_TREE),
        Err(CorruptBlock::Owner { .. })
    ));
}

#[test]
fn changed_bytes_are_found_by_the_checksum() {
    let mut block = golden::block("files");
    block[NODESIZE - 1] ^= 1;
    assert!(matches!(check(&block), Err(CorruptBlock::Csum(_))));
}

#[test]
fn a_block_of_another_size_is_refused() {
    let mut block = golden::block("files");
    block.truncate(NODESIZE / 2);
    assert!(matches!(check(&block), Err(CorruptBlock::Size { .. })));
}

#[test]
fn blocks_of_another_volume_are_refused_unless_it_is_a_seed() {
    let block = golden::block("files");
    let node = Node::new(&block).expect("4 KiB");
    let other = Uuid([7; 16]);
    let expect = Expect::at(node.bytenr());
    let mut context = golden::context(&other);
    assert!(matches!(
        check_block(&block, &context, &expect),
        Err(CorruptBlock::Fsid { .. })
    ));
    let seeds = [node.header().fsid];
    context.seed_fsids = &seeds;
    assert_eq!(check_block(&block, &context, &expect), Ok(()));
}

#[test]
fn header_fields_have_limits() {
    let chunk_tree = Uuid([9; 16]);
    assert!(matches!(
        check_with(&golden::block("files"), |context: &mut BlockContext<'_>| {
            context.chunk_tree_uuid = Some(Box::leak(Box::new(chunk_tree)));
        }),
        Err(CorruptBlock::ChunkTreeUuid { .. })
    ));
    let future = (GENERATION + 2).to_le_bytes();
    assert!(matches!(
        check(&edited("files", offset_of!(Header, generation), &future)),
        Err(CorruptBlock::FutureGeneration { .. })
    ));
    assert!(matches!(
        check(&edited("files", offset_of!(Header, level), &[8])),
        Err(CorruptBlock::LevelRange(8))
    ));
    let flags = header_flags::MIXED_BACKREF_REV << header_flags::BACKREF_REV_SHIFT;
    assert!(matches!(
        check(&edited(
            "files",
            offset_of!(Header, flags),
            &flags.to_le_bytes()
        )),
        Err(CorruptBlock::NotWritten { .. })
    ));
    assert!(matches!(
        check(&edited("files", offset_of!(Header, owner), &[0; 8])),
        Err(CorruptBlock::NoOwner)
    ));
}

#[test]
fn only_some_trees_have_empty_leaves() {
    let nritems = offset_of!(Header, nritems);
    assert_eq!(check(&edited("csums", nritems, &[0; 4])), Ok(()));
    assert_eq!(check(&edited("quota", nritems, &[0; 4])), Ok(()));
    for name in ["roots", "extents", "chunks", "dev_extents", "files"] {
        let block = edited(name, nritems, &[0; 4]);
        assert!(
            matches!(check(&block), Err(CorruptBlock::EmptyLeaf { .. })),
            "{name}"
        );
    }
    let mut relocated = edited("files", nritems, &[0; 4]);
    relocated[offset_of!(Header, flags)] |= header_flags::RELOC as u8;
    seal(&mut relocated);
    assert_eq!(check(&relocated), Ok(()));
}

#[test]
fn more_slots_than_room_are_refused() {
    let nritems = offset_of!(Header, nritems);
    for name in ["files", "node"] {
        for count in [1_000, u32::MAX] {
            let block = edited(name, nritems, &count.to_le_bytes());
            assert!(
                matches!(check(&block), Err(CorruptBlock::Slots { .. })),
                "{name}"
            );
        }
    }
}

// CHECK-2 for the keys.
#[test]
fn keys_ascend_strictly() {
    let mut leaf = Leaf::golden("files");
    leaf.items.swap(1, 2);
    assert!(matches!(
        leaf.check(),
        Err(CorruptBlock::KeyOrder { slot: 2, .. })
    ));
    let mut leaf = Leaf::golden("quota");
    let first = leaf.items[1].0;
    leaf.items[2].0 = first;
    assert!(matches!(
        leaf.check(),
        Err(CorruptBlock::KeyOrder { slot: 2, .. })
    ));
    let second = HEADER_SIZE + size_of::<KeyPtr>();
    assert!(matches!(
        check(&edited("node", second, &[0; 17])),
        Err(CorruptBlock::KeyOrder { slot: 1, .. })
    ));
}

// CHECK-2 for the items.
#[test]
fn items_are_packed_from_the_end() {
    let block = golden::block("files");
    let size_at = |slot: usize| HEADER_SIZE + slot * ITEM_HEAD_SIZE + 21;
    let size = u32::from_le_bytes(block[size_at(3)..][..4].try_into().expect("4 bytes"));
    for wrong in [size + 1, size - 1, u32::MAX] {
        assert!(matches!(
            check(&edited("files", size_at(3), &wrong.to_le_bytes())),
            Err(CorruptBlock::ItemEnd { slot: 3, .. })
        ));
    }
    // The last item is extended downwards over the heads.
    let mut leaf = Leaf::golden("files");
    let last = leaf.items.len() - 1;
    leaf.items[last].0.item_type = KeyType(255);
    let mut block = leaf.build();
    let node = Node::new(&block).expect("4 KiB");
    let head = node.heads()[last];
    let at = HEADER_SIZE + last * ITEM_HEAD_SIZE + 17;
    let end = head.offset.get() + head.size.get();
    put(&mut block, at, &8u32.to_le_bytes());
    put(&mut block, at + 4, &(end - 8).to_le_bytes());
    seal(&mut block);
    assert!(matches!(
        check(&block),
        Err(CorruptBlock::ItemOverHeads { offset: 8, .. })
    ));
}

/// CHECK-3
#[test]
fn first_defect_in_slot_order_is_reported() {
    let mut block = golden::block("files");
    let head_at = |slot: usize| HEADER_SIZE + slot * ITEM_HEAD_SIZE;
    let mut reported = Vec::new();
    // Corrupts a size, a key, a size and a key, from the last slot to the first.
    for slot in [7, 6, 5, 4] {
        match slot % 2 {
            0 => put(&mut block, head_at(slot), &[0; 17]),
            _ => put(&mut block, head_at(slot) + 21, &[0xff; 4]),
        }
        seal(&mut block);
        reported.push(match check(&block) {
            Err(CorruptBlock::KeyOrder { slot, .. } | CorruptBlock::ItemEnd { slot, .. }) => slot,
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(reported, [7, 6, 5, 4]);
}

#[test]
fn child_pointers_lead_somewhere() {
    let pointer = HEADER_SIZE + 2 * size_of::<KeyPtr>() + offset_of!(KeyPtr, blockptr);
    assert!(matches!(
        check(&edited("node", pointer, &[0; 8])),
        Err(CorruptBlock::ChildNull { slot: 2 })
    ));
    assert!(matches!(
        check(&edited("node", pointer, &[1])),
        Err(CorruptBlock::ChildAlignment { slot: 2, .. })
    ));
    assert!(matches!(
        check(&edited("node", offset_of!(Header, nritems), &[0; 4])),
        Err(CorruptBlock::EmptyNode)
    ));
}

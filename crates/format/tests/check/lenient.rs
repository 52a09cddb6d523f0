//! Items of damaged leaves: each defect stays with its item.

use ubtrfs_format::check::{CorruptBlock, LenientItem, lenient_items};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::{HEADER_SIZE, ITEM_HEAD_SIZE, Node};

use crate::golden::{self, NODESIZE};

fn leaves() -> impl Iterator<Item = (String, Vec<u8>)> {
    let blocks = golden::names().into_iter().map(|name| {
        let block = golden::block(&name);
        (name, block)
    });
    blocks
        .filter(|(_, block)| Node::new(block).is_some_and(|node| node.len() > 2 && node.is_leaf()))
}

pub(crate) fn items(block: &[u8]) -> Vec<LenientItem<'_>> {
    let node = Node::new(block).unwrap();
    let fsid = node.header().fsid;
    lenient_items(node, &golden::context(&fsid))
}

fn head_at(slot: usize) -> usize {
    HEADER_SIZE + slot * ITEM_HEAD_SIZE
}

/// Returns the slots with defects.
fn defective(block: &[u8]) -> Vec<u32> {
    let items = items(block);
    let defective = items.iter().filter(|item| !item.is_sound());
    defective.map(|item| item.slot).collect()
}

/// LENIENT-1
#[test]
fn valid_leaf_has_its_items_without_defects() {
    let mut leaves_seen = 0;
    for (name, block) in leaves() {
        let items = items(&block);
        let node = Node::new(&block).unwrap();
        assert_eq!(defective(&block), [0u32; 0], "{name}");
        let found = items.iter().map(|item| (item.key, item.bytes.unwrap()));
        assert!(found.eq(node.items()), "{name}");
        leaves_seen += 1;
    }
    assert!(leaves_seen > 3);
}

#[test]
fn interior_node_has_no_items() {
    for name in golden::names() {
        let block = golden::block(&name);
        if !Node::new(&block).unwrap().is_leaf() {
            assert!(items(&block).is_empty(), "{name}");
        }
    }
}

/// At the ends of a leaf, the neighbour could be the wrong one as well.
#[test]
fn key_that_is_too_high_or_too_low_is_the_only_defective_one() {
    for (name, block) in leaves() {
        let count = Node::new(&block).unwrap().len();
        for slot in 2..count.saturating_sub(2) {
            for objectid in [[0xff; 8], [0; 8]] {
                let mut damaged = block.clone();
                damaged[head_at(slot)..][..8].copy_from_slice(&objectid);
                if damaged == block {
                    continue;
                }
                let items = items(&damaged);
                for item in &items {
                    let is_out_of_order = item
                        .defects
                        .iter()
                        .any(|it| matches!(it, CorruptBlock::KeyOrder { .. }));
                    assert_eq!(
                        is_out_of_order,
                        item.slot as usize == slot,
                        "{name}, {slot}"
                    );
                    assert!(item.bytes.is_some());
                }
            }
        }
    }
}

#[test]
fn item_with_a_wrong_place_leaves_the_others_sound() {
    for (name, block) in leaves() {
        let count = Node::new(&block).unwrap().len();
        for slot in 0..count {
            for offset in [u32::MAX, NODESIZE as u32, 0] {
                let mut damaged = block.clone();
                let at = head_at(slot) + 17;
                damaged[at..at + 4].copy_from_slice(&offset.to_le_bytes());
                let items = items(&damaged);
                for item in &items {
                    let is_misplaced = item.defects.iter().any(|defect| {
                        matches!(
                            defect,
                            CorruptBlock::ItemEnd { .. } | CorruptBlock::ItemOverHeads { .. }
                        )
                    });
                    assert_eq!(is_misplaced, item.slot as usize == slot, "{name}, {slot}");
                }
                let is_outside = offset as usize >= NODESIZE;
                let size = Node::new(&block).unwrap().heads()[slot].size.get();
                if is_outside && size > 0 {
                    assert_eq!(items[slot].bytes, None, "{name}, {slot}");
                }
            }
        }
    }
}

/// The kernel requires an inode's items to follow its INODE_ITEM. A defective neighbour is no reason to lose them.
#[test]
fn defect_of_an_inode_item_stays_with_it() {
    let mut tried = 0;
    for (name, block) in leaves() {
        let node = Node::new(&block).unwrap();
        let is_inode =
            |&(_, (key, _)): &(usize, (Key, &[u8]))| key.item_type == KeyType::INODE_ITEM;
        let Some((slot, _)) = node.items().enumerate().find(is_inode) else {
            continue;
        };
        let head = node.heads()[slot];
        let start = HEADER_SIZE + head.offset.get() as usize;
        let mut damaged = block.clone();
        // The generation of the inode exceeds the volume's.
        damaged[start..start + 8].fill(0xff);
        assert_eq!(defective(&damaged), [slot as u32], "{name}");
        tried += 1;
    }
    assert!(tried > 0);
}

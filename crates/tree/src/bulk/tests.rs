//! Trees of known items, read back with the block accessors of `ubtrfs_format`.

use std::collections::BTreeMap;

use ubtrfs_format::key::KeyType;
use ubtrfs_format::node::Node;

use ubtrfs_format::ids::Transid;
use ubtrfs_format::uuid::Uuid;

use super::*;
use crate::build::TreeBlock;

#[derive(Debug, Default)]
struct Collected {
    blocks: BTreeMap<Logical, TreeBlock>,
    next: u64,
}

impl BlockSink for Collected {
    type Error = BuildError;

    fn place(&mut self, _: u8, _: &Key) -> Result<Logical, BuildError> {
        self.next += 1 << 16;
        Ok(Logical(self.next))
    }

    fn emit(&mut self, block: TreeBlock) -> Result<(), BuildError> {
        assert!(self.blocks.insert(block.logical, block).is_none());
        Ok(())
    }
}

fn format(nodesize: usize) -> BlockFormat {
    BlockFormat {
        nodesize,
        fsid: Uuid([7; 16]),
        chunk_tree_uuid: Uuid([8; 16]),
        generation: Transid(3),
    }
}

fn items(count: u64) -> Vec<(Key, Vec<u8>)> {
    (0..count)
        .map(|n| {
            let key = Key::new(n / 7, KeyType((n % 7) as u8), n);
            (key, vec![n as u8; (n * 37 % 301) as usize])
        })
        .collect()
}

fn build(nodesize: usize, items: &[(Key, Vec<u8>)]) -> Result<(TreeRoot, Collected), BuildError> {
    let mut sink = Collected::default();
    let format = format(nodesize);
    let mut tree = BulkTree::new(&format, RootId::FS_TREE, &mut sink);
    for (key, data) in items {
        tree.push(*key, data)?;
    }
    let root = tree.finish()?;
    Ok((root, sink))
}

/// Collects all items below a block, in order. Checks the headers and keys on the way.
fn walk(found: &Collected, at: Logical, level: u8, first: Option<Key>) -> Vec<(Key, Vec<u8>)> {
    let block = &found.blocks[&at];
    let node = Node::new(&block.bytes).unwrap();
    assert_eq!(
        (node.level(), node.bytenr(), node.owner()),
        (level, at, RootId::FS_TREE)
    );
    if let Some(first) = first {
        assert_eq!(node.key(0), Some(first));
    }
    if node.is_leaf() {
        return node
            .items()
            .map(|(key, data)| (key, data.to_vec()))
            .collect();
    }
    node.ptrs()
        .iter()
        .flat_map(|ptr| {
            let child = Logical(ptr.blockptr.get());
            walk(found, child, level - 1, Some(ptr.key.get()))
        })
        .collect()
}

#[test]
fn every_item_is_found_again_in_order() {
    for nodesize in [4096, 16384, 65536] {
        for count in [0, 1, 2, 30, 1000, 40_000] {
            let items = items(count);
            let (root, found) = build(nodesize, &items).unwrap();
            assert!(walk(&found, root.logical, root.level, None) == items);
        }
    }
}

// BULK-3
#[test]
fn empty_tree_is_one_empty_leaf() {
    let (root, found) = build(4096, &[]).unwrap();
    assert_eq!((root.level, found.blocks.len()), (0, 1));
    assert!(
        Node::new(&found.blocks[&root.logical].bytes)
            .unwrap()
            .is_empty()
    );
}

// BULK-2
#[test]
fn blocks_before_the_last_of_a_level_have_no_room_for_the_next_entry() {
    let items = items(40_000);
    let (root, found) = build(4096, &items).unwrap();
    assert_eq!(root.level, 2);
    for level in 1..=root.level {
        let of_level: Vec<_> = found.blocks.values().filter(|b| b.level == level).collect();
        let (_, all_but_last) = of_level.split_last().unwrap();
        for block in all_but_last {
            assert_eq!(Node::new(&block.bytes).unwrap().len(), max_key_ptrs(4096));
        }
    }
    let used: usize = items
        .iter()
        .map(|(_, data)| data.len() + ITEM_HEAD_SIZE)
        .sum();
    let leaves = found.blocks.values().filter(|b| b.level == 0).count();
    assert!(leaves * (leaf_data_size(4096) - 301 - ITEM_HEAD_SIZE) <= used);
}

// BULK-4
#[test]
fn node_that_is_exactly_full_does_not_open_a_level() {
    let whole_leaf = vec![0; leaf_data_size(4096) - ITEM_HEAD_SIZE];
    let full = |leaves: u64| -> Vec<_> {
        (0..leaves)
            .map(|n| (Key::new(n, KeyType(1), 0), whole_leaf.clone()))
            .collect()
    };
    let fan = max_key_ptrs(4096) as u64;
    for (leaves, level, blocks) in [
        (1, 0, 1),
        (2, 1, 3),
        (fan, 1, fan + 1),
        (fan + 1, 2, fan + 4),
    ] {
        let (root, found) = build(4096, &full(leaves)).unwrap();
        assert_eq!((root.level, found.blocks.len() as u64), (level, blocks));
    }
}

// BULK-1
#[test]
fn item_out_of_order_is_refused() {
    let key = |n| Key::new(n, KeyType(1), 0);
    for (first, second) in [(1, 1), (2, 1)] {
        let error = build(4096, &[(key(first), vec![]), (key(second), vec![])]).unwrap_err();
        let (last, key) = (key(first), key(second));
        assert_eq!(error, BuildError::KeyOrder { last, key });
    }
}

#[test]
fn largest_item_fits_and_one_byte_more_is_refused() {
    let largest = leaf_data_size(4096) - ITEM_HEAD_SIZE;
    let one = |size| build(4096, &[(Key::MIN, vec![1; size])]);
    assert!(one(largest).is_ok());
    assert!(matches!(
        one(largest + 1),
        Err(BuildError::ItemTooLarge { .. })
    ));
}

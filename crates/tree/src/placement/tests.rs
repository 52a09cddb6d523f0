//! An extent tree that lists all blocks, its own as well.

use ubtrfs_format::ids::Transid;
use ubtrfs_format::key::KeyType;
use ubtrfs_format::node::Node;
use ubtrfs_format::uuid::Uuid;

use super::*;

const NODESIZE: usize = 4096;
const FILES: RootId = RootId::FS_TREE;
const FIRST_ADDRESS: u64 = 1 << 20;

/// A tree of files with many items, and an extent tree with an item for each block.
struct Volume {
    items: u64,
}

impl WholeTrees for Volume {
    type Error = BuildError;

    fn block_format(&self) -> BlockFormat {
        BlockFormat {
            nodesize: NODESIZE,
            fsid: Uuid([1; 16]),
            chunk_tree_uuid: Uuid([2; 16]),
            generation: Transid(1),
        }
    }

    fn trees(&self) -> Vec<RootId> {
        vec![RootId::EXTENT_TREE, FILES]
    }

    fn is_independent(&self, tree: RootId) -> bool {
        tree == FILES
    }

    fn each(
        &self,
        tree: RootId,
        known: &Placement,
        push: &mut PushItem<'_, BuildError>,
    ) -> Result<(), BuildError> {
        if tree == FILES {
            return (0..self.items)
                .try_for_each(|ino| push(Key::new(ino, KeyType::INODE_ITEM, 0), &[7; 160]));
        }
        known.blocks().iter().try_for_each(|(logical, block)| {
            let key = Key::new(logical.0, KeyType::METADATA_ITEM, u64::from(block.level));
            push(key, &[9; 33])
        })
    }
}

/// Places the trees in rounds. Returns the placement and the number of rounds.
fn settle(volume: &Volume) -> (Placement, usize) {
    let mut shapes = TreeShapes::default();
    let mut known = Placement::default();
    for round in 1..20 {
        shapes.measure(volume, &known).unwrap();
        let mut next = FIRST_ADDRESS;
        let placed = shapes.place(|_| {
            next += NODESIZE as u64;
            Ok::<_, BuildError>(Logical(next))
        });
        let placed = placed.unwrap();
        if placed == known {
            return (placed, round);
        }
        known = placed;
    }
    panic!("no stable placement");
}

fn build(volume: &Volume, placement: &Placement) -> Vec<TreeBlock> {
    let mut blocks = Vec::new();
    build_trees(volume, placement, &mut |block| {
        blocks.push(block);
        Ok(())
    })
    .unwrap();
    blocks
}

/// PLACEMENT-1
#[test]
fn trees_that_list_their_own_blocks_are_placed_and_built() {
    for items in [0, 1, 20, 3000] {
        let volume = Volume { items };
        let (placement, rounds) = settle(&volume);
        assert!(rounds > 2, "{items} items: {rounds} rounds");
        let blocks = build(&volume, &placement);
        let ascends = blocks.is_sorted_by(|one, next| one.logical < next.logical);
        assert!(ascends, "{items} items");

        let mut listed = Vec::new();
        for block in &blocks {
            let placed = placement.blocks()[&block.logical];
            assert_eq!(
                (placed.level, placed.first_key),
                (block.level, block.first_key)
            );
            let node = Node::new(&block.bytes).unwrap();
            assert_eq!(node.owner(), placed.owner);
            if node.owner() == RootId::EXTENT_TREE {
                listed.extend(node.items().map(|(key, _)| Logical(key.objectid)));
            }
        }
        let built: Vec<Logical> = blocks.iter().map(|block| block.logical).collect();
        assert_eq!(listed, built, "{items} items");
        for tree in volume.trees() {
            let own: Vec<Logical> = placement.addresses(tree).collect();
            assert_eq!(own.len() as u64, placement.blocks_of(tree));
            assert_eq!(own.last(), Some(&placement.root(tree).logical));
        }
    }
}

#[test]
fn independent_tree_is_measured_once() {
    let mut shapes = TreeShapes::default();
    let known = Placement::default();
    shapes.measure(&Volume { items: 3000 }, &known).unwrap();
    let first: Vec<_> = shapes.blocks().collect();
    // The items are not read again.
    shapes.measure(&Volume { items: 0 }, &known).unwrap();
    assert!(shapes.blocks().eq(first));
}

#[test]
fn error_of_an_address_ends_the_placement() {
    let mut shapes = TreeShapes::default();
    shapes
        .measure(&Volume { items: 3000 }, &Placement::default())
        .unwrap();
    let refused = BuildError::KeyOrder {
        last: Key::MIN,
        key: Key::MIN,
    };
    assert_eq!(shapes.place(|_| Err(refused)), Err(refused));
}

//! `apply` against a plain sorted map.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use ubtrfs_format::key::KeyType;
use ubtrfs_format::node::HEADER_SIZE;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_sim::{Progress, Rng, seed};

use super::*;
use crate::build::TreeBlock;

type Map = BTreeMap<Key, Vec<u8>>;

/// Blocks in memory and the calls of one batch, checked against the contract of [`ApplyIo`].
#[derive(Default)]
struct Memory {
    blocks: BTreeMap<Logical, Block>,
    next: u64,
    root: Logical,
    read: BTreeSet<Logical>,
    /// The children of the blocks that were read.
    below: BTreeSet<Logical>,
    retired: BTreeSet<Logical>,
    emitted: BTreeSet<Logical>,
    placed: usize,
    /// Items in the emitted leaves.
    in_leaves: usize,
    /// The highest number of new blocks placed in excess of the blocks retired so far.
    grown: usize,
}

impl Memory {
    fn begin(&mut self, root: Logical) {
        self.root = root;
        self.read.clear();
        self.below.clear();
        self.retired.clear();
        self.emitted.clear();
        self.placed = 0;
        self.in_leaves = 0;
        self.grown = 0;
    }
}

impl BlockSink for Memory {
    type Error = BuildError;

    fn place(&mut self, _: u8, _: &Key) -> Result<Logical, BuildError> {
        self.placed += 1;
        self.grown = self
            .grown
            .max(self.placed.saturating_sub(self.retired.len()));
        self.next += 1 << 16;
        Ok(Logical(self.next))
    }

    fn emit(&mut self, block: TreeBlock) -> Result<(), BuildError> {
        self.emitted.insert(block.logical);
        let bytes = Block::from_verified(block.bytes.into());
        if block.level == 0 {
            self.in_leaves += bytes.node().len();
        }
        // APPLY-2: the children exist already.
        for ptr in bytes.node().ptrs() {
            assert!(self.blocks.contains_key(&Logical(ptr.blockptr.get())));
        }
        assert!(self.blocks.insert(block.logical, bytes).is_none());
        Ok(())
    }
}

impl ApplyIo for Memory {
    fn read(&mut self, expect: &Expect) -> Result<Block, BuildError> {
        let place = expect.bytenr;
        let block = self.blocks[&place].clone();
        assert_eq!(Some(block.node().level()), expect.level);
        assert_eq!(Some(block.node().generation()), expect.generation);
        assert_eq!(Some(block.node().owner()), expect.owner);
        if expect.first_key.is_some() {
            assert_eq!(block.node().key(0), expect.first_key);
        }
        // APPLY-1
        assert!(self.read.insert(place), "read twice");
        assert!(
            place == self.root || self.below.contains(&place),
            "read before its parent"
        );
        let children = block.node().ptrs().iter();
        self.below
            .extend(children.map(|ptr| Logical(ptr.blockptr.get())));
        Ok(block)
    }

    fn retire(&mut self, old: &Block) -> Result<(), BuildError> {
        let place = old.node().bytenr();
        // APPLY-1, and APPLY-2: a new block is never retired.
        assert!(self.read.contains(&place), "retired without being read");
        assert!(!self.emitted.contains(&place), "made in vain");
        assert!(self.blocks.remove(&place).is_some(), "retired twice");
        self.retired.insert(place);
        Ok(())
    }
}

struct Tree {
    memory: Memory,
    format: BlockFormat,
    root: CommittedRoot,
    model: Map,
}

impl Tree {
    fn new(nodesize: usize) -> Tree {
        let format = BlockFormat {
            nodesize,
            fsid: Uuid([1; 16]),
            chunk_tree_uuid: Uuid([2; 16]),
            generation: Transid(7),
        };
        let mut memory = Memory::default();
        let leaf = OpenLeaf::new(nodesize);
        let ptr = format
            .emit_leaf(RootId::FS_TREE, leaf, &mut memory)
            .unwrap();
        let root = CommittedRoot {
            tree: RootId::FS_TREE,
            bytenr: Logical(ptr.blockptr.get()),
            level: 0,
            generation: Some(Transid(7)),
        };
        Tree {
            memory,
            format,
            root,
            model: Map::new(),
        }
    }

    /// Applies a batch to the tree and to the model, and compares the two.
    fn step(&mut self, batch: &BTreeMap<Key, Option<Vec<u8>>>) {
        self.memory.begin(self.root.bytenr);
        self.format.generation.0 += u64::from(!batch.is_empty());
        let changes: Vec<Change<'_>> = batch
            .iter()
            .map(|(key, value)| Change {
                key: *key,
                value: value.as_deref(),
            })
            .collect();
        self.root = apply(&self.format, &self.root, &changes, &mut self.memory).unwrap();
        let Memory { read, retired, .. } = &self.memory;
        assert_eq!(read, retired, "read, and then not replaced");
        for (key, value) in batch {
            match value {
                Some(value) => self.model.insert(*key, value.clone()),
                None => self.model.remove(key),
            };
        }
    }

    /// Checks that every block is valid and reachable exactly once, and that the items equal the model's.
    fn check(&self) {
        let mut items = Map::new();
        let mut reached = 0;
        let mut pending = vec![(self.root.bytenr, self.root.level)];
        while let Some((bytenr, level)) = pending.pop() {
            reached += 1;
            let block = &self.memory.blocks[&bytenr];
            let node = block.node();
            assert_eq!((node.bytenr(), node.level()), (bytenr, level));
            let is_root = bytenr == self.root.bytenr;
            // APPLY-5
            assert!(is_root || !node.is_empty(), "empty block");
            assert!(
                !(is_root && level > 0 && node.len() < 2),
                "root with one child"
            );
            assert!(!is_root || node.generation() == self.format.generation);
            let mut end = self.format.nodesize;
            for slot in 0..node.len() {
                assert!(slot == 0 || node.key(slot - 1) < node.key(slot));
            }
            for ptr in node.ptrs() {
                let child = Logical(ptr.blockptr.get());
                assert_eq!(
                    self.memory.blocks[&child].node().key(0),
                    Some(ptr.key.get())
                );
                pending.push((child, level - 1));
            }
            for head in node.heads() {
                assert_eq!(
                    (head.offset.get() + head.size.get()) as usize + HEADER_SIZE,
                    end
                );
                end = head.offset.get() as usize + HEADER_SIZE;
            }
            for (key, value) in node.items() {
                assert!(items.insert(key, value.to_vec()).is_none(), "{key} twice");
            }
        }
        assert_eq!(
            reached,
            self.memory.blocks.len(),
            "blocks that no pointer reaches"
        );
        // APPLY-3
        assert!(items == self.model, "items differ from the model");
    }

    fn leaves(&self) -> usize {
        let is_leaf = |block: &&Block| block.node().is_leaf();
        self.memory.blocks.values().filter(is_leaf).count()
    }
}

fn key(number: u64) -> Key {
    Key::new(number, KeyType::STRING_ITEM, number % 3)
}

fn puts(numbers: impl Iterator<Item = u64>, len: usize) -> BTreeMap<Key, Option<Vec<u8>>> {
    numbers
        .map(|n| (key(n), Some(vec![n as u8; len])))
        .collect()
}

#[test]
fn appending_in_batches_leaves_full_leaves() {
    let mut tree = Tree::new(16_384);
    for batch in 0..50u64 {
        tree.step(&puts(batch * 1000..(batch + 1) * 1000, 100));
    }
    tree.check();
    let best = (50_000 * (100 + ITEM_HEAD_SIZE)).div_ceil(leaf_data_size(16_384));
    assert!(
        tree.leaves() <= best * 102 / 100,
        "{} leaves, {best} at best",
        tree.leaves()
    );
}

#[test]
fn insert_into_a_full_leaf_splits_it_evenly() {
    let mut tree = Tree::new(4096);
    tree.step(&puts((0..31).map(|n| n * 10), 100));
    assert_eq!(tree.leaves(), 1);
    tree.step(&puts(std::iter::once(155), 100));
    tree.check();
    let sizes: Vec<usize> = tree
        .memory
        .blocks
        .values()
        .filter(|block| block.node().is_leaf())
        .map(|block| block.node().len())
        .collect();
    assert_eq!(sizes, [16, 16]);
}

#[test]
fn one_change_touches_one_path() {
    let mut tree = Tree::new(4096);
    tree.step(&puts((0..200_000).map(|n| n * 2), 20));
    assert!(tree.root.level >= 2);
    tree.step(&puts(std::iter::once(100_001), 20));
    let path = usize::from(tree.root.level) + 1;
    assert_eq!(tree.memory.read.len(), path);
    assert!(tree.memory.emitted.len() <= path + 1, "at most one split");
    tree.check();
}

#[test]
fn deleting_all_but_one_shrinks_to_a_leaf() {
    let mut tree = Tree::new(4096);
    tree.step(&puts(0..100_000, 20));
    let all_but_one = (0..100_000).filter(|n| *n != 70_000);
    tree.step(&all_but_one.map(|n| (key(n), None)).collect());
    tree.check();
    assert_eq!((tree.root.level, tree.memory.blocks.len()), (0, 1));
    tree.step(&std::iter::once((key(70_000), None)).collect());
    tree.check();
    assert_eq!((tree.root.level, tree.memory.blocks.len()), (0, 1));
}

#[test]
fn sparse_neighbours_are_merged_when_touched() {
    let mut tree = Tree::new(4096);
    tree.step(&puts(0..10_000, 20));
    let before = tree.leaves();
    tree.step(
        &(0..10_000)
            .filter(|n| n % 10 != 0)
            .map(|n| (key(n), None))
            .collect(),
    );
    tree.check();
    assert!(
        tree.leaves() <= before / 10 + 2,
        "{} of {before} leaves",
        tree.leaves()
    );
}

#[test]
fn deleting_what_is_not_there_changes_no_item() {
    let mut tree = Tree::new(4096);
    let absent = |numbers: std::ops::Range<u64>| numbers.map(|n| (key(n), None)).collect();
    tree.step(&absent(0..100));
    tree.check();
    tree.step(&puts((0..10_000).map(|n| n * 2), 20));
    let leaves = tree.leaves();
    tree.step(&[(key(5001), None)].into());
    assert_eq!(tree.memory.emitted.len(), usize::from(tree.root.level) + 1);
    tree.check();
    tree.step(&(0..10_000).map(|n| (key(n * 2 + 1), None)).collect());
    tree.check();
    tree.step(&absent(20_000..30_000));
    tree.check();
    assert!(tree.leaves() <= leaves);
}

#[test]
fn tree_that_does_not_grow_finds_room_in_the_places_it_has_left() {
    let mut tree = Tree::new(4096);
    tree.step(&puts(0..50_000, 20));
    assert!(tree.root.level >= 2);
    for step in [1, 7, 100, 1000, 20_000] {
        tree.step(&puts((0..50_000).step_by(step), 20));
        // APPLY-6
        assert_eq!(tree.memory.grown, 0, "every {step}th item anew");
    }
    for step in [20_000, 1000, 100, 7, 2] {
        let gone = (1..50_000).step_by(step);
        tree.step(&gone.map(|n| (key(n), None)).collect());
        assert_eq!(tree.memory.grown, 0, "every {step}th item gone");
    }
    tree.check();
}

#[test]
fn last_child_of_a_root_is_copied_into_its_place() {
    let mut tree = Tree::new(4096);
    tree.step(&puts(0..50_000, 20));
    let root = tree.memory.blocks[&tree.root.bytenr].clone();
    let [first, second, ..] = root.node().ptrs() else {
        panic!("more than one child");
    };
    let (kept, end) = (Logical(first.blockptr.get()), second.key.get().objectid);
    tree.step(&(end..50_000).map(|n| (key(n), None)).collect());
    tree.check();
    assert_eq!(tree.root.level, root.node().level() - 1);
    assert_eq!(tree.memory.emitted, [tree.root.bytenr].into());
    assert!(tree.memory.retired.contains(&kept));
}

/// APPLY-4
#[test]
fn packer_holds_the_items_of_two_leaves_at_most() {
    let mut memory = Memory::default();
    let format = Tree::new(4096).format;
    let mut packer = LeafPacker::new(&format, RootId::FS_TREE);
    let value = [7; 100];
    let in_a_leaf = leaf_data_size(4096) / (value.len() + ITEM_HEAD_SIZE);
    for number in 0..1000 {
        let piece = Piece::New(key(number as u64), &value);
        packer.push(piece, &mut memory).unwrap();
        let held = number + 1 - memory.in_leaves;
        assert!(held <= 2 * (in_a_leaf + 1), "{held}");
    }
    packer.finish(&mut memory).unwrap();
    assert_eq!(memory.in_leaves, 1000);
}

#[test]
fn batches_that_cannot_be_are_refused() {
    let mut tree = Tree::new(4096);
    let large = vec![0; leaf_data_size(4096) - ITEM_HEAD_SIZE + 1];
    let change = |number, value| Change {
        key: key(number),
        value,
    };
    let apply = |tree: &mut Tree, changes: &[Change<'_>]| {
        apply(&tree.format, &tree.root, changes, &mut tree.memory).unwrap_err()
    };
    let error = apply(&mut tree, &[change(1, Some(&large))]);
    assert!(matches!(error, BuildError::ItemTooLarge { .. }));
    let error = apply(&mut tree, &[change(2, None), change(1, None)]);
    assert!(matches!(error, BuildError::KeyOrder { .. }));
    tree.check();
}

/// Generates batches with clustered keys, so that they hit old items. Values are up to the largest that fits.
fn batches(nodesize: usize) -> impl Strategy<Value = Vec<BTreeMap<Key, Option<Vec<u8>>>>> {
    let largest = leaf_data_size(nodesize) - ITEM_HEAD_SIZE;
    let len = prop_oneof![8 => 0..40usize, 2 => 0..largest.min(400), 1 => 0..=largest];
    let value = prop_oneof![
        1 => Just(None),
        1 => (len, any::<u8>()).prop_map(|(len, byte)| Some(vec![byte; len])),
    ];
    let number = prop_oneof![3 => 0..2000u64, 1 => 0..60u64, 1 => any::<u64>()];
    let batch = prop::collection::btree_map(number.prop_map(key), value, 0..200);
    prop::collection::vec(batch, 1..12)
}

fn follows_the_map(nodesize: usize, batches: &[BTreeMap<Key, Option<Vec<u8>>>]) {
    let mut tree = Tree::new(nodesize);
    for batch in batches {
        tree.step(batch);
        tree.check();
    }
}

fn in_soak<T>(many: T, few: T) -> T {
    match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => many,
        None => few,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(in_soak(5000, 150)))]

    #[test]
    fn random_batches_follow_the_map_in_nodes_of_512(batches in batches(512)) {
        follows_the_map(512, &batches);
    }

    #[test]
    fn random_batches_follow_the_map_in_nodes_of_4_kib(batches in batches(4096)) {
        follows_the_map(4096, &batches);
    }

    #[test]
    fn random_batches_follow_the_map_in_nodes_of_8_kib(batches in batches(8192)) {
        follows_the_map(8192, &batches);
    }

    #[test]
    fn random_batches_follow_the_map_in_nodes_of_16_kib(batches in batches(16_384)) {
        follows_the_map(16_384, &batches);
    }

    #[test]
    fn random_batches_follow_the_map_in_nodes_of_32_kib(batches in batches(32_768)) {
        follows_the_map(32_768, &batches);
    }

    #[test]
    fn random_batches_follow_the_map_in_nodes_of_64_kib(batches in batches(65_536)) {
        follows_the_map(65_536, &batches);
    }
}

const NUMBERS: u64 = 10_000;
/// A tree with more items than this shrinks until it has fewer than `FEW_ITEMS`.
const MANY_ITEMS: usize = 6000;
const FEW_ITEMS: usize = 1000;

/// Returns a batch of items to put and delete, scattered or adjacent.
fn batch(rng: &mut Rng, nodesize: usize, shrinks: bool) -> BTreeMap<Key, Option<Vec<u8>>> {
    let largest = (leaf_data_size(nodesize) - ITEM_HEAD_SIZE) as u64;
    let count = 1 + rng.below(400);
    let start = rng.one_in(3).then(|| rng.below(NUMBERS));
    let change = |at: u64| {
        let number = start.map_or_else(|| rng.below(NUMBERS), |start| start + at);
        let is_put = rng.one_in(16) == shrinks;
        let most = match rng.below(64) {
            0 => largest,
            1..8 => largest.min(400),
            _ => 40,
        };
        let len = rng.below(most + 1) as usize;
        (key(number), is_put.then(|| vec![number as u8; len]))
    };
    (0..count).map(change).collect()
}

/// Grows one tree to many leaves and shrinks it, repeatedly, unlike the tests above.
#[test]
fn long_life_follows_the_map() {
    const BATCHES_COMPARED: u64 = 32;
    let changes = in_soak(2_000_000, 25_000);
    let seed = seed("long life of a tree");
    for nodesize in [512, 4096, 8192, 16_384, 32_768, 65_536] {
        let progress = Progress::new(format!("nodes of {nodesize}"), changes);
        let mut rng = Rng::new(seed);
        let mut tree = Tree::new(nodesize);
        let mut shrinks = false;
        let mut done = 0;
        while done < changes {
            let batch = batch(&mut rng, nodesize, shrinks);
            done += batch.len();
            tree.step(&batch);
            shrinks = match tree.model.len() {
                0..FEW_ITEMS => false,
                MANY_ITEMS.. => true,
                _ => shrinks,
            };
            if rng.one_in(BATCHES_COMPARED) {
                tree.check();
            }
            progress.step(|| format!("{done} changes, {} leaves", tree.leaves()));
        }
        tree.check();
    }
}

//! Staging, caching and forgetting blocks.

use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::{HEADER_SIZE, header_flags};

use super::*;
use crate::build::{BlockSink, OpenLeaf};
use crate::test_volume::{CommitError, NODESIZE, TREE, TestVolume};

/// A sink that keeps the block built at `place`.
struct Catch {
    place: Logical,
    block: Option<TreeBlock>,
}

impl BlockSink for Catch {
    type Error = CommitError;

    fn place(&mut self, _: u8, _: &Key) -> Result<Logical, CommitError> {
        Ok(self.place)
    }

    fn emit(&mut self, block: TreeBlock) -> Result<(), CommitError> {
        self.block = Some(block);
        Ok(())
    }
}

/// Creates a leaf at `place` with one item of `len` bytes.
fn leaf(volume: &TestVolume, place: Logical, len: usize) -> TreeBlock {
    let mut leaf = OpenLeaf::new(NODESIZE as usize);
    leaf.append(Key::new(1, KeyType::STRING_ITEM, 0), &vec![1; len]);
    let mut catch = Catch { place, block: None };
    volume.format.emit_leaf(TREE, leaf, &mut catch).unwrap();
    catch.block.unwrap()
}

fn read(volume: &TestVolume, place: Logical) -> Result<usize, TreeError> {
    let block = volume.store.read(TREE, &Expect::at(place))?;
    Ok(block.node().item(0).map_or(0, |(_, bytes)| bytes.len()))
}

const PLACE: Logical = Logical(4 << 20);

// STORE-3, STAGED-1 and STAGED-2.
#[test]
fn staged_block_hides_the_cached_one() {
    let volume = TestVolume::new(1 << 20);
    let store = &volume.store;
    let old = store.stage(leaf(&volume, PLACE, 10)).unwrap();
    assert_eq!(store.staged_bytes(), u64::from(NODESIZE));
    store.cache_all_written();
    assert_eq!((store.staged_bytes(), store.staged().len()), (0, 0));
    assert_eq!(read(&volume, PLACE).unwrap(), 10);

    let new = store.stage(leaf(&volume, PLACE, 20)).unwrap();
    assert!(store.is_cached(PLACE));
    assert_eq!(read(&volume, PLACE).unwrap(), 20);
    store.cache_written(&[old]);
    assert_eq!(store.staged().len(), 1, "another block had taken the place");
    assert_eq!(read(&volume, PLACE).unwrap(), 20);
    store.cache_written(&[new]);
    assert_eq!(read(&volume, PLACE).unwrap(), 20);
    assert_eq!(store.stats().misses, 0);
    store.forget(PLACE);
    assert!(!store.is_cached(PLACE));
}

#[test]
fn unstaged_block_is_gone() {
    let volume = TestVolume::new(1 << 20);
    let store = &volume.store;
    for index in [2, 0, 1] {
        let place = Logical(PLACE.0 + index * u64::from(NODESIZE));
        store.stage(leaf(&volume, place, 10)).unwrap();
    }
    let places: Vec<Logical> = store.staged().iter().map(|b| b.node().bytenr()).collect();
    assert!(places.is_sorted());
    assert!(store.unstage(PLACE));
    assert!(!store.unstage(PLACE));
    assert_eq!(store.staged().len(), 2);
    assert!(
        read(&volume, PLACE).is_err(),
        "the device has no such block"
    );
}

// STORE-1 for staged blocks, and with it COMMIT-4.
#[test]
fn block_that_the_kernel_would_refuse_is_not_staged() {
    let volume = TestVolume::new(1 << 20);
    let reason = |spoil: &dyn Fn(&mut TreeBlock)| {
        let mut block = leaf(&volume, PLACE, 10);
        spoil(&mut block);
        match volume.store.stage(block) {
            Err(TreeError::Unwritable { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    };
    let found = reason(&|block| block.logical = Logical(8 << 20));
    assert!(matches!(found, CorruptBlock::Bytenr { .. }));
    let found = reason(&|block| block.owner = RootId::ROOT_TREE);
    assert!(matches!(found, CorruptBlock::Owner { .. }));
    let found = reason(&|block| block.bytes.truncate(50));
    assert!(matches!(found, CorruptBlock::Size { .. }));
    let found = reason(&|block| block.bytes[HEADER_SIZE + 17] ^= 1);
    assert!(matches!(found, CorruptBlock::ItemEnd { .. }));
    let found = reason(&|block| block.bytes[56] &= !(header_flags::WRITTEN as u8));
    assert!(matches!(found, CorruptBlock::NotWritten { .. }));
    let misaligned = leaf(&volume, Logical(PLACE.0 + 512), 10);
    assert!(matches!(
        volume.store.stage(misaligned),
        Err(TreeError::Misaligned { .. })
    ));
    assert_eq!(volume.store.staged_bytes(), 0);
}

/// Writes two leaves and reads them with `read_old`; the first one is replaced during the read.
fn read_while_replaced(read_old: impl Fn(&NodeStore, &[Expect])) {
    let mut volume = TestVolume::new(1 << 20);
    let next = Logical(PLACE.0 + u64::from(NODESIZE));
    for place in [PLACE, next] {
        volume.store.stage(leaf(&volume, place, 10)).unwrap();
    }
    volume.write_staged();
    let expect = |place| Expect {
        generation: Some(Transid(2)),
        ..Expect::at(place)
    };
    let old = [expect(PLACE), expect(next)];
    volume.store.forget_blocks();
    volume.format.generation.0 += 1;
    volume.write_in_next_read(leaf(&volume, PLACE, 20));
    read_old(&volume.store, &old);
    assert_eq!(read(&volume, PLACE).unwrap(), 20);
    assert_eq!(read(&volume, next).unwrap(), 10);
    assert!(volume.store.read(TREE, &old[0]).is_err());
}

/// STORE-5
#[test]
fn block_that_is_replaced_while_it_is_read_is_not_cached() {
    read_while_replaced(|store, old| {
        let block = store.read(TREE, &old[0]).unwrap();
        assert_eq!(block.node().generation(), Transid(2));
    });
}

/// STORE-5
#[test]
fn block_that_is_replaced_while_it_is_read_ahead_is_not_cached() {
    read_while_replaced(|store, old| {
        store.prefetch(old);
        assert_eq!(store.stats().read_ahead, 2);
    });
}

#[test]
fn batches_of_the_same_blocks_do_not_wait_for_each_other() {
    const BLOCKS: u64 = 2 * MAX_PLACES as u64;
    let volume = TestVolume::new(1 << 20);
    let place = |index: u64| Logical(PLACE.0 + index * u64::from(NODESIZE));
    for index in 0..BLOCKS {
        let block = leaf(&volume, place(index), 10);
        volume.store.stage(block).unwrap();
    }
    volume.write_staged();
    thread::scope(|scope| {
        for first in 0..4 {
            let volume = &volume;
            scope.spawn(move || {
                let from = first * BLOCKS / 5;
                let expects: Vec<Expect> = (from..BLOCKS).map(place).map(Expect::at).collect();
                for round in 0..50 {
                    volume.store.forget_blocks();
                    let read_here = volume.store.read_batch(&expects);
                    assert!(read_here.len() <= expects.len());
                    let index = (first + 7 * round) % BLOCKS;
                    assert_eq!(read(volume, place(index)).unwrap(), 10);
                }
            });
        }
    });
}

/// STORE-2
#[test]
fn cache_keeps_to_its_budget() {
    const BUDGET: u64 = 1 << 20;
    let volume = TestVolume::new(BUDGET);
    let blocks = 3 * BUDGET / u64::from(NODESIZE);
    for index in 0..blocks {
        let place = Logical(PLACE.0 + index * u64::from(NODESIZE));
        volume.store.stage(leaf(&volume, place, 10)).unwrap();
        volume.store.cache_all_written();
        assert!(volume.store.cache.weight() <= BUDGET);
    }
    assert!(volume.store.cache.weight() > BUDGET / 2);
}

/// STORE-4
#[test]
fn staged_blocks_are_over_budget_until_they_are_cached() {
    let volume = TestVolume::new(1 << 20);
    let store = &volume.store;
    let blocks = store.staged_budget_bytes() / u64::from(NODESIZE);
    for index in 0..=blocks {
        assert!(!store.is_over_staged_budget(), "{index} of {blocks}");
        let place = Logical(PLACE.0 + index * u64::from(NODESIZE));
        store.stage(leaf(&volume, place, 10)).unwrap();
    }
    assert!(store.is_over_staged_budget());
    store.cache_all_written();
    assert!(!store.is_over_staged_budget());
}

#[test]
fn blocks_may_be_as_new_as_the_newest_that_was_staged() {
    let mut volume = TestVolume::new(64 << 10);
    let tree = volume.tree(TREE);
    for number in 0..10 {
        tree.put(Key::new(number, KeyType::STRING_ITEM, 0), Arc::from([1]));
        tree.freeze();
        volume.commit(&tree);
        volume.store.forget(tree.committed().bytenr);
        let found = tree.view().get(&Key::new(number, KeyType::STRING_ITEM, 0));
        assert!(found.unwrap().is_some());
    }
    assert!(volume.store.stats().misses >= 10);
}

//! The lowest set: the B-tree on disk, from its root down.
//!
//! Invariants of a walk: a child has the level, generation, owner and first key in its parent's pointer. All its keys
//! are below the parent's next key.
//!
//! Not here: positions in the tree (`path`), uncommitted changes (`delta`).

use std::ops::RangeInclusive;

use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::key::Key;
use ubtrfs_format::superblock::MAX_LEVEL;

use crate::block::{Block, Item};
use crate::error::TreeError;
use crate::store::NodeStore;

/// A tree's root as recorded in a superblock or a root item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommittedRoot {
    pub tree: RootId,
    pub bytenr: Logical,
    pub level: u8,
    /// None if the record has no generation.
    pub generation: Option<Transid>,
}

impl CommittedRoot {
    /// Reads the root's block. Like all reads of this type, it requires that the caller keeps the state from being
    /// reused (STORE-6).
    pub(crate) fn read(&self, store: &NodeStore) -> Result<Block, TreeError> {
        self.read_by(|expect| store.read_held(self.tree, expect))
    }

    fn read_by(
        &self,
        read: impl FnOnce(&Expect) -> Result<Block, TreeError>,
    ) -> Result<Block, TreeError> {
        let &CommittedRoot {
            tree,
            bytenr,
            level,
            generation,
        } = self;
        if level > MAX_LEVEL {
            return Err(TreeError::Level { tree, level });
        }
        let expect = Expect {
            bytenr,
            level: Some(level),
            generation,
            owner: Some(tree),
            first_key: None,
        };
        read(&expect)
    }

    /// Returns the item with exactly this key.
    pub(crate) fn get(&self, store: &NodeStore, key: &Key) -> Result<Option<Item>, TreeError> {
        let (leaf, _) = self.leaf(store, key)?;
        let found = leaf.node().search(key).ok();
        Ok(found.and_then(|slot| leaf.item(slot)))
    }

    /// Returns whether a range of keys contains no item.
    pub(crate) fn is_empty_in(
        &self,
        store: &NodeStore,
        keys: &RangeInclusive<Key>,
    ) -> Result<bool, TreeError> {
        let (leaf, bound) = self.leaf(store, keys.start())?;
        let node = leaf.node();
        let (Ok(slot) | Err(slot)) = node.search(keys.start());
        // The next leaf begins at or above the bound.
        let next = node.key(slot).or(bound);
        Ok(next.is_none_or(|next| next > *keys.end()))
    }

    /// Finds the leaf that may hold `key`, and the exclusive upper bound of its keys.
    #[inline]
    fn leaf(&self, store: &NodeStore, key: &Key) -> Result<(Block, Option<Key>), TreeError> {
        let mut block = self.read(store)?;
        let mut bound = None;
        while !block.node().is_leaf() {
            let slot = block.node().child_slot(key);
            block = self.read_child(store, &block, slot, &mut bound)?;
        }
        Ok((block, bound))
    }

    /// Reads all blocks, and continues behind unreadable ones, whose errors go to `failed`. Damaged mirrors are not
    /// repaired.
    pub(crate) fn read_all(&self, store: &NodeStore, failed: &mut dyn FnMut(TreeError)) {
        match self.read_by(|expect| store.read(self.tree, expect)) {
            Ok(root) => self.read_below(store, &root, None, failed),
            Err(error) => failed(error),
        }
    }

    fn read_below(
        &self,
        store: &NodeStore,
        parent: &Block,
        bound: Option<Key>,
        failed: &mut dyn FnMut(TreeError),
    ) {
        /// The blocks to read at queue depth.
        const BATCH: usize = 64;
        let node = parent.node();
        if node.is_leaf() {
            return;
        }
        for slot in 0..node.len() {
            if slot.is_multiple_of(BATCH) {
                let batch = slot..node.len().min(slot + BATCH);
                let batch = batch.filter_map(|slot| self.expect_child(parent, slot));
                store.prefetch(&batch.collect::<Vec<Expect>>());
            }
            let mut bound = bound;
            let read = |expect: &Expect| store.read(self.tree, expect);
            match self.read_child_by(read, parent, slot, &mut bound) {
                Ok(child) => self.read_below(store, &child, bound, failed),
                Err(error) => failed(error),
            }
        }
    }

    /// Returns the expected properties of the child in `slot` of `parent`, or None if there is no such slot.
    pub(crate) fn expect_child(&self, parent: &Block, slot: usize) -> Option<Expect> {
        let node = parent.node();
        let ptr = node.ptrs().get(slot)?;
        Some(Expect {
            bytenr: Logical(ptr.blockptr.get()),
            level: Some(node.level().saturating_sub(1)),
            generation: Some(Transid(ptr.generation.get())),
            owner: Some(self.tree),
            first_key: Some(ptr.key.get()),
        })
    }

    /// Reads the child in `slot`. `bound` is the exclusive upper bound of the keys in `parent`; it becomes the
    /// child's. The bound guarantees that every walk ends: without it, a crafted tree could be visited along
    /// exponentially many paths.
    pub(crate) fn read_child(
        &self,
        store: &NodeStore,
        parent: &Block,
        slot: usize,
        bound: &mut Option<Key>,
    ) -> Result<Block, TreeError> {
        let read = |expect: &Expect| store.read_held(self.tree, expect);
        self.read_child_by(read, parent, slot, bound)
    }

    /// Reads a child like [`CommittedRoot::read_child`], but gets the expected block from `read`.
    pub(crate) fn read_child_by(
        &self,
        read: impl FnOnce(&Expect) -> Result<Block, TreeError>,
        parent: &Block,
        slot: usize,
        bound: &mut Option<Key>,
    ) -> Result<Block, TreeError> {
        let tree = self.tree;
        let expect = self
            .expect_child(parent, slot)
            .expect("interior nodes are never empty");
        if let Some(next) = parent.node().key(slot + 1) {
            *bound = Some(next);
        }
        let child = read(&expect)?;
        let node = child.node();
        let last = node.len().checked_sub(1).and_then(|slot| node.key(slot));
        match (last, *bound) {
            (Some(last), Some(bound)) if last >= bound => Err(TreeError::KeyBound {
                tree,
                bytenr: expect.bytenr,
                last,
                bound,
            }),
            _ => Ok(child),
        }
    }
}

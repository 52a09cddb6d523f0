//! A position in the committed B-tree, and its moves.
//!
//! Invariants
//! - PATH-1: a positioned path ends in a leaf, and its slots are all within their blocks.
//! - PATH-2: forward moves yield strictly ascending keys, backward moves descending keys.
//!
//! Locks: none; no block is read while the cache is locked.
//! Not here: the sets above the committed one (`cursor`).

use ubtrfs_format::key::Key;

use crate::block::{Block, Item};
use crate::committed::CommittedRoot;
use crate::error::TreeError;
use crate::store::NodeStore;

#[derive(Clone, Debug)]
struct Step {
    block: Block,
    slot: usize,
    /// Exclusive upper bound of all keys in `block`.
    bound: Option<Key>,
}

/// The blocks and slots from the root to an item of a leaf.
#[derive(Clone, Debug)]
pub(crate) struct Path<'v> {
    store: &'v NodeStore,
    root: CommittedRoot,
    /// Empty if the path is unpositioned.
    steps: Vec<Step>,
    sequential: bool,
}

impl<'v> Path<'v> {
    /// Creates a path without a position.
    pub(crate) fn new(store: &'v NodeStore, root: CommittedRoot) -> Path<'v> {
        Path {
            store,
            root,
            steps: Vec::new(),
            sequential: false,
        }
    }

    /// Enables read-ahead of siblings, in large batches.
    pub(crate) fn set_sequential(&mut self) {
        self.sequential = true;
    }

    /// Switches to another state of the tree and clears the position.
    pub(crate) fn set_root(&mut self, root: CommittedRoot) {
        self.root = root;
        self.steps.clear();
    }

    /// Clears the position.
    pub(crate) fn clear(&mut self) {
        self.steps.clear();
    }

    /// Moves to the first item at or above `key`. Returns false if there is none.
    pub(crate) fn seek(&mut self, key: &Key) -> Result<bool, TreeError> {
        if !self.descend(key)? {
            return Ok(false);
        }
        let leaf = self.steps.last_mut().expect("descended");
        leaf.slot = match leaf.block.node().search(key) {
            Ok(slot) | Err(slot) => slot,
        };
        // PATH-1
        if leaf.slot < leaf.block.node().len() {
            return Ok(true);
        }
        self.next_leaf()
    }

    /// Moves to the last item at or below `key`. Returns false if there is none.
    pub(crate) fn seek_floor(&mut self, key: &Key) -> Result<bool, TreeError> {
        if !self.descend(key)? {
            return Ok(false);
        }
        let leaf = self.steps.last_mut().expect("descended");
        match leaf.block.node().search(key) {
            Ok(slot) => leaf.slot = slot,
            Err(0) => return self.prev_leaf(),
            Err(slot) => leaf.slot = slot - 1,
        }
        Ok(true)
    }

    pub(crate) fn key(&self) -> Option<Key> {
        let leaf = self.steps.last()?;
        leaf.block.node().key(leaf.slot)
    }

    /// Returns the current item.
    pub(crate) fn current(&self) -> Option<(Key, &[u8])> {
        let leaf = self.steps.last()?;
        leaf.block.node().item(leaf.slot)
    }

    /// Returns the current item together with a reference to its block.
    pub(crate) fn item(&self) -> Option<Item> {
        let leaf = self.steps.last()?;
        leaf.block.item(leaf.slot)
    }

    /// Returns how many slots of the leaf have keys below `bound`, or all slots without a bound. 0 if the path is
    /// unpositioned.
    pub(crate) fn slots_below(&self, bound: Option<Key>) -> usize {
        let Some(leaf) = self.steps.last() else {
            return 0;
        };
        let node = leaf.block.node();
        match bound {
            None => node.len(),
            // Shortcut for sets that alternate: the next item is already out of bounds.
            Some(bound) if node.key(leaf.slot + 1).is_some_and(|key| key >= bound) => leaf.slot + 1,
            Some(bound) => match node.search(&bound) {
                Ok(slot) | Err(slot) => slot,
            },
        }
    }

    /// Moves to the next item if it is in this leaf and its slot is below `end`.
    pub(crate) fn advance_below(&mut self, end: usize) -> bool {
        match self.steps.last_mut() {
            Some(leaf) if leaf.slot + 1 < end => {
                leaf.slot += 1;
                true
            }
            _ => false,
        }
    }

    /// Moves to the next item. Returns false after the last one; the path is unpositioned then.
    pub(crate) fn advance(&mut self) -> Result<bool, TreeError> {
        let Some(leaf) = self.steps.last_mut() else {
            return Ok(false);
        };
        // PATH-2: slots ascend within a leaf, and so do the pointers to leaves.
        leaf.slot += 1;
        if leaf.slot < leaf.block.node().len() {
            return Ok(true);
        }
        self.next_leaf()
    }

    /// Moves to the previous item. Returns false before the first one; the path is unpositioned then.
    pub(crate) fn retreat(&mut self) -> Result<bool, TreeError> {
        let Some(leaf) = self.steps.last_mut() else {
            return Ok(false);
        };
        if leaf.slot > 0 {
            leaf.slot -= 1;
            return Ok(true);
        }
        self.prev_leaf()
    }

    /// Descends from the root to the leaf that may hold `key`. Returns false for an empty tree.
    fn descend(&mut self, key: &Key) -> Result<bool, TreeError> {
        self.steps.clear();
        let root = self.root.read(self.store)?;
        if root.node().is_empty() {
            return Ok(false);
        }
        let slot = if root.node().is_leaf() {
            0
        } else {
            root.node().child_slot(key)
        };
        self.steps.push(Step {
            block: root,
            slot,
            bound: None,
        });
        while let Some(block) = self.child()? {
            let slot = if block.block.node().is_leaf() {
                0
            } else {
                block.block.node().child_slot(key)
            };
            self.steps.push(Step { slot, ..block });
        }
        Ok(true)
    }

    /// Reads the block below the last step. Returns None below a leaf.
    fn child(&mut self) -> Result<Option<Step>, TreeError> {
        let Some(step) = self.steps.last() else {
            return Ok(None);
        };
        if step.block.node().is_leaf() {
            return Ok(None);
        }
        let mut bound = step.bound;
        let block = match self
            .root
            .read_child(self.store, &step.block, step.slot, &mut bound)
        {
            Ok(block) => block,
            Err(error) => {
                self.steps.clear();
                return Err(error);
            }
        };
        Ok(Some(Step {
            block,
            slot: 0,
            bound,
        }))
    }

    fn next_leaf(&mut self) -> Result<bool, TreeError> {
        loop {
            self.steps.pop();
            let Some(step) = self.steps.last_mut() else {
                return Ok(false);
            };
            step.slot += 1;
            if step.slot < step.block.node().len() {
                break;
            }
        }
        if self.sequential {
            self.read_ahead();
        }
        while let Some(step) = self.child()? {
            self.steps.push(step);
        }
        Ok(true)
    }

    fn prev_leaf(&mut self) -> Result<bool, TreeError> {
        loop {
            self.steps.pop();
            let Some(step) = self.steps.last_mut() else {
                return Ok(false);
            };
            if step.slot > 0 {
                step.slot -= 1;
                break;
            }
        }
        while let Some(step) = self.child()? {
            let slot = step.block.node().len().saturating_sub(1);
            self.steps.push(Step { slot, ..step });
        }
        Ok(true)
    }

    /// Reads the next children of the last step ahead if the next one is not cached.
    fn read_ahead(&self) {
        let Some(step) = self.steps.last() else {
            return;
        };
        let expects: Vec<_> = (step.slot..)
            .map_while(|slot| self.root.expect_child(&step.block, slot))
            .take(self.store.read_ahead_blocks())
            .collect();
        if expects
            .first()
            .is_some_and(|first| !self.store.is_cached(first.bytenr))
        {
            self.store.prefetch(&expects);
        }
    }
}

//! A position in the committed B-tree, and moving it.
//!
//! Invariants
//! - PATH-1: a path that stands somewhere ends in a leaf, and its slots are all within their blocks.
//! - PATH-2: moving forward meets keys in strictly ascending order, backward in descending order.
//!
//! Locks: none; no block is read while the cache is locked.
//! Not here: what lies on top of the committed set (`cursor`).

use ubtrfs_format::key::Key;

use crate::block::{Block, Item};
use crate::committed::CommittedRoot;
use crate::error::TreeError;
use crate::store::NodeStore;

#[derive(Clone, Debug)]
struct Step {
    block: Block,
    slot: usize,
    /// All keys of `block` lie below it.
    bound: Option<Key>,
}

/// From the root to an item of a leaf.
#[derive(Clone, Debug)]
pub(crate) struct Path<'v> {
    store: &'v NodeStore,
    root: CommittedRoot,
    /// Empty if the path stands nowhere.
    steps: Vec<Step>,
    sequential: bool,
}

impl<'v> Path<'v> {
    /// Creates a path that stands nowhere.
    pub(crate) fn new(store: &'v NodeStore, root: CommittedRoot) -> Path<'v> {
        Path {
            store,
            root,
            steps: Vec::new(),
            sequential: false,
        }
    }

    /// Turns on the read-ahead of siblings, many at a time.
    pub(crate) fn set_sequential(&mut self) {
        self.sequential = true;
    }

    /// Switches to another state of the tree. The path stands nowhere then.
    pub(crate) fn set_root(&mut self, root: CommittedRoot) {
        self.root = root;
        self.steps.clear();
    }

    /// Stands nowhere from now on.
    pub(crate) fn clear(&mut self) {
        self.steps.clear();
    }

    /// Goes to the first item at or above `key`. False if there is none.
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

    /// Goes to the last item at or below `key`. False if there is none.
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

    /// Returns the item that the path leads to.
    pub(crate) fn current(&self) -> Option<(Key, &[u8])> {
        let leaf = self.steps.last()?;
        leaf.block.node().item(leaf.slot)
    }

    /// Returns the current item with a hold on its block.
    pub(crate) fn item(&self) -> Option<Item> {
        let leaf = self.steps.last()?;
        leaf.block.item(leaf.slot)
    }

    /// Returns how many slots of the leaf have keys below `bound`; all, without one. 0 if the path stands nowhere.
    pub(crate) fn slots_below(&self, bound: Option<Key>) -> usize {
        let Some(leaf) = self.steps.last() else {
            return 0;
        };
        let node = leaf.block.node();
        match bound {
            None => node.len(),
            // Where the sets alternate, the next item is out of bounds already.
            Some(bound) if node.key(leaf.slot + 1).is_some_and(|key| key >= bound) => leaf.slot + 1,
            Some(bound) => match node.search(&bound) {
                Ok(slot) | Err(slot) => slot,
            },
        }
    }

    /// Goes to the next item if it is in this leaf and its slot below `end`.
    pub(crate) fn advance_below(&mut self, end: usize) -> bool {
        match self.steps.last_mut() {
            Some(leaf) if leaf.slot + 1 < end => {
                leaf.slot += 1;
                true
            }
            _ => false,
        }
    }

    /// Goes to the next item. False, and the path stands nowhere, after the last.
    pub(crate) fn advance(&mut self) -> Result<bool, TreeError> {
        let Some(leaf) = self.steps.last_mut() else {
            return Ok(false);
        };
        // PATH-2: slots ascend within a leaf, and leaves as their pointers do.
        leaf.slot += 1;
        if leaf.slot < leaf.block.node().len() {
            return Ok(true);
        }
        self.next_leaf()
    }

    /// Goes to the item before. False, and the path stands nowhere, before the first.
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

    /// Descends from the root to the leaf that may hold `key`. It returns false for an empty tree.
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

    /// Reads the block below the last step. It returns None below a leaf.
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

    /// Reads the coming children of the last step if the next one is cold.
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

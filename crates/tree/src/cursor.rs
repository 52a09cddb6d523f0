//! A position in a view, and moving it.
//!
//! Invariants
//! - CURSOR-1: a cursor that stands somewhere has a path whose last block is a leaf and whose slots
//!   are all within their blocks.
//! - CURSOR-2: moving forward meets keys in strictly ascending order, backward in descending order.
//!
//! Locks: none; no block is read while the cache is locked.

use ubtrfs_format::key::Key;

use crate::block::{Block, Item};
use crate::error::TreeError;
use crate::view::View;

#[derive(Clone, Debug)]
struct Step {
    block: Block,
    slot: usize,
    /// All keys of `block` lie below it.
    bound: Option<Key>,
}

/// Reads a tree in key order, in both directions.
#[derive(Clone, Debug)]
pub struct Cursor<'v> {
    view: &'v View,
    /// From the root to a leaf; empty if the cursor stands nowhere.
    path: Vec<Step>,
    sequential: bool,
}

impl<'v> Cursor<'v> {
    pub(crate) fn new(view: &'v View) -> Cursor<'v> {
        Cursor {
            view,
            path: Vec::new(),
            sequential: false,
        }
    }

    /// Announces a long forward walk: siblings are read ahead, many at a time.
    #[must_use]
    pub fn sequential(mut self) -> Self {
        self.sequential = true;
        self
    }

    /// Goes to the first item at or above `key`. False if there is none.
    pub fn seek(&mut self, key: &Key) -> Result<bool, TreeError> {
        if !self.descend(key)? {
            return Ok(false);
        }
        let leaf = self.path.last_mut().expect("descended");
        leaf.slot = match leaf.block.node().search(key) {
            Ok(slot) | Err(slot) => slot,
        };
        if leaf.slot < leaf.block.node().len() {
            return Ok(true);
        }
        self.next_leaf()
    }

    /// Goes to the last item at or below `key`. False if there is none.
    pub fn seek_floor(&mut self, key: &Key) -> Result<bool, TreeError> {
        if !self.descend(key)? {
            return Ok(false);
        }
        let leaf = self.path.last_mut().expect("descended");
        match leaf.block.node().search(key) {
            Ok(slot) => leaf.slot = slot,
            Err(0) => return self.prev_leaf(),
            Err(slot) => leaf.slot = slot - 1,
        }
        Ok(true)
    }

    /// The item that the cursor stands on.
    pub fn current(&self) -> Option<(Key, &[u8])> {
        let leaf = self.path.last()?;
        leaf.block.node().item(leaf.slot)
    }

    /// The current item with a hold on its block.
    pub fn item(&self) -> Option<Item> {
        let leaf = self.path.last()?;
        leaf.block.item(leaf.slot)
    }

    /// Goes to the next item. False, and the cursor stands nowhere, after the last.
    pub fn advance(&mut self) -> Result<bool, TreeError> {
        let Some(leaf) = self.path.last_mut() else {
            return Ok(false);
        };
        leaf.slot += 1;
        if leaf.slot < leaf.block.node().len() {
            return Ok(true);
        }
        self.next_leaf()
    }

    /// Goes to the item before. False, and the cursor stands nowhere, before the first.
    pub fn retreat(&mut self) -> Result<bool, TreeError> {
        let Some(leaf) = self.path.last_mut() else {
            return Ok(false);
        };
        if leaf.slot > 0 {
            leaf.slot -= 1;
            return Ok(true);
        }
        self.prev_leaf()
    }

    /// From the root to the leaf that may hold `key`. False for an empty tree.
    fn descend(&mut self, key: &Key) -> Result<bool, TreeError> {
        self.path.clear();
        let root = self.view.read_root()?;
        if root.node().is_empty() {
            return Ok(false);
        }
        let slot = if root.node().is_leaf() {
            0
        } else {
            root.node().child_slot(key)
        };
        self.path.push(Step {
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
            self.path.push(Step { slot, ..block });
        }
        Ok(true)
    }

    /// The block below the last step; None below a leaf.
    fn child(&mut self) -> Result<Option<Step>, TreeError> {
        let Some(step) = self.path.last() else {
            return Ok(None);
        };
        if step.block.node().is_leaf() {
            return Ok(None);
        }
        let mut bound = step.bound;
        let block = match self.view.read_child(&step.block, step.slot, &mut bound) {
            Ok(block) => block,
            Err(error) => {
                self.path.clear();
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
            self.path.pop();
            let Some(step) = self.path.last_mut() else {
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
            self.path.push(step);
        }
        Ok(true)
    }

    fn prev_leaf(&mut self) -> Result<bool, TreeError> {
        loop {
            self.path.pop();
            let Some(step) = self.path.last_mut() else {
                return Ok(false);
            };
            if step.slot > 0 {
                step.slot -= 1;
                break;
            }
        }
        while let Some(step) = self.child()? {
            let slot = step.block.node().len().saturating_sub(1);
            self.path.push(Step { slot, ..step });
        }
        Ok(true)
    }

    /// Reads the coming children of the last step if the next one is cold.
    fn read_ahead(&self) {
        let Some(step) = self.path.last() else { return };
        let store = self.view.store();
        let expects: Vec<_> = (step.slot..)
            .map_while(|slot| self.view.expect_child(&step.block, slot))
            .take(store.read_ahead_blocks())
            .collect();
        if expects
            .first()
            .is_some_and(|first| !store.is_cached(first.bytenr))
        {
            store.prefetch(&expects);
        }
    }
}

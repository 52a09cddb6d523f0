//! Key look-ups in a committed tree that reuse the most recent leaves.
//!
//! Look-ups of neighbouring keys walk from the root once per leaf instead of once per key.
//!
//! Invariants
//! - RECENT-1: a kept leaf has all keys of the tree from its first key up to its bound.
//!
//! Not here: keys that are known in advance (`prefetch`), walks in both directions (`cursor`).

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::sync::Arc;

use ubtrfs_format::key::Key;

use crate::block::{Block, Item};
use crate::committed::CommittedRoot;
use crate::error::TreeError;
use crate::store::NodeStore;
use crate::view::View;

#[cfg(test)]
mod tests;

/// Number of leaves that are kept.
const KEPT: usize = 4;

/// A leaf, its first key, and the exclusive upper bound of its keys.
#[derive(Clone, Debug)]
struct Leaf {
    block: Block,
    first: Key,
    bound: Option<Key>,
}

impl Leaf {
    fn has_room_for(&self, key: &Key) -> bool {
        // RECENT-1
        self.first <= *key && self.bound.is_none_or(|bound| *key < bound)
    }
}

/// Look-ups in the committed state of a tree at the time of creation.
///
/// That state must stay on disk: the tree must belong to a read-only subvolume that cannot be deleted in that time.
#[derive(Debug)]
pub struct RecentLeaves {
    store: Arc<NodeStore>,
    root: CommittedRoot,
    leaves: RefCell<[Option<Leaf>; KEPT]>,
    /// Index of the leaf to replace next.
    next: Cell<usize>,
}

impl RecentLeaves {
    pub fn of(view: &View) -> RecentLeaves {
        RecentLeaves {
            store: Arc::clone(view.store()),
            root: view.committed(),
            leaves: RefCell::default(),
            next: Cell::new(0),
        }
    }

    /// Returns the item with exactly this key.
    pub fn get(&self, key: &Key) -> Result<Option<Item>, TreeError> {
        let leaf = self.leaf(key)?;
        let found = leaf.block.node().search(key).ok();
        Ok(found.and_then(|slot| leaf.block.item(slot)))
    }

    /// Calls `each` with the items from `from` on, in key order, until it breaks.
    pub fn walk(
        &self,
        from: &Key,
        mut each: impl FnMut(Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TreeError> {
        let mut from = *from;
        loop {
            let leaf = self.leaf(&from)?;
            let node = leaf.block.node();
            let (Ok(slot) | Err(slot)) = node.search(&from);
            for (key, bytes) in (slot..).map_while(|slot| node.item(slot)) {
                if each(key, bytes).is_break() {
                    return Ok(());
                }
            }
            match leaf.bound {
                Some(bound) => from = bound,
                None => return Ok(()),
            }
        }
    }

    /// Finds the leaf that contains a key, if the tree has the key.
    fn leaf(&self, key: &Key) -> Result<Leaf, TreeError> {
        let mut leaves = self.leaves.borrow_mut();
        let mut at_hand = leaves.iter().flatten();
        if let Some(leaf) = at_hand.find(|leaf| leaf.has_room_for(key)) {
            return Ok(leaf.clone());
        }
        let leaf = self.find(key)?;
        let place = self.next.get();
        leaves[place] = Some(leaf.clone());
        self.next.set((place + 1) % KEPT);
        Ok(leaf)
    }

    fn find(&self, key: &Key) -> Result<Leaf, TreeError> {
        let _epoch = self.store.hold_epoch_briefly();
        let mut block = self.root.read(&self.store)?;
        let mut bound = None;
        while !block.node().is_leaf() {
            let slot = block.node().child_slot(key);
            let child = self.root.read_child(&self.store, &block, slot, &mut bound);
            block = child?;
        }
        let first = block.node().key(0).unwrap_or(Key::MIN);
        Ok(Leaf {
            block,
            first,
            bound,
        })
    }
}

//! The items in which two committed trees differ, in key order.
//!
//! Both trees are walked side by side. A subtree to which both lead by the same address and generation is passed over
//! unread. So comparing two snapshots costs what differs and the nodes above it.
//!
//! Invariants
//! - COMPARE-1: each side stands on an item or on a subtree. All that comes after has greater keys.
//! - COMPARE-2: the side whose key is lower moves; of equal keys the subtree that is higher is entered.
//!
//! Memory: one path of blocks a side. Locks: none; no block is read while the cache is locked.
//! Not here: what keeps the trees from being freed. A block that was given out again is an error.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::{Logical, Transid};
use ubtrfs_format::key::Key;

use crate::block::{Block, Item};
use crate::committed::CommittedRoot;
use crate::error::TreeError;
use crate::store::NodeStore;
use crate::view::View;

#[cfg(test)]
mod tests;

/// An item that only one of two trees has, or that they have with different bytes.
#[derive(Clone, Debug)]
pub enum Difference {
    Removed(Item),
    Added(Item),
    /// The keys are equal.
    Changed {
        old: Item,
        new: Item,
    },
}

impl Difference {
    pub fn key(&self) -> Key {
        match self {
            Difference::Removed(item) | Difference::Added(item) => item.key(),
            Difference::Changed { new, .. } => new.key(),
        }
    }

    /// The item as the old tree has it.
    pub fn old_item(&self) -> Option<&Item> {
        match self {
            Difference::Removed(item) | Difference::Changed { old: item, .. } => Some(item),
            Difference::Added(_) => None,
        }
    }

    /// The item as the new tree has it.
    pub fn new_item(&self) -> Option<&Item> {
        match self {
            Difference::Added(item) | Difference::Changed { new: item, .. } => Some(item),
            Difference::Removed(_) => None,
        }
    }
}

/// Compares two trees of one volume as of their last commits.
///
/// Both trees must stay as they are: subvolumes that are read-only and that something keeps from being freed.
#[derive(Debug)]
pub struct Comparison {
    old: Side,
    new: Side,
}

impl Comparison {
    /// Compares `new` with `old`, or with an empty tree: then all items of `new` are [`Difference::Added`].
    pub fn new(old: Option<&View>, new: &View) -> Comparison {
        Comparison {
            old: old.map_or_else(|| Side::empty(new), Side::new),
            new: Side::new(new),
        }
    }

    /// Finds the next difference. None at the end of both trees.
    ///
    /// An error ends the comparison: what comes after it is not defined.
    pub fn next_difference(&mut self) -> Result<Option<Difference>, TreeError> {
        loop {
            let (old, new) = (self.old.front(), self.new.front());
            let order = match (&old, &new) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.key.cmp(&new.key),
            };
            // COMPARE-2
            let found = match (order, old, new) {
                (Ordering::Less, Some(old), _) => self.take_old(&old)?,
                (Ordering::Greater, _, Some(new)) => self.take_new(&new)?,
                (_, Some(old), Some(new)) => self.take_both(&old, &new)?,
                _ => return Ok(None),
            };
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    fn take_old(&mut self, front: &Front) -> Result<Option<Difference>, TreeError> {
        match front.height {
            0 => Ok(self.old.take_item().map(Difference::Removed)),
            _ => self.enter(true, false).map(|()| None),
        }
    }

    fn take_new(&mut self, front: &Front) -> Result<Option<Difference>, TreeError> {
        match front.height {
            0 => Ok(self.new.take_item().map(Difference::Added)),
            _ => self.enter(false, true).map(|()| None),
        }
    }

    /// Both sides stand on the same key.
    fn take_both(&mut self, old: &Front, new: &Front) -> Result<Option<Difference>, TreeError> {
        if (old.height, new.height) == (0, 0) {
            let pair = self.old.take_item().zip(self.new.take_item());
            return Ok(pair
                .filter(|(old, new)| **old != **new)
                .map(|(old, new)| Difference::Changed { old, new }));
        }
        if old.height == new.height && old.place == new.place {
            self.old.pass();
            self.new.pass();
            return Ok(None);
        }
        self.enter(old.height >= new.height, new.height >= old.height)?;
        Ok(None)
    }

    /// Enters the subtrees that the sides stand on.
    fn enter(&mut self, old: bool, new: bool) -> Result<(), TreeError> {
        self.read_ahead(old, new);
        if old {
            self.old.enter()?;
        }
        if new {
            self.new.enter()?;
        }
        Ok(())
    }

    /// Reads what differs of the coming subtrees, and of those below if both sides are entered.
    ///
    /// A few changes leave one leaf or two that differ below each node. Read a node at a time, each would be waited for.
    fn read_ahead(&mut self, old: bool, new: bool) {
        let of_old = if old {
            self.old.ahead(&self.new)
        } else {
            Vec::new()
        };
        let of_new = if new {
            self.new.ahead(&self.old)
        } else {
            Vec::new()
        };
        let store = &self.new.store;
        let both: Vec<Expect> = of_old.iter().chain(&of_new).copied().collect();
        if both.is_empty() {
            return;
        }
        store.prefetch(&both);
        if of_old.is_empty() || of_new.is_empty() {
            return;
        }
        let (below_old, below_new) = (self.old.children(&of_old), self.new.children(&of_new));
        let mut differing = unshared(&below_old, &below_new);
        differing.extend(unshared(&below_new, &below_old));
        differing.sort_unstable_by_key(|expect| expect.first_key);
        differing.truncate(NODES_BELOW * store.read_ahead_blocks());
        store.prefetch(&differing);
    }
}

/// For each node that is read ahead, so many nodes below them all are.
const NODES_BELOW: usize = 8;

/// Those that `others` has not.
fn unshared(expects: &[Expect], others: &[Expect]) -> Vec<Expect> {
    let others: HashSet<u64> = others.iter().map(|expect| expect.bytenr.0).collect();
    let mut unshared = expects.to_vec();
    unshared.retain(|expect| !others.contains(&expect.bytenr.0));
    unshared
}

/// What a side stands on.
struct Front {
    key: Key,
    /// 0 for an item, else one more than the level of the subtree's top block.
    height: u8,
    /// Where a subtree's top block lies, and its generation.
    place: Option<(Logical, Option<Transid>)>,
}

#[derive(Debug)]
struct Step {
    block: Block,
    slot: usize,
    /// Children before this slot have been read ahead.
    read_to: usize,
    /// All keys of `block` lie below it.
    bound: Option<Key>,
}

/// The path of one tree.
#[derive(Debug)]
struct Side {
    store: Arc<NodeStore>,
    root: CommittedRoot,
    /// The side stands on the whole tree.
    at_root: bool,
    steps: Vec<Step>,
}

impl Side {
    fn new(view: &View) -> Side {
        Side {
            store: Arc::clone(view.store()),
            root: view.committed(),
            at_root: true,
            steps: Vec::new(),
        }
    }

    /// A side that has come to its end.
    fn empty(like: &View) -> Side {
        Side {
            at_root: false,
            ..Side::new(like)
        }
    }

    fn front(&self) -> Option<Front> {
        if self.at_root {
            return Some(Front {
                key: Key::MIN,
                height: self.root.level.saturating_add(1),
                place: Some((self.root.bytenr, self.root.generation)),
            });
        }
        let step = self.steps.last()?;
        let node = step.block.node();
        let key = node.key(step.slot)?;
        let place = node.ptrs().get(step.slot).map(|ptr| {
            let generation = Transid(ptr.generation.get());
            (Logical(ptr.blockptr.get()), Some(generation))
        });
        Some(Front {
            key,
            height: node.level(),
            place,
        })
    }

    /// The item that the side stands on; goes on behind it.
    fn take_item(&mut self) -> Option<Item> {
        let step = self.steps.last()?;
        let item = step.block.item(step.slot);
        self.pass();
        item
    }

    /// Goes on behind the item or subtree that the side stands on.
    fn pass(&mut self) {
        // COMPARE-1
        self.at_root = false;
        while let Some(step) = self.steps.last_mut() {
            step.slot += 1;
            if step.slot < step.block.node().len() {
                return;
            }
            self.steps.pop();
        }
    }

    /// Goes to the first entry of the subtree that the side stands on.
    fn enter(&mut self) -> Result<(), TreeError> {
        let (block, bound) = match self.steps.last() {
            None => (self.root.read(&self.store)?, None),
            Some(parent) => {
                let mut bound = parent.bound;
                let root = &self.root;
                let block = root.read_child(&self.store, &parent.block, parent.slot, &mut bound)?;
                (block, bound)
            }
        };
        self.at_root = false;
        // Only the root of a tree without items.
        if !block.node().is_empty() {
            self.steps.push(Step {
                block,
                slot: 0,
                read_to: 0,
                bound,
            });
        }
        Ok(())
    }

    /// The coming siblings of the subtree that the side stands on, but those that the other side shares. None if they have been
    /// read ahead.
    fn ahead(&mut self, other: &Side) -> Vec<Expect> {
        let Some(parent) = self.steps.last_mut() else {
            return Vec::new();
        };
        if parent.slot < parent.read_to {
            return Vec::new();
        }
        let level = parent.block.node().level();
        let shared: HashSet<u64> = other
            .steps
            .iter()
            .filter(|step| step.block.node().level() == level)
            .flat_map(|step| step.block.node().ptrs())
            .map(|ptr| ptr.blockptr.get())
            .collect();
        let mut ahead = Vec::new();
        parent.read_to = parent.slot;
        while ahead.len() < self.store.read_ahead_blocks()
            && let Some(expect) = self.root.expect_child(&parent.block, parent.read_to)
        {
            if !shared.contains(&expect.bytenr.0) {
                ahead.push(expect);
            }
            parent.read_to += 1;
        }
        ahead
    }

    /// The children of nodes, as far as these are at hand.
    fn children(&self, nodes: &[Expect]) -> Vec<Expect> {
        let mut children = Vec::new();
        for expect in nodes {
            if expect.level == Some(0) || !self.store.is_cached(expect.bytenr) {
                continue;
            }
            // A block that is not sound is an error once it is entered.
            if let Ok(block) = self.store.read(self.root.tree, expect) {
                let slots = 0..block.node().len();
                children.extend(slots.filter_map(|slot| self.root.expect_child(&block, slot)));
            }
        }
        children
    }
}

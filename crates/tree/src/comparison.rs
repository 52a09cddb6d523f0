//! The items in which two committed trees differ, in key order.
//!
//! Both trees are walked side by side. A subtree to which both lead by the same address and generation is passed over
//! unread. So comparing two snapshots costs what differs and the nodes above it.
//!
//! Invariants
//! - COMPARE-1: each side stands on an item or on a subtree. All that comes after has greater keys.
//! - COMPARE-2: the side whose key is lower moves; of equal keys the subtree that is higher is entered.
//! - COMPARE-3: a block that was read ahead is kept until both sides have passed its first key.
//!
//! Memory: one path of blocks a side. For each level, ten windows of blocks that were read ahead; a window has 128 blocks at
//! most, and fewer beside a small cache (`window_of`).
//!
//! Locks: none; no block is read while the cache is locked.
//! Not here: what keeps the trees from being freed. A block that was given out again is an error.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::{Logical, Transid};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::KeyPtr;
use zerocopy::IntoBytes;

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

    /// Returns the item as the old tree has it.
    pub fn old_item(&self) -> Option<&Item> {
        match self {
            Difference::Removed(item) | Difference::Changed { old: item, .. } => Some(item),
            Difference::Added(_) => None,
        }
    }

    /// Returns the item as the new tree has it.
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
    ahead: Ahead,
}

/// One step of a comparison.
enum Step {
    Found(Difference),
    /// The sides went on behind something that both have alike.
    Passed,
    /// A block was read.
    Entered,
    End,
}

impl Step {
    fn of(difference: Option<Difference>) -> Step {
        difference.map_or(Step::Passed, Step::Found)
    }
}

impl Comparison {
    /// Compares `new` with `old`, or with an empty tree: then all items of `new` are [`Difference::Added`].
    pub fn new(old: Option<&View>, new: &View) -> Comparison {
        Comparison {
            old: old.map_or_else(|| Side::empty(new), Side::new),
            new: Side::new(new),
            ahead: Ahead::default(),
        }
    }

    /// Excludes items of these types, and reads no leaf that has no others.
    #[must_use]
    pub fn without(mut self, types: RangeInclusive<KeyType>) -> Comparison {
        let left_out = LeftOut(Some((*types.start(), *types.end())));
        (self.old.left_out, self.new.left_out) = (left_out, left_out);
        self
    }

    /// Finds the next difference. None at the end of both trees.
    ///
    /// An error ends the comparison: what comes after it is not defined.
    pub fn next_difference(&mut self) -> Result<Option<Difference>, TreeError> {
        loop {
            match self.step()? {
                Step::Found(difference) => return Ok(Some(difference)),
                Step::Passed | Step::Entered => {}
                Step::End => return Ok(None),
            }
        }
    }

    /// Adds the next difference, and those after it that lie in the same two leaves. False at the end of both trees.
    ///
    /// Adds none, and returns true, if it comes upon many blocks that were rewritten and are alike. So a caller may stop
    /// amid them. An error ends the comparison as well. Differences that were added before it are sound.
    pub fn next_of_leaves(&mut self, found: &mut Vec<Difference>) -> Result<bool, TreeError> {
        let before = found.len();
        let mut entered = 0;
        loop {
            match self.step()? {
                Step::Found(difference) => found.push(difference),
                Step::Entered if found.len() > before || entered == MAX_ENTERED => return Ok(true),
                Step::Entered => entered += 1,
                Step::Passed => {}
                Step::End => return Ok(found.len() > before),
            }
        }
    }

    fn step(&mut self) -> Result<Step, TreeError> {
        self.old.pass_left_out();
        self.new.pass_left_out();
        let (old, new) = (self.old.front(), self.new.front());
        let order = match (&old, &new) {
            (None, None) => return Ok(Step::End),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.key.cmp(&new.key),
        };
        // COMPARE-2
        match (order, old, new) {
            (Ordering::Less, Some(old), _) => self.take_old(&old),
            (Ordering::Greater, _, Some(new)) => self.take_new(&new),
            (_, Some(old), Some(new)) => self.take_both(&old, &new),
            _ => Ok(Step::End),
        }
    }

    fn take_old(&mut self, front: &Front) -> Result<Step, TreeError> {
        match front.height {
            0 => Ok(Step::of(self.old.take_item().map(Difference::Removed))),
            _ => self.enter(true, false),
        }
    }

    fn take_new(&mut self, front: &Front) -> Result<Step, TreeError> {
        match front.height {
            0 => Ok(Step::of(self.new.take_item().map(Difference::Added))),
            _ => self.enter(false, true),
        }
    }

    /// Takes a step where both sides stand on the same key.
    fn take_both(&mut self, old: &Front, new: &Front) -> Result<Step, TreeError> {
        let alike = self.alike();
        if alike > 0 {
            self.old.pass(alike);
            self.new.pass(alike);
            return Ok(Step::Passed);
        }
        if (old.height, new.height) == (0, 0) {
            let pair = self.old.take_item().zip(self.new.take_item());
            return Ok(Step::of(
                pair.map(|(old, new)| Difference::Changed { old, new }),
            ));
        }
        // Both stand on their whole trees.
        if old.height == new.height && old.place == new.place {
            self.old.pass(1);
            self.new.pass(1);
            return Ok(Step::Passed);
        }
        self.enter(old.height >= new.height, new.height >= old.height)
    }

    /// Returns how many entries of the blocks that the sides stand in are alike from here on: items, or subtrees that
    /// both share.
    fn alike(&self) -> usize {
        match (self.old.levels.last(), self.new.levels.last()) {
            (Some(old), Some(new)) if !self.old.at_root && !self.new.at_root => {
                let (from, other) = (old.block.node(), new.block.node());
                match (from.level(), other.level()) {
                    (0, 0) => (0..)
                        .take_while(|at| {
                            let item = from.item(old.slot + at);
                            item.is_some() && item == other.item(new.slot + at)
                        })
                        .count(),
                    (a, b) if a == b => shared(from.ptrs(), old.slot, other.ptrs(), new.slot),
                    _ => 0,
                }
            }
            _ => 0,
        }
    }

    /// Enters the subtrees that the sides stand on.
    fn enter(&mut self, old: bool, new: bool) -> Result<Step, TreeError> {
        self.read_ahead(old, new);
        if old {
            self.old.enter(&self.ahead)?;
        }
        if new {
            self.new.enter(&self.ahead)?;
        }
        Ok(Step::Entered)
    }

    /// Reads what differs of the coming subtrees, and of those below if both sides are entered.
    ///
    /// A few changes leave one leaf or two that differ below each node. Read a node at a time, each would be waited for.
    fn read_ahead(&mut self, old: bool, new: bool) {
        if !(old && new) {
            let most = self.window().min(self.new.store.read_ahead_blocks());
            let (side, other) = match old {
                true => (&mut self.old, &self.new),
                false => (&mut self.new, &self.old),
            };
            // Subtrees that begin below it are on this side alone.
            let end = other.front().map(|front| front.key);
            let alone = side.ahead(end, most);
            return self.keep_ahead(&alone);
        }
        let Some((of_old, of_new, end)) = self.both_ahead() else {
            return;
        };
        let both: Vec<Expect> = of_old.iter().chain(&of_new).copied().collect();
        self.keep_ahead(&both);
        let most = NODES_BELOW * self.window();
        self.keep_ahead(&self.differing_below(&of_old, &of_new, end, most));
    }

    /// Reads blocks ahead and keeps them. Lets go of those that both sides have passed.
    fn keep_ahead(&mut self, expects: &[Expect]) {
        if expects.is_empty() {
            return;
        }
        let fronts = [self.old.front(), self.new.front()];
        let front = fronts.iter().flatten().map(|front| front.key).min();
        self.ahead.pass(front.unwrap_or(Key::MIN));
        let is_kept = |expect: &&Expect| self.ahead.get(expect).is_some();
        let wanted: Vec<Expect> = expects.iter().filter(|of| !is_kept(of)).copied().collect();
        self.ahead.keep(self.new.store.read_batch(&wanted));
    }

    /// Returns how many siblings of a side are read ahead with what differs below them.
    fn window(&self) -> usize {
        let store = &self.new.store;
        window_of(store.cache_blocks(), store.read_ahead_blocks())
    }

    /// Returns the coming siblings on both sides that are not shared, and the key that they end before. It returns None
    /// if they have been read ahead, and for the roots.
    fn both_ahead(&mut self) -> Option<(Vec<Expect>, Vec<Expect>, Option<Key>)> {
        let most = self.window();
        let (old, new) = (self.old.levels.last_mut()?, self.new.levels.last_mut()?);
        if old.slot < old.read_to && new.slot < new.read_to {
            return None;
        }
        let bounds = [old.bound, new.bound];
        let bound = bounds.into_iter().flatten().min();
        let mut ahead = [Vec::new(), Vec::new()];
        (old.read_to, new.read_to) = (old.slot, new.slot);
        let end = loop {
            let [ptrs, others] = [&old.block, &new.block].map(|block| block.node().ptrs());
            let shared = shared(ptrs, old.read_to, others, new.read_to);
            (old.read_to, new.read_to) = (old.read_to + shared, new.read_to + shared);
            let keys = [old.key(old.read_to), new.key(new.read_to)];
            let next = keys.into_iter().flatten().min().or(bound);
            if next >= bound && bound.is_some() || ahead.iter().any(|of| of.len() >= most) {
                break next;
            }
            let Some(next) = next else {
                break None;
            };
            if keys[0] == Some(next) {
                ahead[0].extend(self.old.left_out.child(&self.old.root, old, old.read_to));
                old.read_to += 1;
            }
            if keys[1] == Some(next) {
                ahead[1].extend(self.new.left_out.child(&self.new.root, new, new.read_to));
                new.read_to += 1;
            }
        };
        let [of_old, of_new] = ahead;
        Some((of_old, of_new, end))
    }

    /// Returns up to `most` children of nodes of both sides that are not shared and begin below `end`, in key order.
    /// Nodes that are not at hand are left out.
    fn differing_below(
        &self,
        of_old: &[Expect],
        of_new: &[Expect],
        end: Option<Key>,
        most: usize,
    ) -> Vec<Expect> {
        let [old_nodes, new_nodes] = [of_old, of_new].map(|nodes| self.ahead.nodes(nodes));
        let (mut old, mut new) = (Children::of(&old_nodes), Children::of(&new_nodes));
        let mut differing = Vec::new();
        loop {
            let shared = shared(old.ptrs(), old.slot, new.ptrs(), new.slot);
            if shared > 0 {
                old.pass(shared);
                new.pass(shared);
                continue;
            }
            let keys = [old.key(), new.key()];
            let Some(next) = keys.into_iter().flatten().min() else {
                return differing;
            };
            if end.is_some_and(|end| next >= end) || differing.len() >= most {
                return differing;
            }
            for (key, side, children) in [
                (keys[0], &self.old, &mut old),
                (keys[1], &self.new, &mut new),
            ] {
                if let Some(key) = key
                    && key == next
                {
                    if !side.left_out.has_all(key, children.next_key().or(end)) {
                        differing.extend(children.expect(&side.root));
                    }
                    children.pass(1);
                }
            }
        }
    }
}

/// A search for differences returns after so many steps into blocks.
const MAX_ENTERED: usize = 64;
/// For each node that is read ahead, so many nodes below them all are.
const NODES_BELOW: usize = 8;
const MAX_WINDOW: usize = 128;
/// Reading ahead at a level takes about this part of the cache.
const CACHE_PART: usize = 16;
/// The window is no smaller than one batch of blocks, if reading ahead at a level then takes about this part of the cache.
const LARGEST_CACHE_PART: usize = 4;

/// Returns the size of a window. Blocks are kept outside the cache, and are not to be many beside a small one.
fn window_of(cache_blocks: usize, batch: usize) -> usize {
    let part = |part| cache_blocks / part / NODES_BELOW;
    let least = batch.min(part(LARGEST_CACHE_PART)).max(1);
    part(CACHE_PART).min(MAX_WINDOW).max(least)
}

/// Returns how many pointers are equal from these slots on.
fn shared(ptrs: &[KeyPtr], slot: usize, others: &[KeyPtr], other_slot: usize) -> usize {
    let ptrs = ptrs.get(slot..).unwrap_or_default();
    let others = others.get(other_slot..).unwrap_or_default();
    let pairs = ptrs.iter().zip(others);
    pairs
        .take_while(|(ptr, other)| ptr.as_bytes() == other.as_bytes())
        .count()
}

/// Goes through the children of several nodes.
struct Children<'b> {
    nodes: &'b [Block],
    slot: usize,
}

impl<'b> Children<'b> {
    fn of(nodes: &'b [Block]) -> Children<'b> {
        Children { nodes, slot: 0 }
    }

    /// Returns the pointers of the node that the walk is in.
    fn ptrs(&self) -> &'b [KeyPtr] {
        let node = self.nodes.first().map(Block::node);
        node.map(|node| node.ptrs()).unwrap_or_default()
    }

    fn key(&self) -> Option<Key> {
        self.ptrs().get(self.slot).map(|ptr| ptr.key.get())
    }

    /// Returns the key of the child after it, in the next node if need be. The child's own keys lie below.
    fn next_key(&self) -> Option<Key> {
        let in_next_node = || self.nodes.get(1)?.node().key(0);
        let next = self.ptrs().get(self.slot + 1).map(|ptr| ptr.key.get());
        next.or_else(in_next_node)
    }

    fn expect(&self, root: &CommittedRoot) -> Option<Expect> {
        root.expect_child(self.nodes.first()?, self.slot)
    }

    /// Goes on behind `count` children of the node.
    fn pass(&mut self, count: usize) {
        self.slot += count;
        if self.slot >= self.ptrs().len() {
            self.nodes = self.nodes.get(1..).unwrap_or_default();
            self.slot = 0;
        }
    }
}

/// Blocks that were read ahead, by their first key and address.
#[derive(Debug, Default)]
struct Ahead(BTreeMap<(Key, Logical), Block>);

impl Ahead {
    fn get(&self, expect: &Expect) -> Option<&Block> {
        self.0.get(&(expect.first_key?, expect.bytenr))
    }

    fn keep(&mut self, blocks: Vec<Block>) {
        self.0.extend(blocks.into_iter().filter_map(|block| {
            let node = block.node();
            Some(((node.key(0)?, node.bytenr()), block))
        }));
    }

    /// COMPARE-3
    fn pass(&mut self, front: Key) {
        self.0 = self.0.split_off(&(front, Logical(0)));
    }

    /// Returns the blocks of `expects` that are here and have children.
    fn nodes(&self, expects: &[Expect]) -> Vec<Block> {
        let kept = expects.iter().filter_map(|expect| self.get(expect));
        kept.filter(|block| !block.node().is_leaf())
            .cloned()
            .collect()
    }
}

/// The next item or subtree of one side.
struct Front {
    key: Key,
    /// 0 for an item, else one more than the level of the subtree's top block.
    height: u8,
    /// Where a subtree's top block lies, and its generation.
    place: Option<(Logical, Option<Transid>)>,
}

#[derive(Debug)]
struct Level {
    block: Block,
    slot: usize,
    /// Children before this slot have been read ahead.
    read_to: usize,
    /// All keys of `block` lie below it.
    bound: Option<Key>,
}

impl Level {
    fn key(&self, slot: usize) -> Option<Key> {
        self.block.node().key(slot)
    }

    /// Returns the key that all keys of the child in `slot` lie below.
    fn bound_of(&self, slot: usize) -> Option<Key> {
        self.key(slot + 1).or(self.bound)
    }
}

/// The lowest and the highest of the types whose items are left out.
#[derive(Clone, Copy, Debug, Default)]
struct LeftOut(Option<(KeyType, KeyType)>);

impl LeftOut {
    /// Returns the last key that left-out items of an object can have, if `key` is of one of them.
    fn end(self, key: Key) -> Option<Key> {
        let (lowest, highest) = self.0?;
        let is_one = (lowest..=highest).contains(&key.item_type);
        is_one.then(|| Key::new(key.objectid, highest, u64::MAX))
    }

    /// Returns whether all keys from `first` to before `bound` are left out.
    fn has_all(self, first: Key, bound: Option<Key>) -> bool {
        let end = self.end(first);
        end.zip(bound).is_some_and(|(end, bound)| bound <= end)
    }

    /// Returns the child in a slot, unless all of it is left out.
    fn child(self, root: &CommittedRoot, level: &Level, slot: usize) -> Option<Expect> {
        let first = level.key(slot)?;
        match self.has_all(first, level.bound_of(slot)) {
            true => None,
            false => root.expect_child(&level.block, slot),
        }
    }
}

/// The path of one tree.
#[derive(Debug)]
struct Side {
    store: Arc<NodeStore>,
    root: CommittedRoot,
    left_out: LeftOut,
    /// The side stands on the whole tree.
    at_root: bool,
    levels: Vec<Level>,
}

impl Side {
    fn new(view: &View) -> Side {
        Side {
            store: Arc::clone(view.store()),
            root: view.committed(),
            left_out: LeftOut::default(),
            at_root: true,
            levels: Vec::new(),
        }
    }

    /// Creates a side that has come to its end.
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
        let level = self.levels.last()?;
        let node = level.block.node();
        let key = node.key(level.slot)?;
        let place = node.ptrs().get(level.slot).map(|ptr| {
            let generation = Transid(ptr.generation.get());
            (Logical(ptr.blockptr.get()), Some(generation))
        });
        Some(Front {
            key,
            height: node.level(),
            place,
        })
    }

    /// Goes on to what is not left out.
    fn pass_left_out(&mut self) {
        while !self.at_root
            && let Some(level) = self.levels.last()
            && let Some(key) = level.key(level.slot)
            && let Some(end) = self.left_out.end(key)
        {
            let node = level.block.node();
            let count = match node.is_leaf() {
                true => match node.search(&end) {
                    Ok(last) => last + 1 - level.slot,
                    Err(behind) => behind - level.slot,
                },
                false if self.left_out.has_all(key, level.bound_of(level.slot)) => 1,
                false => return,
            };
            self.pass(count);
        }
    }

    /// Returns the item that the side stands on, and goes on behind it.
    fn take_item(&mut self) -> Option<Item> {
        let level = self.levels.last()?;
        let item = level.block.item(level.slot);
        self.pass(1);
        item
    }

    /// Goes on behind so many items or subtrees of the block that the side stands in, or behind the whole tree.
    fn pass(&mut self, mut count: usize) {
        // COMPARE-1
        self.at_root = false;
        while let Some(level) = self.levels.last_mut() {
            level.slot += count;
            count = 1;
            if level.slot < level.block.node().len() {
                return;
            }
            self.levels.pop();
        }
    }

    /// Goes to the first entry of the subtree that the side stands on.
    fn enter(&mut self, ahead: &Ahead) -> Result<(), TreeError> {
        let (block, bound) = match self.levels.last() {
            None => (self.root.read(&self.store)?, None),
            Some(parent) => {
                let mut bound = parent.bound;
                let tree = self.root.tree;
                let read = |expect: &Expect| match ahead.get(expect) {
                    Some(block) => self.store.kept(tree, block.clone(), expect),
                    None => self.store.read(tree, expect),
                };
                let root = &self.root;
                let block = root.read_child_by(read, &parent.block, parent.slot, &mut bound)?;
                (block, bound)
            }
        };
        self.at_root = false;
        // Only the root of a tree without items.
        if !block.node().is_empty() {
            self.levels.push(Level {
                block,
                slot: 0,
                read_to: 0,
                bound,
            });
        }
        Ok(())
    }

    /// Returns the subtree that the side stands on and its coming siblings that begin below `end`, `most` at most. It
    /// returns none if they have been read ahead.
    fn ahead(&mut self, end: Option<Key>, most: usize) -> Vec<Expect> {
        let Some(parent) = self.levels.last_mut() else {
            return Vec::new();
        };
        if parent.slot < parent.read_to {
            return Vec::new();
        }
        let mut ahead = Vec::new();
        parent.read_to = parent.slot;
        while let Some(first) = parent.key(parent.read_to)
            && end.is_none_or(|end| first < end)
            && ahead.len() < most
        {
            ahead.extend(self.left_out.child(&self.root, parent, parent.read_to));
            parent.read_to += 1;
        }
        ahead
    }
}

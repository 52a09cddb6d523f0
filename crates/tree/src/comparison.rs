//! Difference between two committed trees: the items that were added, removed or changed, in key order.
//!
//! Both trees are walked in parallel. A subtree that both reach by the same address and generation is skipped unread.
//! So the cost of comparing two snapshots is proportional to the differing leaves and the nodes above them.
//!
//! Invariants
//! - COMPARE-1: each side is at an item or a subtree. All later ones have greater keys.
//! - COMPARE-2: the side with the lower key advances; of equal keys the higher subtree is entered.
//! - COMPARE-3: a block that was read ahead is kept until both sides have passed its first key.
//!
//! Memory: one path of blocks for each side. For each level, ten windows of blocks read ahead; a window has at most
//! 128 blocks, and fewer if the cache is small (`window_of`).
//!
//! Locks: none; no block is read while the cache is locked.
//! Not here: the protection of the trees from being freed. A block whose address was reused is an error.

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

/// An item that is in only one of two trees, or in both with different bytes.
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

    /// Returns the item in the old tree.
    pub fn old_item(&self) -> Option<&Item> {
        match self {
            Difference::Removed(item) | Difference::Changed { old: item, .. } => Some(item),
            Difference::Added(_) => None,
        }
    }

    /// Returns the item in the new tree.
    pub fn new_item(&self) -> Option<&Item> {
        match self {
            Difference::Added(item) | Difference::Changed { new: item, .. } => Some(item),
            Difference::Removed(_) => None,
        }
    }
}

/// A comparison of two trees of one volume as of their last commits.
///
/// Neither tree may change: they must belong to read-only subvolumes that cannot be deleted during the comparison.
#[derive(Debug)]
pub struct Comparison {
    old: Side,
    new: Side,
    ahead: Ahead,
}

/// One step of a comparison.
enum Step {
    Found(Difference),
    /// Both sides skipped entries that are equal.
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
    /// Compares `new` with `old`. Without `old`, all items of `new` are [`Difference::Added`].
    pub fn new(old: Option<&View>, new: &View) -> Comparison {
        Comparison {
            old: old.map_or_else(|| Side::empty(new), Side::new),
            new: Side::new(new),
            ahead: Ahead::default(),
        }
    }

    /// Excludes items with these types, and does not read leaves that contain nothing else.
    #[must_use]
    pub fn without(mut self, types: RangeInclusive<KeyType>) -> Comparison {
        let left_out = LeftOut(Some((*types.start(), *types.end())));
        (self.old.left_out, self.new.left_out) = (left_out, left_out);
        self
    }

    /// Finds the next difference. Returns None at the end of both trees.
    ///
    /// After an error the comparison must not be continued.
    pub fn next_difference(&mut self) -> Result<Option<Difference>, TreeError> {
        loop {
            match self.step()? {
                Step::Found(difference) => return Ok(Some(difference)),
                Step::Passed | Step::Entered => {}
                Step::End => return Ok(None),
            }
        }
    }

    /// Appends the next difference and all later ones in the same two leaves. Returns false at the end of both trees.
    ///
    /// Returns true without a difference after many rewritten blocks with equal contents, so that the caller can
    /// cancel. After an error the comparison must not be continued, but the differences appended before it are valid.
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

    /// Takes a step where both sides are at the same key.
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
        // Both sides are at the root of their tree.
        if old.height == new.height && old.place == new.place {
            self.old.pass(1);
            self.new.pass(1);
            return Ok(Step::Passed);
        }
        self.enter(old.height >= new.height, new.height >= old.height)
    }

    /// Returns how many entries of both current blocks are equal from here on: items, or shared subtrees.
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

    /// Enters the current subtrees.
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

    /// Reads ahead the differing blocks among the next subtrees, and among their children if both sides are entered.
    ///
    /// After a few scattered changes, only one or two leaves below each node differ. Reading node by node would wait
    /// for each of them.
    fn read_ahead(&mut self, old: bool, new: bool) {
        if !(old && new) {
            let most = self.window().min(self.new.store.read_ahead_blocks());
            let (side, other) = if old {
                (&mut self.old, &self.new)
            } else {
                (&mut self.new, &self.old)
            };
            // Subtrees that begin below this key exist on this side only.
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

    /// Reads blocks ahead and keeps them. Drops the kept blocks that both sides have passed.
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

    /// Returns how many siblings of a side are read ahead together with their differing children.
    fn window(&self) -> usize {
        let store = &self.new.store;
        window_of(store.cache_blocks(), store.read_ahead_blocks())
    }

    /// Returns the next siblings on both sides that are not shared, and the exclusive upper bound of their keys.
    /// Returns None if they have been read ahead already, and for the roots.
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
            // Skip the pointers that both blocks share, because their subtrees are equal.
            let shared = shared(ptrs, old.read_to, others, new.read_to);
            (old.read_to, new.read_to) = (old.read_to + shared, new.read_to + shared);
            let keys = [old.key(old.read_to), new.key(new.read_to)];
            let next = keys.into_iter().flatten().min().or(bound);
            // Stop where one of the blocks ends, or when a window is full.
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
    /// Nodes that are not in memory are skipped.
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

/// Number of blocks entered without a difference before a search returns.
const MAX_ENTERED: usize = 64;
/// Number of nodes whose children are read ahead, per node in the window.
const NODES_BELOW: usize = 8;
const MAX_WINDOW: usize = 128;
/// Reading ahead at one level takes up to this fraction of the cache: a 16th.
const CACHE_PART: usize = 16;
/// The window is at least one batch of blocks if that takes no more than this fraction of the cache: a quarter.
const LARGEST_CACHE_PART: usize = 4;

/// Returns the size of a window. Blocks are kept outside of the cache, so that a small cache needs a small window.
fn window_of(cache_blocks: usize, batch: usize) -> usize {
    let part = |part| cache_blocks / part / NODES_BELOW;
    let least = batch.min(part(LARGEST_CACHE_PART)).max(1);
    part(CACHE_PART).min(MAX_WINDOW).max(least)
}

/// Returns how many consecutive pointers are equal from these slots on.
fn shared(ptrs: &[KeyPtr], slot: usize, others: &[KeyPtr], other_slot: usize) -> usize {
    let ptrs = ptrs.get(slot..).unwrap_or_default();
    let others = others.get(other_slot..).unwrap_or_default();
    let pairs = ptrs.iter().zip(others);
    pairs
        .take_while(|(ptr, other)| ptr.as_bytes() == other.as_bytes())
        .count()
}

/// An iterator over the children of several nodes.
struct Children<'b> {
    nodes: &'b [Block],
    slot: usize,
}

impl<'b> Children<'b> {
    fn of(nodes: &'b [Block]) -> Children<'b> {
        Children { nodes, slot: 0 }
    }

    /// Returns the pointers of the current node.
    fn ptrs(&self) -> &'b [KeyPtr] {
        let node = self.nodes.first().map(Block::node);
        node.map(|node| node.ptrs()).unwrap_or_default()
    }

    fn key(&self) -> Option<Key> {
        self.ptrs().get(self.slot).map(|ptr| ptr.key.get())
    }

    /// Returns the key of the following child, which may be in the next node. It bounds the keys of the current
    /// child.
    fn next_key(&self) -> Option<Key> {
        let in_next_node = || self.nodes.get(1)?.node().key(0);
        let next = self.ptrs().get(self.slot + 1).map(|ptr| ptr.key.get());
        next.or_else(in_next_node)
    }

    fn expect(&self, root: &CommittedRoot) -> Option<Expect> {
        root.expect_child(self.nodes.first()?, self.slot)
    }

    /// Skips `count` children of the current node.
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

    /// Returns the interior nodes among `expects` that are in memory.
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
    /// 0 for an item; for a subtree, the level of its top block plus 1.
    height: u8,
    /// Address and generation of a subtree's top block.
    place: Option<(Logical, Option<Transid>)>,
}

#[derive(Debug)]
struct Level {
    block: Block,
    slot: usize,
    /// Children before this slot have been read ahead.
    read_to: usize,
    /// Exclusive upper bound of all keys in `block`.
    bound: Option<Key>,
}

impl Level {
    fn key(&self, slot: usize) -> Option<Key> {
        self.block.node().key(slot)
    }

    /// Returns the exclusive upper bound of the keys in the child in `slot`.
    fn bound_of(&self, slot: usize) -> Option<Key> {
        self.key(slot + 1).or(self.bound)
    }
}

/// The lowest and the highest of the excluded item types.
#[derive(Clone, Copy, Debug, Default)]
struct LeftOut(Option<(KeyType, KeyType)>);

impl LeftOut {
    /// Returns the last key that excluded items of an object can have, if `key` has an excluded type.
    fn end(self, key: Key) -> Option<Key> {
        let (lowest, highest) = self.0?;
        let is_one = (lowest..=highest).contains(&key.item_type);
        is_one.then(|| Key::new(key.objectid, highest, u64::MAX))
    }

    /// Returns whether all keys from `first` to before `bound` are excluded.
    fn has_all(self, first: Key, bound: Option<Key>) -> bool {
        let end = self.end(first);
        end.zip(bound).is_some_and(|(end, bound)| bound <= end)
    }

    /// Returns the child in a slot, unless all of it is excluded.
    fn child(self, root: &CommittedRoot, level: &Level, slot: usize) -> Option<Expect> {
        let first = level.key(slot)?;
        if self.has_all(first, level.bound_of(slot)) {
            None
        } else {
            root.expect_child(&level.block, slot)
        }
    }
}

/// The position in one tree.
#[derive(Debug)]
struct Side {
    store: Arc<NodeStore>,
    root: CommittedRoot,
    left_out: LeftOut,
    /// Whether the side is at the whole tree and has read no block.
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

    /// Creates a side that is at its end.
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

    /// Skips excluded items and subtrees.
    fn pass_left_out(&mut self) {
        while !self.at_root
            && let Some(level) = self.levels.last()
            && let Some(key) = level.key(level.slot)
            && let Some(end) = self.left_out.end(key)
        {
            let node = level.block.node();
            let count = if node.is_leaf() {
                match node.search(&end) {
                    Ok(last) => last + 1 - level.slot,
                    Err(behind) => behind - level.slot,
                }
            } else if self.left_out.has_all(key, level.bound_of(level.slot)) {
                1
            } else {
                return;
            };
            self.pass(count);
        }
    }

    /// Returns the current item and moves past it.
    fn take_item(&mut self) -> Option<Item> {
        let level = self.levels.last()?;
        let item = level.block.item(level.slot);
        self.pass(1);
        item
    }

    /// Skips `count` items or subtrees of the current block, or the whole tree.
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

    /// Moves to the first entry of the current subtree.
    fn enter(&mut self, ahead: &Ahead) -> Result<(), TreeError> {
        let (block, bound) = match self.levels.last() {
            None => (self.root.read(&self.store)?, None),
            Some(parent) => {
                let mut bound = parent.bound;
                let tree = self.root.tree;
                let read = |expect: &Expect| match ahead.get(expect) {
                    Some(block) => self.store.kept(tree, block.clone(), expect),
                    None => self.store.read_held(tree, expect),
                };
                let root = &self.root;
                let block = root.read_child_by(read, &parent.block, parent.slot, &mut bound)?;
                (block, bound)
            }
        };
        self.at_root = false;
        // Empty only for the root of a tree without items.
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

    /// Returns the current subtree and up to `most - 1` siblings after it that begin below `end`. Returns an empty
    /// list if they have been read ahead already.
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

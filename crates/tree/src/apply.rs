//! (root, sorted batch of changes) -> new root.
//!
//! One walk in key order. Siblings that are touched and stand beside each other are rebuilt as one run:
//! their items, merged with the changes, flow into new leaves, and the pointers to those are the change
//! of the level above. Subtrees without a change are neither read nor written.
//!
//! Invariants
//! - APPLY-1: each touched block is read once and retired once; each new block is emitted once, after
//!   the blocks below it.
//! - APPLY-2: the new tree holds the old items with the changes made, and nothing else.
//! - APPLY-3: memory is bounded by the batch: pointers to the touched blocks and their replacements,
//!   and the items of two leaves.
//! - APPLY-4: no interior node has fewer than two children at the root, and no block but the root of an
//!   empty tree is empty.
//!
//! How full: within a run leaves are filled evenly, so that a random insert splits a leaf in halves. A
//! batch that appends behind all old items fills leaves to the brim, for the next append starts anew.
//!
//! Not here: reference counts of the blocks that come and go (`ApplyIo` is told of each), checksums
//! (taken when a block is written).

mod pack;

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::ops::Range;

use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::key::Key;
use ubtrfs_format::node::{ITEM_HEAD_SIZE, KeyPtr, leaf_data_size, max_key_ptrs};

use crate::block::Block;
use crate::build::{BlockFormat, BlockSink, BuildError, OpenLeaf};
use crate::committed::CommittedRoot;
use pack::{LeafPacker, Piece};

/// What becomes of one key.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    pub key: Key,
    /// None deletes the item, if there is one.
    pub value: Option<&'a [u8]>,
}

impl<'a> From<(Key, Option<&'a [u8]>)> for Change<'a> {
    fn from((key, value): (Key, Option<&'a [u8]>)) -> Self {
        Change { key, value }
    }
}

/// Where blocks come from and go to.
pub trait ApplyIo: BlockSink {
    /// The block that a pointer describes.
    fn read(&mut self, expect: &Expect) -> Result<Block, Self::Error>;

    /// The tree has let go of `old`. If this transaction made it and it is not on disk yet, its place
    /// may be given out again at once.
    fn retire(&mut self, old: &Block) -> Result<(), Self::Error>;
}

/// Makes `changes`, which ascend strictly, in the tree at `root`.
pub fn apply<I: ApplyIo>(
    format: &BlockFormat,
    root: &CommittedRoot,
    changes: &[Change<'_>],
    io: &mut I,
) -> Result<CommittedRoot, I::Error> {
    check_batch(format, changes)?;
    if changes.is_empty() {
        return Ok(*root);
    }
    let mut apply = Apply {
        format,
        owner: root.tree,
        changes,
        io,
    };
    let whole = Touched {
        bytenr: root.bytenr,
        generation: root.generation,
        first_key: None,
        changes: 0..changes.len(),
    };
    let (level, ptrs) = if root.level == 0 {
        (0, apply.rebuild_leaves(&[whole])?)
    } else {
        (
            root.level - 1,
            apply.rebuild_children(root.level, &[whole])?,
        )
    };
    apply.make_root(level, ptrs)
}

fn check_batch(format: &BlockFormat, changes: &[Change<'_>]) -> Result<(), BuildError> {
    let room_bytes = leaf_data_size(format.nodesize);
    for pair in changes.windows(2) {
        if pair[0].key >= pair[1].key {
            let (last, key) = (pair[0].key, pair[1].key);
            return Err(BuildError::KeyOrder { last, key });
        }
    }
    for change in changes {
        let size_bytes = change.value.map_or(0, <[u8]>::len);
        if size_bytes.saturating_add(ITEM_HEAD_SIZE) > room_bytes {
            let key = change.key;
            return Err(BuildError::ItemTooLarge {
                key,
                size_bytes,
                room_bytes,
            });
        }
    }
    Ok(())
}

/// A block below which something changes.
#[derive(Debug)]
struct Touched {
    bytenr: Logical,
    generation: Option<Transid>,
    first_key: Option<Key>,
    /// Into the batch.
    changes: Range<usize>,
}

struct Apply<'a, I> {
    format: &'a BlockFormat,
    owner: RootId,
    changes: &'a [Change<'a>],
    io: &'a mut I,
}

impl<'a, I: ApplyIo> Apply<'a, I> {
    fn read(&mut self, level: u8, touched: &Touched) -> Result<Block, I::Error> {
        self.io.read(&Expect {
            bytenr: touched.bytenr,
            level: Some(level),
            generation: touched.generation,
            owner: Some(self.owner),
            first_key: touched.first_key,
        })
    }

    /// The pointers that replace a run of touched siblings of `level`.
    fn rebuild(&mut self, level: u8, run: &[Touched]) -> Result<Vec<KeyPtr>, I::Error> {
        if level == 0 {
            return self.rebuild_leaves(run);
        }
        let children = self.rebuild_children(level, run)?;
        self.pack_nodes(level, &children)
    }

    /// The pointers that a run of touched interior nodes of `level` holds afterwards, all together.
    fn rebuild_children(&mut self, level: u8, run: &[Touched]) -> Result<Vec<KeyPtr>, I::Error> {
        let mut children = Vec::new();
        let mut below: Vec<Touched> = Vec::new();
        for touched in run {
            let block = self.read(level, touched)?;
            let ptrs = block.node().ptrs();
            let mut from = touched.changes.start;
            for (slot, ptr) in ptrs.iter().enumerate() {
                let end = match ptrs.get(slot + 1) {
                    Some(next) => {
                        from + self.changes_below(from..touched.changes.end, next.key.get())
                    }
                    None => touched.changes.end,
                };
                if from == end {
                    children.extend(self.rebuild(level - 1, &below)?);
                    below.clear();
                    children.push(*ptr);
                } else {
                    below.push(Touched {
                        bytenr: Logical(ptr.blockptr.get()),
                        generation: Some(Transid(ptr.generation.get())),
                        first_key: Some(ptr.key.get()),
                        changes: from..end,
                    });
                }
                from = end;
            }
            self.io.retire(&block)?;
        }
        children.extend(self.rebuild(level - 1, &below)?);
        Ok(children)
    }

    /// How many changes of `range` have a key below `bound`.
    fn changes_below(&self, range: Range<usize>, bound: Key) -> usize {
        self.changes[range].partition_point(|change| change.key < bound)
    }

    /// Lets the items of a run of leaves, merged with their changes, flow into new leaves.
    fn rebuild_leaves(&mut self, run: &[Touched]) -> Result<Vec<KeyPtr>, I::Error> {
        let mut packer = LeafPacker::new(self.format, self.owner);
        for touched in run {
            let block = self.read(0, touched)?;
            let mut changes = self.changes[touched.changes.clone()].iter().peekable();
            let mut slot = 0;
            loop {
                let old = block.node().key(slot);
                let order = match (old, changes.peek()) {
                    (None, None) => break,
                    (Some(_), None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (Some(old), Some(change)) => old.cmp(&change.key),
                };
                if order.is_lt() {
                    if let Some(item) = block.item(slot) {
                        packer.push(Piece::Old(item), self.io)?;
                    }
                } else if let Some(change) = changes.next()
                    && let Some(value) = change.value
                {
                    packer.push(Piece::New(change.key, value), self.io)?;
                }
                if order.is_le() {
                    slot += 1;
                }
            }
            self.io.retire(&block)?;
        }
        packer.finish(self.io)
    }

    /// Nodes of `level` for `children`, evenly filled.
    fn pack_nodes(&mut self, level: u8, children: &[KeyPtr]) -> Result<Vec<KeyPtr>, I::Error> {
        let nodes = children.len().div_ceil(max_key_ptrs(self.format.nodesize));
        let mut packed = Vec::with_capacity(nodes);
        let mut rest = children;
        for node in 0..nodes {
            let (part, after) = rest.split_at(rest.len().div_ceil(nodes - node));
            packed.push(self.format.emit_node(self.owner, level, part, self.io)?);
            rest = after;
        }
        Ok(packed)
    }

    /// The root above `ptrs`, which point to blocks of `level`: as low as they allow.
    fn make_root(mut self, level: u8, ptrs: Vec<KeyPtr>) -> Result<CommittedRoot, I::Error> {
        let (mut level, mut ptrs) = (level, ptrs);
        if ptrs.is_empty() {
            level = 0;
            let leaf = OpenLeaf::new(self.format.nodesize);
            ptrs.push(self.format.emit_leaf(self.owner, leaf, self.io)?);
        }
        while ptrs.len() > 1 {
            level += 1;
            ptrs = self.pack_nodes(level, &ptrs)?;
        }
        let mut root = ptrs[0];
        while level > 0 {
            let block = self.read(
                level,
                &Touched {
                    bytenr: Logical(root.blockptr.get()),
                    generation: Some(Transid(root.generation.get())),
                    first_key: Some(root.key.get()),
                    changes: 0..0,
                },
            )?;
            let [only] = block.node().ptrs() else { break };
            root = *only;
            level -= 1;
            self.io.retire(&block)?;
        }
        Ok(CommittedRoot {
            tree: self.owner,
            bytenr: Logical(root.blockptr.get()),
            level,
            generation: Some(Transid(root.generation.get())),
        })
    }
}

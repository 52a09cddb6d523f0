//! (root, sorted batch of changes) -> new root.
//!
//! One walk in key order. Adjacent touched siblings are rebuilt as one run: their items, merged with the changes, are
//! packed into new leaves. The pointers to the new leaves are the changes of the level above. Subtrees without a
//! change are neither read nor written.
//!
//! Invariants
//! - APPLY-1: each touched block is read once, after its parent, and retired once, after the read. No other block is
//!   read or retired. A block is touched if it is between the root and a leaf that a change falls into. So is the
//!   only old block left.
//! - APPLY-2: each new block is emitted once, after the blocks below it, and is never retired.
//! - APPLY-3: the new tree holds the old items with the changes applied, and nothing else.
//! - APPLY-4: memory is bounded by the batch: pointers to the touched blocks and their replacements,
//!   and the items of three leaves.
//! - APPLY-5: the root is a new block, because no other tree may share it. It is a leaf or has at least two children.
//!   No block but the root of an empty tree is empty.
//! - APPLY-6: an interior node is retired before its replacement is placed, and a run of leaves is placed after its
//!   retirement. So a tree that does not grow can reuse the space that it frees.
//!
//! Fill factor: within a run leaves are filled evenly, so that a random insert splits a leaf in halves. A batch of
//! appends fills its leaves completely, because the next append opens a new leaf.
//!
//! Not here: reference counts of the old and new blocks (`ApplyIo` receives each), checksums (computed when a block
//! is written).

mod pack;

#[cfg(test)]
mod tests;

use std::ops::Range;

use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::key::Key;
use ubtrfs_format::node::{ITEM_HEAD_SIZE, KeyPtr, leaf_data_size, max_key_ptrs};

use crate::block::Block;
use crate::build::{BlockFormat, BlockSink, BuildError, OpenLeaf};
use crate::committed::CommittedRoot;
use pack::{LeafPacker, Piece};

/// Number of changes that are announced at once.
const ANNOUNCED: usize = 1024;

/// The change of one key.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    pub key: Key,
    /// The new item data, or None to delete the item if it exists.
    pub value: Option<&'a [u8]>,
}

impl<'a> From<(Key, Option<&'a [u8]>)> for Change<'a> {
    fn from((key, value): (Key, Option<&'a [u8]>)) -> Self {
        Change { key, value }
    }
}

/// Allocates, reads and frees blocks for [`apply`].
pub trait ApplyIo: BlockSink {
    /// Reads the block described by a pointer, which is about to be replaced. Implementations count references here:
    /// parents are read before their children, and each block once.
    fn read(&mut self, expect: &Expect) -> Result<Block, Self::Error>;

    /// Announces that the leaves of `keys` (ascending) and the nodes above them will be read. The implementation may
    /// read them ahead.
    fn announce(&mut self, keys: &[Key]) {
        let _ = keys;
    }

    /// Notes that the tree no longer contains `old`, which was read before. If this transaction built the block and
    /// has not written it, its address may be reused at once, even by the blocks that follow.
    fn retire(&mut self, old: &Block) -> Result<(), Self::Error> {
        let _ = old;
        Ok(())
    }
}

/// Applies `changes`, in strictly ascending order, to the tree at `root`.
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
        announced: 0,
        io,
    };
    let whole = Touched {
        bytenr: root.bytenr,
        generation: root.generation,
        first_key: None,
        changes: 0..changes.len(),
    };
    let (level, ptrs) = apply.rebuild_top(root.level, whole)?;
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

/// A block with a change in its subtree.
#[derive(Debug)]
struct Touched {
    bytenr: Logical,
    generation: Option<Transid>,
    first_key: Option<Key>,
    /// Range of indices into the batch.
    changes: Range<usize>,
}

impl Touched {
    /// Describes the child block of `ptr` and its changes.
    fn below(ptr: &KeyPtr, changes: Range<usize>) -> Touched {
        Touched {
            bytenr: Logical(ptr.blockptr.get()),
            generation: Some(Transid(ptr.generation.get())),
            first_key: Some(ptr.key.get()),
            changes,
        }
    }
}

struct Apply<'a, I> {
    format: &'a BlockFormat,
    owner: RootId,
    changes: &'a [Change<'a>],
    /// Number of changes that were announced to `io` so far.
    announced: usize,
    io: &'a mut I,
}

impl<'a, I: ApplyIo> Apply<'a, I> {
    fn read(&mut self, level: u8, touched: &Touched) -> Result<Block, I::Error> {
        if touched.changes.start >= self.announced && self.announced < self.changes.len() {
            let coming = &self.changes[self.announced..];
            let keys: Vec<Key> = coming.iter().take(ANNOUNCED).map(|c| c.key).collect();
            self.announced += keys.len();
            self.io.announce(&keys);
        }
        self.io.read(&Expect {
            bytenr: touched.bytenr,
            level: Some(level),
            generation: touched.generation,
            owner: Some(self.owner),
            first_key: touched.first_key,
        })
    }

    /// Rebuilds the top of the tree below a root of `level`. Returns the pointers to the remaining blocks and their
    /// level.
    fn rebuild_top(&mut self, level: u8, root: Touched) -> Result<(u8, Vec<KeyPtr>), I::Error> {
        let (mut level, mut run) = (level, vec![root]);
        while level > 0 {
            let (mut children, last) = self.rebuild_children(level, &run)?;
            level -= 1;
            if children.is_empty() {
                // All children are one run. The result may need no node above it.
                run = last;
                continue;
            }
            children.extend(self.rebuild(level, &last)?);
            match children.as_slice() {
                // APPLY-5: the only remaining child is an old block.
                [only] => run = vec![Touched::below(only, 0..0)],
                _ => return Ok((level, children)),
            }
        }
        Ok((level, self.rebuild_leaves(&run)?))
    }

    /// Rebuilds a run of touched siblings at `level` and returns the pointers that replace them.
    fn rebuild(&mut self, level: u8, run: &[Touched]) -> Result<Vec<KeyPtr>, I::Error> {
        if run.is_empty() {
            return Ok(Vec::new());
        }
        if level == 0 {
            return self.rebuild_leaves(run);
        }
        let (mut children, last) = self.rebuild_children(level, run)?;
        children.extend(self.rebuild(level - 1, &last)?);
        self.pack_nodes(level, &children)
    }

    /// Rebuilds the children of a run of touched interior nodes at `level`. Returns the combined pointers of these
    /// nodes, and the run's last touched children. Those are not rebuilt yet, and their pointers are not included.
    fn rebuild_children(
        &mut self,
        level: u8,
        run: &[Touched],
    ) -> Result<(Vec<KeyPtr>, Vec<Touched>), I::Error> {
        let mut children = Vec::new();
        let mut below: Vec<Touched> = Vec::new();
        // APPLY-1, APPLY-6: read after its parent, retired before its replacement is packed.
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
                // An untouched child separates two runs: the siblings before it are rebuilt on their own.
                if from == end {
                    children.extend(self.rebuild(level - 1, &below)?);
                    below.clear();
                    children.push(*ptr);
                } else {
                    below.push(Touched::below(ptr, from..end));
                }
                from = end;
            }
            self.io.retire(&block)?;
        }
        Ok((children, below))
    }

    /// Returns how many changes of `range` have a key below `bound`.
    fn changes_below(&self, range: Range<usize>, bound: Key) -> usize {
        self.changes[range].partition_point(|change| change.key < bound)
    }

    /// Packs the items of a run of leaves, merged with their changes, into new leaves.
    fn rebuild_leaves(&mut self, run: &[Touched]) -> Result<Vec<KeyPtr>, I::Error> {
        let mut packer = LeafPacker::new(self.format, self.owner);
        for touched in run {
            let block = self.read(0, touched)?;
            let heads = block.node().heads();
            let mut slot = 0;
            for change in &self.changes[touched.changes.clone()] {
                let below = heads[slot..].partition_point(|head| head.key.get() < change.key);
                let run = slot..slot + below;
                slot = run.end;
                if below > 0 {
                    packer.push(Piece::Old(block.clone(), run), self.io)?;
                }
                // APPLY-3: a change replaces the old item with its key.
                if block.node().key(slot) == Some(change.key) {
                    slot += 1;
                }
                if let Some(value) = change.value {
                    packer.push(Piece::New(change.key, value), self.io)?;
                }
            }
            if slot < heads.len() {
                let rest = Piece::Old(block.clone(), slot..heads.len());
                packer.push(rest, self.io)?;
            }
            self.io.retire(&block)?;
        }
        // APPLY-6: the last leaves are placed after the whole run is retired.
        packer.finish(self.io)
    }

    /// Packs `children` into evenly filled nodes at `level` and returns the pointers to them.
    fn pack_nodes(&mut self, level: u8, children: &[KeyPtr]) -> Result<Vec<KeyPtr>, I::Error> {
        let nodes = children.len().div_ceil(max_key_ptrs(self.format.nodesize));
        let mut packed = Vec::with_capacity(nodes);
        let mut rest = children;
        for node in 0..nodes {
            let (part, after) = rest.split_at(rest.len().div_ceil(nodes - node));
            // APPLY-2: its children were emitted when their pointers were made.
            packed.push(self.format.emit_node(self.owner, level, part, self.io)?);
            rest = after;
        }
        Ok(packed)
    }

    /// Creates the root above `ptrs`, which point to blocks at `level`.
    fn make_root(
        mut self,
        mut level: u8,
        mut ptrs: Vec<KeyPtr>,
    ) -> Result<CommittedRoot, I::Error> {
        // APPLY-5: a tree without items is an empty leaf.
        if ptrs.is_empty() {
            level = 0;
            let leaf = OpenLeaf::new(self.format.nodesize);
            ptrs.push(self.format.emit_leaf(self.owner, leaf, self.io)?);
        }
        while ptrs.len() > 1 {
            level += 1;
            ptrs = self.pack_nodes(level, &ptrs)?;
        }
        let root = ptrs[0];
        Ok(CommittedRoot {
            tree: self.owner,
            bytenr: Logical(root.blockptr.get()),
            level,
            generation: Some(Transid(root.generation.get())),
        })
    }
}

//! The plan of a batch: the leaves and blocks that refer to its extents, found by back references.
//!
//! All look-ups read the state of this commit, after its references were applied to the extent tree. Nothing is changed.
//!
//! A reference in the name of a tree is in a block that this tree owns and still reaches, without FULL_BACKREF. So a
//! search in this tree finds it. The items of other leaves look the same, but their leaf holds the reference.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::{Block, View};

use super::super::Commit;
use super::contradicting;
use super::graph::{Graph, GraphBlock};
use super::leaves::extents_of;
use crate::csum_tree;
use crate::error::{Error, ExtentShape, RefKey, Result};
use crate::roots::blocks;
use crate::transaction::extent_items::ExtentRecord;
use crate::transaction::relocation::{CopiedExtent, CopyState, RelocationBatch};
use crate::transaction::reservation::EditCounts;

/// The changes of a batch.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) graph: Graph,
    /// The data extents that move.
    pub(super) data: Vec<CopiedExtent>,
    /// The checksums of the moved data, at its new place.
    pub(super) csums: Vec<(Key, Option<Vec<u8>>)>,
    /// The number of references that change.
    refs: u64,
}

impl Plan {
    pub(super) fn is_empty(&self) -> bool {
        self.graph.len() == 0 && self.data.is_empty()
    }

    /// Returns the worst case of the edits.
    pub(super) fn counts(&self) -> EditCounts {
        // The items of the old and of the new extent. A changed reference may be an item of its own.
        let extents = (self.graph.len() + self.data.len()) as u64;
        let bytes = self
            .csums
            .iter()
            .map(|(_, sums)| sums.as_ref().map_or(0, Vec::len));
        EditCounts {
            items: 2 * (extents + self.refs + self.graph.changed_child_refs())
                + self.csums.len() as u64,
            // As when a shared leaf is copied by an edit, the references to its extents change their form.
            leaves: self.graph.converted_blocks(),
            bytes: bytes.sum::<usize>() as u64,
        }
    }
}

impl Commit<'_> {
    /// Plans a batch. Sets the states of the copies: included in the plan, or their extent is gone.
    ///
    /// Errors: unreadable blocks; references that contradict the trees; a subvolume that is held as a snapshot.
    pub(super) fn plan_relocation(
        &mut self,
        batch: &RelocationBatch,
        states: &mut [CopyState],
    ) -> Result<Plan> {
        self.refuse_relocation_trees()?;
        let mut plan = Plan::default();
        for (copy, state) in batch.copies.iter().zip(states) {
            if plan.graph.len() >= batch.max_copied_blocks {
                break;
            }
            *state = self.plan_data(batch, &mut plan, copy)?;
        }
        for block in self.blocks_in_group(batch)? {
            if plan.graph.len() >= batch.max_copied_blocks {
                break;
            }
            self.climb(batch, &mut plan, [block])?;
        }
        plan.graph.resolve(self.transid);
        for id in plan.graph.moved_roots() {
            // A snapshot that is being read is one root, without an epoch.
            if let Some(tree) = self.roots.known_tree(id)
                && tree.is_kept_read_only()
            {
                return Err(Error::HeldSubvolume(id));
            }
        }
        Ok(plan)
    }

    /// Adds the leaves that refer to a copied extent.
    fn plan_data(
        &mut self,
        batch: &RelocationBatch,
        plan: &mut Plan,
        copy: &CopiedExtent,
    ) -> Result<CopyState> {
        let view = self.view(RootId::EXTENT_TREE)?;
        let Some(record) = ExtentRecord::read(&view, copy.old)? else {
            return Ok(CopyState::Gone);
        };
        if record.shape != (ExtentShape::Data { len: copy.len }) {
            return Ok(CopyState::Gone);
        }
        let leaves = self.leaves_of(copy.old, &record)?;
        self.climb(batch, plan, leaves.iter().copied())?;
        for leaf in leaves {
            plan.graph.patch(leaf);
        }
        let csums = self.view(RootId::CSUM_TREE)?;
        let shape = self.csum_shape();
        plan.csums.extend(csum_tree::moved(
            &csums, copy.old, copy.new, copy.len, shape,
        )?);
        plan.refs += record.refs.len() as u64;
        plan.data.push(*copy);
        Ok(CopyState::Moved)
    }

    /// Returns the first tree blocks in the block group.
    fn blocks_in_group(&mut self, batch: &RelocationBatch) -> Result<Vec<Logical>> {
        let mut found = Vec::new();
        if batch.max_blocks == 0 {
            return Ok(found);
        }
        let view = self.view(RootId::EXTENT_TREE)?;
        let mut cursor = view.cursor();
        let mut more = cursor.seek(&Key::new(batch.group.start, KeyType::UNTYPED, 0))?;
        while more
            && found.len() < batch.max_blocks
            && let Some((key, bytes)) = cursor.current()
            && key.objectid < batch.group.end
        {
            if is_tree_block(key, bytes) {
                found.push(Logical(key.objectid));
            }
            more = cursor.advance()?;
        }
        Ok(found)
    }

    /// Returns the leaves that refer to a data extent.
    fn leaves_of(&mut self, extent: Logical, record: &ExtentRecord) -> Result<BTreeSet<Logical>> {
        let mut leaves = BTreeSet::new();
        for &(reference, count) in &record.refs {
            match reference {
                RefKey::DataRoot { root, ino, offset } => {
                    let root = self.root_for_plan(root)?;
                    let view = View::new(Arc::clone(self.roots.node_store()), root);
                    let first = Key::new(ino.0, KeyType::EXTENT_DATA, first_offset(offset));
                    let found = self.leaves_in(&view, extent, reference, first, count)?;
                    leaves.extend(found);
                }
                RefKey::DataParent(parent) => {
                    leaves.insert(parent);
                }
                RefKey::TreeRoot(_) | RefKey::TreeParent(_) => return Err(contradicting(extent)),
            }
        }
        let mut uses = 0;
        for &leaf in &leaves {
            let block = self.read_for_plan(leaf, None)?;
            let node = block.node();
            if !node.is_leaf() {
                return Err(contradicting(extent));
            }
            uses += extents_of(&node).filter(|of| of.disk == extent).count() as u64;
        }
        // The extent moves as a whole only if all of its users are known.
        if uses == record.ref_count() {
            Ok(leaves)
        } else {
            Err(contradicting(extent))
        }
    }

    /// Returns the leaves of a tree that hold `reference` in its name, from the item `first` on.
    fn leaves_in(
        &mut self,
        view: &View,
        extent: Logical,
        reference: RefKey,
        first: Key,
        count: u64,
    ) -> Result<BTreeSet<Logical>> {
        let tree = view.tree();
        let extent_tree = self.view(RootId::EXTENT_TREE)?;
        let mut held: BTreeMap<Logical, bool> = BTreeMap::new();
        let mut leaves = BTreeSet::new();
        let mut left = count;
        let mut cursor = view.cursor();
        let mut more = cursor.seek(&first)?;
        while more
            && left > 0
            && let Some((key, bytes)) = cursor.current()
            && (key.objectid, key.item_type) == (first.objectid, first.item_type)
        {
            if refers(key, bytes, extent, reference) {
                let leaf = blocks::find(view, &key, 0)?.ok_or_else(|| contradicting(extent))?;
                let at = leaf.node().bytenr();
                let is_held = match held.get(&at) {
                    Some(known) => *known,
                    None => {
                        let record = ExtentRecord::read(&extent_tree, at)?;
                        let record = record.ok_or_else(|| contradicting(at))?;
                        let is_held = leaf.node().owner() == tree && !record.full_backref;
                        held.insert(at, is_held);
                        is_held
                    }
                };
                if is_held {
                    leaves.insert(at);
                    left -= 1;
                }
            }
            more = cursor.advance()?;
        }
        Ok(leaves)
    }

    /// Adds blocks and all of their ancestors to the graph.
    fn climb(
        &mut self,
        batch: &RelocationBatch,
        plan: &mut Plan,
        from: impl IntoIterator<Item = Logical>,
    ) -> Result<()> {
        let extent_tree = self.view(RootId::EXTENT_TREE)?;
        let mut open: Vec<Logical> = from.into_iter().collect();
        while let Some(bytenr) = open.pop() {
            if plan.graph.contains(bytenr) {
                continue;
            }
            let record = ExtentRecord::read(&extent_tree, bytenr)?;
            let record = record.ok_or_else(|| contradicting(bytenr))?;
            let block = self.read_for_plan(bytenr, Some(&record))?;
            let node = block.node();
            let mut parents = Vec::new();
            let mut roots = Vec::new();
            for &(reference, _) in &record.refs {
                match reference {
                    RefKey::TreeRoot(id) => match self.parent_in(id, &block)? {
                        Some(parent) => parents.push(parent),
                        None => roots.push(id),
                    },
                    RefKey::TreeParent(parent) => {
                        let parent_block = self.read_for_plan(parent, None)?;
                        check_parent(&parent_block, &block)?;
                        parents.push(parent);
                    }
                    RefKey::DataRoot { .. } | RefKey::DataParent(_) => {
                        return Err(contradicting(bytenr));
                    }
                }
            }
            open.extend(&parents);
            plan.graph.insert(
                bytenr,
                GraphBlock {
                    level: node.level(),
                    owner: node.owner(),
                    generation: node.generation(),
                    full_backref: record.full_backref,
                    len: node.len(),
                    parents,
                    roots,
                    is_in_group: batch.group.contains(&bytenr.0),
                    is_patched: false,
                    moves: false,
                    is_shared: false,
                },
            );
        }
        Ok(())
    }

    /// Returns the parent of a block in tree `id`, or None if the block is the root.
    fn parent_in(&mut self, id: RootId, block: &Block) -> Result<Option<Logical>> {
        let node = block.node();
        let root = self.root_for_plan(id)?;
        if root.bytenr == node.bytenr() {
            return Ok(None);
        }
        let first_key = node.key(0).ok_or_else(|| contradicting(node.bytenr()))?;
        let view = View::new(Arc::clone(self.roots.node_store()), root);
        let parent = blocks::find(&view, &first_key, node.level().saturating_add(1))?;
        let parent = parent.ok_or_else(|| contradicting(node.bytenr()))?;
        check_parent(&parent, block)?;
        Ok(Some(parent.node().bytenr()))
    }

    /// Reads a block that the extent tree names.
    fn read_for_plan(&self, bytenr: Logical, record: Option<&ExtentRecord>) -> Result<Block> {
        let mut expect = Expect::at(bytenr);
        if let Some(record) = record {
            let ExtentShape::Block { level } = record.shape else {
                return Err(contradicting(bytenr));
            };
            expect.level = Some(level);
            expect.generation = Some(record.generation);
        }
        Ok(self.roots.node_store().read(RootId::EXTENT_TREE, &expect)?)
    }
}

/// Checks that one block points to another.
fn check_parent(parent: &Block, child: &Block) -> Result<()> {
    let (node, child) = (parent.node(), child.node());
    let is_parent = node.level() == child.level().saturating_add(1)
        && node
            .ptrs()
            .iter()
            .any(|ptr| ptr.blockptr.get() == child.bytenr().0);
    if is_parent {
        Ok(())
    } else {
        Err(contradicting(child.bytenr()))
    }
}

/// Returns whether an item of a file refers to the extent by `reference`.
fn refers(key: Key, bytes: &[u8], extent: Logical, reference: RefKey) -> bool {
    let Some(FileExtent::Regular { body, .. }) = FileExtent::decode(bytes) else {
        return false;
    };
    let RefKey::DataRoot { offset, .. } = reference else {
        return false;
    };
    body.disk() == Some(extent) && key.offset.wrapping_sub(body.offset.get()) == offset
}

/// Returns the lowest file offset of an item with a reference. A negative offset has wrapped around.
fn first_offset(offset: u64) -> u64 {
    if offset.cast_signed() >= 0 { offset } else { 0 }
}

/// Returns whether an item of the extent tree describes a tree block.
fn is_tree_block(key: Key, bytes: &[u8]) -> bool {
    use ubtrfs_format::item::{ExtentFlags, decode_extent};
    match key.item_type {
        KeyType::METADATA_ITEM => true,
        KeyType::EXTENT_ITEM => decode_extent(key.item_type, bytes)
            .is_some_and(|extent| extent.head.flags().contains(ExtentFlags::TREE_BLOCK)),
        _ => false,
    }
}

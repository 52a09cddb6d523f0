//! Relocation: moves extents out of a block group, as a phase of the commit.
//!
//! Every leaf that refers to a moved extent is copied, and so are all blocks above it up to the roots. Each block is
//! copied once, even if a thousand snapshots share it. So nothing becomes unshared, neither data nor tree blocks.
//!
//! References follow from the copies alone. A copy refers to new addresses where the old block referred to old ones. The
//! holder of these references is the tree, or the block itself if it has FULL_BACKREF. The difference of the two blocks
//! is the change of the references. An extent is freed when its last holder was copied.
//!
//! Invariants
//! - RELOCATE-1: nothing is changed before the whole batch is planned and its space is reserved. A plan that fails leaves
//!   the commit as it would have been without the batch.
//! - RELOCATE-2: a batch copies a block once, after all of its children that move.
//! - RELOCATE-3: a copy that several trees reach, or with FULL_BACKREF, has the flag RELOC. Its generation is above the
//!   last snapshot, so the test for shared blocks would miss it otherwise. With RELOC it must have FULL_BACKREF.
//! - RELOCATE-4: a block of this commit outside of the group is changed in place, and the blocks above it stay. Nothing
//!   durable leads to it.
//! - RELOCATE-5: no tree of the plan is partly dropped: such a tree has pointers to freed blocks.
//!
//! Not here: the order of batches, and the copies of data, which precede the commit (`relocation`).

mod copies;
mod graph;
mod leaves;
mod plan;

use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::RootItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::CommittedRoot;

use super::{Commit, CommitTree};
use crate::error::{CorruptItem, Error, Result};
use crate::roots::{find_root_item, recorded_root};
use crate::transaction::relocation::{BatchOutcome, CopyState, RelocationBatch};

impl Commit<'_> {
    /// Moves the extents of the batch of this commit, if there is one.
    pub(super) fn relocate(&mut self) -> Result<()> {
        let Some(batch) = self.relocation else {
            return Ok(());
        };
        let outcome = self.relocate_batch(batch)?;
        *batch.outcome.lock() = outcome;
        Ok(())
    }

    /// Runs the phase. A plan that fails, or without space, is an outcome, and the commit continues.
    ///
    /// Errors: the commit fails.
    fn relocate_batch(&mut self, batch: &RelocationBatch) -> Result<BatchOutcome> {
        let mut outcome = BatchOutcome::of_copies(batch.copies.len());
        if self.has_partly_dropped_tree()? {
            outcome.is_postponed = true;
            return Ok(outcome);
        }
        // The plan reads the references of the state that this commit creates.
        self.run_refs()?;
        let plan = match self.plan_relocation(batch, &mut outcome.copies) {
            Ok(plan) => plan,
            Err(error) => {
                outcome.copies.fill(CopyState::Waiting);
                outcome.error = Some(error);
                return Ok(outcome);
            }
        };
        if plan.is_empty() {
            return Ok(outcome);
        }
        // RELOCATE-1
        let reserved = self
            .manager
            .extend_commit_reservation(self.counts, plan.counts());
        if !reserved {
            outcome.copies.fill(CopyState::Waiting);
            outcome.error = Some(Error::NoSpace);
            return Ok(outcome);
        }
        outcome.moved_blocks = plan.graph.moved_of_group();
        outcome.copied_blocks = self.move_extents(plan)?;
        Ok(outcome)
    }

    /// Returns whether the cleaner has dropped a part of a tree, so that the batch of this commit must wait
    /// (RELOCATE-5).
    pub(super) fn has_partly_dropped_tree(&mut self) -> Result<bool> {
        for id in self.deleted_subvolumes()? {
            let (_, item) = self.recorded_item(id)?;
            let progress = item.drop_progress.get();
            if progress != Key::MIN {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Refuses a volume on which the kernel has not finished a balance.
    fn refuse_relocation_trees(&mut self) -> Result<()> {
        let view = self.view(RootId::ROOT_TREE)?;
        let mut cursor = view.cursor();
        let first = Key::new(RootId::TREE_RELOC.0, KeyType::ROOT_ITEM, 0);
        let found = cursor.seek(&first)?;
        let is_there = cursor.current().is_some_and(|(key, _)| {
            found && (key.objectid, key.item_type) == (first.objectid, first.item_type)
        });
        if is_there {
            let why =
                "a balance of the kernel was interrupted, and must be resumed or cancelled there";
            return Err(Error::Unwritable(why.to_owned()));
        }
        Ok(())
    }

    /// Returns the root of a tree as changed by this commit so far.
    fn root_for_plan(&mut self, id: RootId) -> Result<CommittedRoot> {
        match id {
            RootId::ROOT_TREE | RootId::CHUNK_TREE => Ok(self.tree(id)?.root),
            _ => Ok(self.recorded_item(id)?.0),
        }
    }

    /// Returns the root and the root item of a tree as of the freeze. The item in memory may have later changes.
    fn recorded_item(&mut self, id: RootId) -> Result<(CommittedRoot, RootItem)> {
        if let Some(tree) = self.trees.get(&id) {
            return Ok((tree.root, tree.item));
        }
        // Also finds the subvolumes that this commit creates.
        let view = self.view(RootId::ROOT_TREE)?;
        let (_, item) = find_root_item(&view, id)?.ok_or(Error::NoSuchTree(id))?;
        Ok((recorded_root(id, &item), item))
    }

    /// Sets the root of a tree whose root block was copied.
    fn move_root(&mut self, id: RootId, root: CommittedRoot) -> Result<()> {
        if !self.trees.contains_key(&id) {
            let (_, item) = self.recorded_item(id)?;
            let tree = self.roots.tree_for_commit(id)?;
            let tree = CommitTree {
                item,
                ..CommitTree::unchanged(tree)
            };
            self.trees.insert(id, tree);
        }
        let tree = self.trees.get_mut(&id).expect("inserted above");
        tree.root = root;
        tree.item_is_stale = true;
        if id == RootId::EXTENT_TREE {
            self.blocks.extent_root = root;
        }
        Ok(())
    }
}

/// Creates the error for an extent whose references contradict the trees.
fn contradicting(bytenr: Logical) -> Error {
    Error::Corrupt {
        tree: RootId::EXTENT_TREE,
        key: Key::new(bytenr.0, KeyType::EXTENT_ITEM, 0),
        what: CorruptItem::WrongReference,
    }
}

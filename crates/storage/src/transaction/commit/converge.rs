//! The trees that describe each other: repeated rounds until nothing changes.
//!
//! Each round applies the pending reference changes to the extent tree, and the resulting changes to the other trees.
//! The blocks changed in a round cause further reference changes. A block is copied once in a commit and then rewritten
//! in place, so the rounds become smaller and end.

use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::{Key, KeyType};
use zerocopy::IntoBytes;

use super::Commit;
use super::subvolumes::place_root;
use crate::csum_tree::{self, CsumShape};
use crate::error::{Error, Result};
use crate::transaction::extent_items;
use crate::transaction::extent_items::ExtentContext;

/// More rounds than any volume needs. Later rounds change only a few leaves.
const MAX_ROUNDS: usize = 1000;

impl Commit<'_> {
    pub(super) fn converge(&mut self) -> Result<()> {
        // The root tree must have the superblock's generation, even if the commit changes nothing else.
        self.tree(RootId::EXTENT_TREE)?.item_is_stale = true;
        for round in 0..MAX_ROUNDS {
            let mut changed = self.run_refs()?;
            changed |= self.remove_csums()?;
            // New groups first: the next line needs them for changes of extents within them.
            changed |= self.take_new_chunks()?;
            changed |= self.update_groups()?;
            changed |= self.update_root_items()?;
            // Drop unused places only after everything else is stable. The drops then cause another round.
            if !changed && self.blocks.refs.is_empty() && !self.blocks.drop_spare() {
                tracing::debug!(round, "converged");
                return Ok(());
            }
        }
        Err(Error::NoConvergence(MAX_ROUNDS))
    }

    /// Applies the pending references to the extent tree. Returns true if there were any.
    pub(super) fn run_refs(&mut self) -> Result<bool> {
        let sb = self.roots.superblock();
        let context = ExtentContext {
            transid: self.transid,
            skinny_metadata: sb.incompat().contains(Incompat::SKINNY_METADATA),
            nodesize: sb.nodesize.get() as usize,
        };
        let mut ran = false;
        while !self.blocks.refs.is_empty() {
            ran = true;
            let heads = self.blocks.refs.take();
            let view = self.view(RootId::EXTENT_TREE)?;
            let batch = extent_items::run(heads, &view, &context)?;
            for used in &batch.used {
                self.note_used(used)?;
            }
            for freed in &batch.freed {
                self.note_freed(freed)?;
            }
            self.apply_owned(RootId::EXTENT_TREE, &batch.changes)?;
        }
        Ok(ran)
    }

    pub(super) fn csum_shape(&self) -> CsumShape {
        CsumShape::of(&self.roots.superblock())
    }

    /// Applies the sums of the transaction, joined with their neighbours.
    pub(super) fn join_csums(&mut self) -> Result<()> {
        let id = RootId::CSUM_TREE;
        let Some(frozen) = self.trees.get(&id).and_then(|tree| tree.frozen.clone()) else {
            return Ok(());
        };
        let view = self.view(id)?;
        let changes = csum_tree::join(&frozen, &view, self.csum_shape())?;
        self.apply_owned(id, &changes)
    }

    /// Removes the sums of freed data. Returns true if there was any.
    fn remove_csums(&mut self) -> Result<bool> {
        if self.freed_data.is_empty() {
            return Ok(false);
        }
        let mut ranges: Vec<(u64, u64)> = std::mem::take(&mut self.freed_data)
            .into_iter()
            .map(|(start, len)| (start.0, len))
            .collect();
        ranges.sort_unstable();
        let view = self.view(RootId::CSUM_TREE)?;
        let changes = csum_tree::remove(&view, &ranges, self.csum_shape())?;
        self.apply_owned(RootId::CSUM_TREE, &changes)?;
        Ok(true)
    }

    /// Updates the root items in the root tree. Returns true if any was outdated.
    fn update_root_items(&mut self) -> Result<bool> {
        let nodesize = u64::from(self.roots.superblock().nodesize.get());
        let mut changes = Vec::new();
        let ids: Vec<RootId> = self.trees.keys().copied().collect();
        for id in ids {
            if id == RootId::ROOT_TREE || id == RootId::CHUNK_TREE {
                continue;
            }
            let tree = self.tree(id)?;
            if !std::mem::take(&mut tree.item_is_stale) {
                continue;
            }
            // TREE-2: only commits write root items.
            let mut item = tree.item;
            place_root(&mut item, &tree.root);
            item.bytes_used = tree.bytes_used(nodesize).into();
            let key = Key::new(id.0, KeyType::ROOT_ITEM, tree.tree.key_offset);
            changes.push((key, Some(item.as_bytes().to_vec())));
        }
        self.apply_owned(RootId::ROOT_TREE, &changes)?;
        Ok(!changes.is_empty())
    }
}

//! Removal of empty block groups and their chunks, which makes room for new chunks of any type.
//!
//! Extents that a commit frees are pinned until the commit is durable. Groups that become empty are therefore removed
//! by a later commit, at the latest when the volume is closed (`Volume::close`).

use ubtrfs_device::chunk_layout::ChunkItem;
use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::Key;

use super::Commit;
use crate::error::Result;
use crate::space::{BlockGroup, ChunkChange, RemovedGroup, SpaceError, free_space_tree};
use crate::transaction::relocation::RelocationBatch;

impl Commit<'_> {
    pub(super) fn remove_empty_groups(&mut self) -> Result<()> {
        let space = &self.manager.space;
        let mut unused = space.unused_groups(self.transid);
        // A group that was emptied on request, of any type.
        let emptied = self.relocation.and_then(RelocationBatch::emptied);
        if let Some(group) = emptied.and_then(|start| space.find(start))
            && group.used() == 0
        {
            self.replace_if_last(&group)?;
            if !unused.iter().any(|other| other.start() == group.start()) {
                unused.push(group);
            }
        }
        for group in unused {
            let Some(caches) = self.v1_cache_of(&group)? else {
                continue;
            };
            match space.remove_group(group.start()) {
                Ok(removed) => {
                    self.forget_chunk(&group, removed)?;
                    self.drop_caches(caches)?;
                }
                // Pinned, reserved, or just allocated from.
                Err(SpaceError::InUse { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Creates another group if the emptied one is the last of its kind, so that it can be removed and later groups keep
    /// its profile. Without space for that, it stays.
    fn replace_if_last(&self, emptied: &BlockGroup) -> Result<()> {
        if !self.relocation.is_some_and(|batch| batch.replaces_last) {
            return Ok(());
        }
        let replaced = self.manager.space.replace_last(emptied, self.transid);
        match replaced {
            Ok(()) | Err(SpaceError::NoSpace { .. } | SpaceError::SystemChunkArray) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn forget_chunk(&mut self, group: &BlockGroup, removed: RemovedGroup) -> Result<()> {
        let items = &removed.items;
        let mut changes = self.changed_dev_items(items, ChunkChange::Removed)?;
        changes.push(delete(&items.chunk));
        changes.sort_by_key(|(key, _)| *key);
        self.apply_owned(RootId::CHUNK_TREE, &changes)?;
        let mut extents: Vec<_> = items.dev_extents.iter().map(delete).collect();
        extents.sort_by_key(|(key, _)| *key);
        self.apply_owned(RootId::DEV_TREE, &extents)?;
        self.apply_owned(self.block_group_tree(), &[delete(&items.block_group)])?;
        if self.has_free_space_tree() {
            let view = self.view(RootId::FREE_SPACE_TREE)?;
            let shape = self.free_space_shape(group);
            let changes = free_space_tree::remove_group(&view, &shape)?;
            self.apply_owned(RootId::FREE_SPACE_TREE, &changes)?;
        }
        if group.flags().contains(BlockGroupFlags::SYSTEM) {
            self.removed_system_chunks.push(group.start());
        }
        self.removed_groups.push(removed);
        Ok(())
    }
}

fn delete(item: &ChunkItem) -> (Key, Option<Vec<u8>>) {
    (item.key, None)
}

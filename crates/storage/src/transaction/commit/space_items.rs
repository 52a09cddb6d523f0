//! Items of block groups, free space, chunks and devices, updated for allocated and freed extents.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubtrfs_device::chunk_layout::{ChunkItem, ChunkItems};
use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::features::CompatRo;
use ubtrfs_format::ids::{Logical, RootId, objectid};
use ubtrfs_format::item::BlockGroupItem;
use ubtrfs_format::key::{DiskKey, Key, KeyType};
use zerocopy::IntoBytes;

use super::Commit;
use crate::error::{CorruptItem, Error, Result};
use crate::space::{BlockGroup, ChunkChange, free_space_tree};
use crate::transaction::extent_items::{Freed, FreedKind, Used};

/// The changes in one block group since its items were last written.
#[derive(Debug, Default)]
pub(super) struct GroupChanges {
    /// Start to (length, whether it became used). Extents both allocated and freed in this commit are removed.
    ranges: BTreeMap<u64, (u64, bool)>,
    used_changed: bool,
}

impl GroupChanges {
    fn note(&mut self, start: u64, len: u64, used: bool) {
        self.used_changed = true;
        match self.ranges.get(&start) {
            Some(&(other, was)) if (other, was) == (len, !used) => {
                self.ranges.remove(&start);
            }
            _ => {
                self.ranges.insert(start, (len, used));
            }
        }
    }

    /// Returns the ranges that became used (or free), with neighbours merged.
    fn joined(&self, wanted: bool) -> Vec<(u64, u64)> {
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (&start, &(len, used)) in &self.ranges {
            if used != wanted {
                continue;
            }
            match joined.last_mut() {
                Some((first, before)) if *first + *before == start => *before += len,
                _ => joined.push((start, len)),
            }
        }
        joined
    }
}

impl Commit<'_> {
    pub(super) fn note_used(&mut self, used: &Used) -> Result<()> {
        // COMMIT-3
        let group = self.group_of(used.start, used.len)?;
        group.change_used(used.len as i64);
        if used.is_data {
            self.manager.space.change_data_used(used.len as i64);
        }
        let changes = self.groups.entry(group.start()).or_default();
        changes.note(used.start.0, used.len, true);
        Ok(())
    }

    pub(super) fn note_freed(&mut self, freed: &Freed) -> Result<()> {
        let group = self.group_of(freed.start, freed.len)?;
        // Pin first (COMMIT-1). Otherwise an operation could reserve the space as soon as it counts as unused.
        self.manager.space.pin(freed.start, freed.len);
        if freed.had_item {
            group.change_used(-(freed.len as i64));
            if let FreedKind::Data = freed.kind {
                self.manager.space.change_data_used(-(freed.len as i64));
            }
            let changes = self.groups.entry(group.start()).or_default();
            changes.note(freed.start.0, freed.len, false);
        }
        if let FreedKind::Data = freed.kind {
            self.freed_data.push((freed.start, freed.len));
        }
        Ok(())
    }

    pub(super) fn free_space_shape(&self, group: &BlockGroup) -> free_space_tree::Shape {
        free_space_tree::Shape {
            start: group.start(),
            len: group.len_bytes(),
            sectorsize: self.roots.superblock().sectorsize.get(),
        }
    }

    /// Returns the block group that contains a whole extent.
    fn group_of(&self, start: Logical, len: u64) -> Result<Arc<BlockGroup>> {
        let end = start.checked_add(len);
        let group = self.manager.space.find(start);
        group
            .filter(|group| end.is_some_and(|end| end <= group.end()))
            .ok_or(Error::Corrupt {
                tree: RootId::EXTENT_TREE,
                key: Key::new(start.0, KeyType::EXTENT_ITEM, len),
                what: CorruptItem::ExtentUnmapped { logical: start },
            })
    }

    /// Updates the free-space tree and the block group items. Returns true if there was any change.
    pub(super) fn update_groups(&mut self) -> Result<bool> {
        let groups = std::mem::take(&mut self.groups);
        if groups.is_empty() {
            return Ok(false);
        }
        if self.has_free_space_tree() {
            let view = self.view(RootId::FREE_SPACE_TREE)?;
            let mut changes = Vec::new();
            for (&start, group) in &groups {
                let Some(place) = self.manager.space.find(start) else {
                    continue;
                };
                let used = group.joined(true);
                let freed = group.joined(false);
                changes.extend(free_space_tree::update(
                    &view,
                    &self.free_space_shape(&place),
                    &used,
                    &freed,
                )?);
            }
            drop(view);
            self.apply_owned(RootId::FREE_SPACE_TREE, &changes)?;
        }
        let mut items = Vec::new();
        for (&start, group) in &groups {
            if !group.used_changed {
                continue;
            }
            if let Some(group) = self.manager.space.find(start) {
                let key = Key::new(start.0, KeyType::BLOCK_GROUP_ITEM, group.len_bytes());
                let item = BlockGroupItem {
                    used: group.used().into(),
                    chunk_objectid: objectid::FIRST_CHUNK_TREE.into(),
                    flags: group.flags().bits().into(),
                };
                items.push((key, Some(item.as_bytes().to_vec())));
            }
        }
        self.apply_owned(self.block_group_tree(), &items)?;
        Ok(true)
    }

    /// Returns the tree of the block group items.
    pub(super) fn block_group_tree(&self) -> RootId {
        let compat = self.roots.superblock().compat_ro();
        if compat.contains(CompatRo::BLOCK_GROUP_TREE) {
            RootId::BLOCK_GROUP_TREE
        } else {
            RootId::EXTENT_TREE
        }
    }

    /// Inserts the items of chunks created up to this transaction. Returns true if there were any.
    pub(super) fn take_new_chunks(&mut self) -> Result<bool> {
        let chunks = self.manager.space.take_new_chunks(self.transid);
        for chunk in &chunks {
            self.enter_chunk(chunk)?;
        }
        Ok(!chunks.is_empty())
    }

    fn enter_chunk(&mut self, chunk: &ChunkItems) -> Result<()> {
        let mut items = self.changed_dev_items(chunk, ChunkChange::Added)?;
        items.push(insert(&chunk.chunk));
        items.sort_by_key(|(key, _)| *key);
        self.apply_owned(RootId::CHUNK_TREE, &items)?;
        let mut extents: Vec<_> = chunk.dev_extents.iter().map(insert).collect();
        extents.sort_by_key(|(key, _)| *key);
        self.apply_owned(RootId::DEV_TREE, &extents)?;
        if chunk.flags.contains(BlockGroupFlags::SYSTEM) {
            let mut entry = DiskKey::from(chunk.chunk.key).as_bytes().to_vec();
            entry.extend_from_slice(&chunk.chunk.bytes);
            self.new_system_chunks.push(entry);
        }
        if self.has_free_space_tree() {
            let group = self.group_of(chunk.logical, chunk.len)?;
            let changes = free_space_tree::new_group(&self.free_space_shape(&group));
            self.apply_owned(RootId::FREE_SPACE_TREE, &changes)?;
        }
        // `update_groups` writes its block group item.
        let changes = self.groups.entry(chunk.logical).or_default();
        changes.used_changed = true;
        Ok(())
    }
}

impl Commit<'_> {
    /// Adds or subtracts a chunk in the items of its devices. Returns the changes of the chunk tree.
    pub(super) fn changed_dev_items(
        &self,
        chunk: &ChunkItems,
        change: ChunkChange,
    ) -> Result<Vec<(Key, Option<Vec<u8>>)>> {
        let items = self.manager.space.change_device_items(chunk, change)?;
        Ok(items
            .into_iter()
            .map(|(key, bytes)| (key, Some(bytes)))
            .collect())
    }
}

fn insert(item: &ChunkItem) -> (Key, Option<Vec<u8>>) {
    (item.key, Some(item.bytes.clone()))
}

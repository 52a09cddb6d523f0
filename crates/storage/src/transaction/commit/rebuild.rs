//! Rebuilding of the free-space tree, and removal of the v1 free-space caches.
//!
//! A tree that is invalid or untrusted is rebuilt. A volume without a tree gets one on request.
//!
//! Without a request, a volume without the feature keeps its format, as in the kernel. Its free space is read from the
//! extent tree. The v1 caches are neither read nor written. They become invalid when a commit advances the generation.
//!
//! The tree is built from the extent tree as this commit found it. The changes of the commit are applied afterwards. No
//! operation has reserved space for the rebuild. A volume without enough space continues without a valid tree, as the
//! kernel allows, until a commit finds space.

use ubtrfs_format::features::CompatRo;
use ubtrfs_format::ids::{InodeNr, Logical, RootId, objectid};
use ubtrfs_format::item::{FileExtent, FreeSpaceHeader};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::leaf_data_size;
use ubtrfs_tree::{CommittedRoot, View};
use zerocopy::FromBytes;

use super::Commit;
use crate::error::{RefKey, Result};
use crate::space::{BlockGroup, free_space_tree};
use crate::transaction::reservation::EditCounts;

type Changes = Vec<(Key, Option<Vec<u8>>)>;

const WHOLE: CompatRo = CompatRo::FREE_SPACE_TREE.union(CompatRo::FREE_SPACE_TREE_VALID);

/// The v1 caches, which are files in the root tree.
#[derive(Default)]
pub(super) struct Caches {
    /// The deletions of their items.
    changes: Changes,
    /// Their extents, with lengths and references.
    extents: Vec<(Logical, u64, RefKey)>,
}

impl Commit<'_> {
    /// Returns whether this commit maintains a free-space tree.
    pub(super) fn has_free_space_tree(&self) -> bool {
        let has_one = self.roots.superblock().compat_ro().contains(WHOLE);
        self.rebuilt || has_one && !self.edits.invalidates_free_space_tree
    }

    /// Returns whether the volume has a free-space tree, valid or not.
    fn uses_free_space_tree(&self) -> bool {
        let compat = self.roots.superblock().compat_ro();
        compat.contains(CompatRo::FREE_SPACE_TREE)
    }

    pub(super) fn rebuild_free_space_tree(&mut self) -> Result<()> {
        let is_invalid = self.uses_free_space_tree() && !self.has_free_space_tree();
        if !is_invalid && !self.manager.cleaner.clears_free_space_tree() {
            return Ok(());
        }
        let caches = self.v1_caches(None)?;
        let counts = self.load_of_rebuilding(&caches)?;
        if !self.manager.extend_commit_reservation(self.counts, counts) {
            tracing::debug!(?counts, "no room for the free-space tree");
            self.go_on_without();
            return Ok(());
        }
        tracing::info!("building the free-space tree");
        self.begin_tree()?;
        self.fill_tree()?;
        self.drop_caches(caches)?;
        self.edits.drops_v1_cache = true;
        self.edits.use_compat_ro(WHOLE);
        self.rebuilt = true;
        self.manager.cleaner.made_free_space_tree();
        Ok(())
    }

    /// Continues without a valid tree, because an untrusted tree cannot be maintained. But the kernel refuses a volume
    /// with a block group tree if its free-space tree is invalid. There the tree is left as it is, and the commit fails
    /// if it detects an error in it.
    fn go_on_without(&mut self) {
        let compat = self.roots.superblock().compat_ro();
        self.edits.invalidates_free_space_tree = !compat.contains(CompatRo::BLOCK_GROUP_TREE);
        if self.counts.items > 0 {
            // The space freed by this commit may suffice, so try again in the next one.
            self.manager.cleaner.wake();
        }
    }

    fn load_of_rebuilding(&mut self, caches: &Caches) -> Result<EditCounts> {
        let nodesize = self.roots.superblock().nodesize.get() as usize;
        let groups = self.manager.space.groups();
        let groups = groups.iter().filter(|group| group.is_of(self.transid));
        let bytes: u64 = groups
            .map(|group| self.free_space_shape(group).most_bytes(group.used()))
            .sum();
        // Leaves are half full at least; a sixteenth more for nodes.
        let leaves = 2 * bytes / leaf_data_size(nodesize) as u64 + 1;
        let blocks = leaves + leaves / 16 + 2;
        let old = self.roots.find_tree(RootId::FREE_SPACE_TREE)?;
        let old = old.map_or(0, |tree| tree.item().bytes_used.get()) / nodesize as u64;
        let gone = old + (caches.changes.len() + caches.extents.len()) as u64;
        Ok(EditCounts {
            items: blocks + gone,
            bytes: blocks * nodesize as u64 / 2,
            ..EditCounts::default()
        })
    }

    /// Creates an empty tree, in place of the old one if there is one.
    fn begin_tree(&mut self) -> Result<()> {
        let id = RootId::FREE_SPACE_TREE;
        if self.roots.find_tree(id)?.is_none() {
            let root = self.build_tree(id, &Vec::new())?;
            return self.adopt_new_tree(root);
        }
        // The old contents are invalid or untrusted.
        let old = self.tree(id)?.root;
        self.drop_tree(&old)?;
        let root = self.build_tree(id, &Vec::new())?;
        let tree = self.tree(id)?;
        tree.root = root;
        tree.item.bytes_used = 0.into();
        tree.blocks = 1;
        tree.item_is_stale = true;
        Ok(())
    }

    fn fill_tree(&mut self) -> Result<()> {
        let extents = self.view(RootId::EXTENT_TREE)?;
        let nodesize = u64::from(self.roots.superblock().nodesize.get());
        let groups = self.manager.space.groups();
        for group in groups.iter() {
            if !group.is_of(self.transid) {
                // A new group: the commit that inserts its items also records its free space.
                continue;
            }
            let mut free = Vec::new();
            let mut each = |start, len| free.push((start, len));
            let place = (group.start(), group.len_bytes());
            free_by_extents(&extents, nodesize, place, &mut each)?;
            let shape = self.free_space_shape(group);
            let items = free_space_tree::build(&shape, &free);
            let items: Changes = items.into_iter().collect();
            self.apply_owned(RootId::FREE_SPACE_TREE, &items)?;
        }
        Ok(())
    }

    /// Drops every block of a tree that is not shared with other trees.
    fn drop_tree(&mut self, root: &CommittedRoot) -> Result<()> {
        let view = View::new(self.roots.node_store().clone(), *root);
        let top = view.read_root()?;
        let mut pending = vec![top];
        while let Some(block) = pending.pop() {
            let node = block.node();
            let key = RefKey::TreeRoot(root.tree);
            self.blocks.drop_block_ref(node.bytenr(), key, node.level());
            for slot in 0..node.ptrs().len() {
                if let Some(expect) = super::cleaner::expect_child(root.tree, &block, slot) {
                    pending.push(self.roots.node_store().read_held(root.tree, &expect)?);
                }
            }
        }
        Ok(())
    }

    /// Returns the v1 cache of a block group that is to be removed. Returns None if there is no space to delete it.
    pub(super) fn v1_cache_of(&mut self, group: &BlockGroup) -> Result<Option<Caches>> {
        let has_caches = self.roots.superblock().cache_generation.get() != 0;
        if !has_caches || self.uses_free_space_tree() {
            return Ok(Some(Caches::default()));
        }
        let caches = self.v1_caches(Some(group.start()))?;
        let counts = EditCounts {
            items: (caches.changes.len() + caches.extents.len()) as u64,
            ..EditCounts::default()
        };
        let has_room =
            counts.items == 0 || self.manager.extend_commit_reservation(self.counts, counts);
        Ok(has_room.then_some(caches))
    }

    pub(super) fn drop_caches(&mut self, caches: Caches) -> Result<()> {
        for (start, len, reference) in caches.extents {
            self.blocks.refs.change(start, len, reference, -1, None);
        }
        self.apply_owned(RootId::ROOT_TREE, &caches.changes)
    }

    /// Returns the caches of all block groups, or only of the group that begins at `of`.
    fn v1_caches(&mut self, of: Option<Logical>) -> Result<Caches> {
        let view = self.view(RootId::ROOT_TREE)?;
        let mut caches = Caches::default();
        let changes = &mut caches.changes;
        let mut files = Vec::new();
        let mut cursor = view.cursor();
        let first = of.map_or(0, |start| start.0);
        let mut more = cursor.seek(&Key::new(objectid::FREE_SPACE, KeyType::UNTYPED, first))?;
        while more && let Some((key, bytes)) = cursor.current() {
            if (key.objectid, key.item_type) != (objectid::FREE_SPACE, KeyType::UNTYPED)
                || of.is_some_and(|start| key.offset != start.0)
            {
                break;
            }
            if let Ok((header, _)) = FreeSpaceHeader::ref_from_prefix(bytes) {
                files.extend(file_at(header.location.get()));
            }
            changes.push((key, None));
            more = cursor.advance()?;
        }
        for ino in files {
            let mut more = cursor.seek(&Key::new(ino, KeyType::INODE_ITEM, 0))?;
            while more && let Some((key, bytes)) = cursor.current() {
                // Inodes of caches share their number range with subvolumes, whose items have higher types.
                if key.objectid != ino || key.item_type > KeyType::EXTENT_DATA {
                    break;
                }
                if key.item_type == KeyType::EXTENT_DATA
                    && let Some(FileExtent::Regular { body, .. }) = FileExtent::decode(bytes)
                    && let Some(disk) = body.disk()
                {
                    let reference = RefKey::DataRoot {
                        root: RootId::ROOT_TREE,
                        ino: InodeNr(ino),
                        offset: key.offset.wrapping_sub(body.offset.get()),
                    };
                    let len = body.disk_num_bytes.get();
                    caches.extents.push((disk, len, reference));
                }
                changes.push((key, None));
                more = cursor.advance()?;
            }
        }
        changes.sort_by_key(|(key, _)| *key);
        changes.dedup_by_key(|(key, _)| *key);
        Ok(caches)
    }
}

/// Returns the inode of a v1 cache from its header. Numbers outside of this range do not belong to caches.
fn file_at(location: Key) -> Option<u64> {
    let numbers = InodeNr::FIRST_FREE.0..=RootId::LAST_FREE;
    let is_file = location.item_type == KeyType::INODE_ITEM;
    (is_file && numbers.contains(&location.objectid)).then_some(location.objectid)
}

/// Lists the free ranges (start, length) of a block group, which are the gaps between its extent items.
pub(crate) fn free_by_extents(
    extents: &View,
    nodesize: u64,
    (start, len): (Logical, u64),
    each: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let end = start.0.saturating_add(len);
    let mut at = start.0;
    let mut cursor = extents.cursor().sequential();
    let mut more = cursor.seek(&Key::new(start.0, KeyType(0), 0))?;
    while more && let Some((key, _)) = cursor.current() {
        if key.objectid >= end {
            break;
        }
        let extent_len = match key.item_type {
            KeyType::EXTENT_ITEM => Some(key.offset),
            KeyType::METADATA_ITEM => Some(nodesize),
            _ => None,
        };
        if let Some(extent_len) = extent_len {
            if key.objectid > at {
                each(at, key.objectid - at);
            }
            at = at.max(key.objectid.saturating_add(extent_len).min(end));
        }
        more = cursor.advance()?;
    }
    if at < end {
        each(at, end - at);
    }
    Ok(())
}

//! The trees with edits of operations, and the subvolumes that this commit creates.

use std::sync::Arc;

use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::item::{FileTime, RootItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::{Header, header_flags};
use ubtrfs_tree::{BlockSink, BulkTree, CommittedRoot, TreeBlock};
use zerocopy::{FromBytes, IntoBytes};

use super::blocks::{BlockIo, Holder};
use super::{Commit, CommitTree};
use crate::error::Result;
use crate::roots::is_inode_item;
use crate::transaction::pending_subvolumes::{Origin, PendingSubvolume, Puts};

impl Commit<'_> {
    /// Applies the edits of operations, except for checksums, which are merged later.
    pub(super) fn apply_subvolumes(&mut self) -> Result<()> {
        let edited: Vec<RootId> = self.trees.keys().copied().collect();
        for id in edited {
            let Some(frozen) = self.tree(id)?.frozen.clone() else {
                continue;
            };
            if id == RootId::CSUM_TREE {
                continue;
            }
            self.apply(id, &frozen.changes())?;
            let transid = self.transid;
            let tree = self.tree(id)?;
            if id.is_subvolume() {
                tree.item.ctransid = transid.0.into();
                tree.item.ctime = FileTime::now().into();
            }
        }
        Ok(())
    }

    pub(super) fn create_pending_subvolumes(&mut self) -> Result<()> {
        for pending in std::mem::take(&mut self.pending_subvolumes) {
            self.create_pending(pending)?;
        }
        let uuids = std::mem::take(&mut self.uuids);
        self.put_uuids(uuids)
    }

    fn create_pending(&mut self, pending: PendingSubvolume) -> Result<()> {
        let PendingSubvolume {
            id,
            origin,
            mut item,
            dir_tree,
            dir_puts,
            mut root_puts,
            uuid_puts,
        } = pending;
        let nodesize = u64::from(self.roots.superblock().nodesize.get());
        let (root, key_offset) = match origin {
            Origin::New(items) => {
                item.bytes_used = nodesize.into();
                (self.build_tree(id, &items)?, 0)
            }
            Origin::Snapshot(source) => {
                let original = self.tree(source.id())?;
                item.bytes_used = original.bytes_used(nodesize).into();
                item.ctransid = original.item.ctransid;
                item.ctime = original.item.ctime;
                item.last_snapshot = self.transid.0.into();
                (self.copy_root(source.id(), id)?, self.transid.0)
            }
        };
        place_root(&mut item, &root);
        let key = Key::new(id.0, KeyType::ROOT_ITEM, key_offset);
        root_puts.push((key, item.as_bytes().to_vec()));
        self.put(RootId::ROOT_TREE, root_puts)?;
        let inodes = dir_puts.iter().filter(|(key, _)| is_inode_item(key));
        self.changed_inodes
            .extend(inodes.map(|(key, _)| (Arc::clone(&dir_tree), key.objectid)));
        self.put(dir_tree.id(), dir_puts)?;
        self.put_uuids(uuid_puts)?;
        Ok(())
    }

    fn put_uuids(&mut self, puts: Puts) -> Result<()> {
        if puts.is_empty() {
            return Ok(());
        }
        self.make_tree_if_missing(RootId::UUID_TREE)?;
        self.put(RootId::UUID_TREE, puts)
    }

    fn put(&mut self, id: RootId, puts: Puts) -> Result<()> {
        let mut changes: Vec<(Key, Option<Vec<u8>>)> = puts
            .into_iter()
            .map(|(key, value)| (key, Some(value)))
            .collect();
        changes.sort_by_key(|(key, _)| *key);
        self.apply_owned(id, &changes)
    }

    /// Builds a tree from `items`, in ascending order.
    pub(super) fn build_tree(&mut self, id: RootId, items: &Puts) -> Result<CommittedRoot> {
        let nowhere = CommittedRoot {
            tree: id,
            bytenr: Logical(0),
            level: 0,
            generation: Some(self.transid),
        };
        let mut io = BlockIo::new(&mut self.blocks, nowhere, Transid(0));
        let format = io.format();
        let mut tree = BulkTree::new(&format, id, &mut io);
        for (key, value) in items {
            tree.push(*key, value)?;
        }
        let root = tree.finish()?;
        Ok(CommittedRoot {
            bytenr: root.logical,
            level: root.level,
            ..nowhere
        })
    }

    /// Creates an internal tree that old volumes lack.
    pub(super) fn make_tree_if_missing(&mut self, id: RootId) -> Result<()> {
        if self.trees.contains_key(&id) || self.roots.find_tree(id)?.is_some() {
            return Ok(());
        }
        let root = self.build_tree(id, &Puts::new())?;
        self.adopt_new_tree(root)
    }

    /// Adds a newly built tree to the commit.
    pub(super) fn adopt_new_tree(&mut self, root: CommittedRoot) -> Result<()> {
        let item = RootItem::new_internal(self.roots.superblock().nodesize.get());
        let tree = self.roots.adopt_tree(root, item);
        let tree = CommitTree {
            root,
            item_is_stale: true,
            blocks: 1,
            ..CommitTree::unchanged(tree)
        };
        self.trees.insert(root.tree, tree);
        Ok(())
    }

    /// Copies the root block of `source` for snapshot `id`. All blocks below are shared from now on.
    fn copy_root(&mut self, source: RootId, id: RootId) -> Result<CommittedRoot> {
        let transid = self.transid;
        let tree = self.tree(source)?;
        tree.item.last_snapshot = transid.0.into();
        tree.item_is_stale = true;
        let root = tree.root;
        let original = self.view(source)?.read_root()?;
        let copy_of = CommittedRoot { tree: id, ..root };
        let mut io = BlockIo::new(&mut self.blocks, copy_of, Transid(0));
        let first_key = original.node().key(0).unwrap_or(Key::MIN);
        let place = io.place(root.level, &first_key)?;
        let mut bytes = original.bytes().to_vec();
        let (header, _) = Header::mut_from_prefix(&mut bytes).expect("a block has a header");
        header.bytenr = place.0.into();
        header.owner = id.0.into();
        header.generation = transid.0.into();
        header.flags = (header.flags.get() & !header_flags::RELOC).into();
        io.emit(TreeBlock {
            logical: place,
            owner: id,
            level: root.level,
            first_key,
            bytes,
        })?;
        self.blocks
            .change_children(&original, Holder::Tree(id), 1)?;
        Ok(CommittedRoot {
            tree: id,
            bytenr: place,
            level: root.level,
            generation: Some(transid),
        })
    }
}

/// Sets the address of a tree's root in its root item.
pub(super) fn place_root(item: &mut RootItem, root: &CommittedRoot) {
    let generation = root.generation.unwrap_or_default();
    item.bytenr = root.bytenr.0.into();
    item.level = root.level;
    item.generation = generation.0.into();
    item.generation_v2 = generation.0.into();
}

//! ORPHAN_ITEMs of inodes without a name, and recovery after an interruption.
//!
//! Invariants
//! - ORPHAN-1: an inode whose link count is 0 has an ORPHAN_ITEM, unless it has no items at all.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ubtrfs_device::nonblocking;
use ubtrfs_format::ids::{InodeNr, objectid};
use ubtrfs_format::item::InodeFlags;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::roots::Tree;
use ubtrfs_storage::{EditEstimate, FileId};
use ubtrfs_tree::Edit;

use super::draft::{Draft, Stamps};
use super::inode_item::read_inode;
use super::{Inode, Inodes};
use crate::error::{Error, Result};

pub(crate) fn orphan_key(ino: InodeNr) -> Key {
    Key::new(objectid::ORPHAN, KeyType::ORPHAN_ITEM, ino.0)
}

impl Draft<'_> {
    /// Drafts the ORPHAN_ITEM of an inode or, in the root tree, of a subvolume. It uses `put`, because older
    /// kernels may have left such an item for an inode with names.
    pub(crate) fn put_orphan(&mut self, number: u64) {
        let key = orphan_key(InodeNr(number));
        self.put(key, &[][..], Stamps::NONE);
    }

    pub(crate) fn delete_orphan(&mut self, ino: InodeNr) {
        self.delete(orphan_key(ino));
    }
}

impl Inodes {
    /// Prepares a subvolume for its first change: loads the highest inode number, and deletes the orphans
    /// that an interruption left. Orphans that cannot be deleted are left to the next mount.
    ///
    /// Errors: the thread must not wait, and this is the first change.
    pub(crate) fn finish_orphans_once(&self, tree: &Arc<Tree>) -> Result<()> {
        let known = &tree.orphans_finished;
        if known.load(Ordering::Acquire) {
            return Ok(());
        }
        nonblocking::check()?;
        tree.note_objectids()?;
        if known.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        if let Err(error) = self.finish_orphans(tree) {
            tracing::warn!(root = tree.id().0, %error, "files without a name are left");
        }
        Ok(())
    }

    /// Deletes inodes without names or holds, and stale ORPHAN_ITEMs.
    fn finish_orphans(&self, tree: &Arc<Tree>) -> Result<()> {
        let mut from = Some(orphan_key(InodeNr(0)));
        while let Some(key) = from {
            let mut cursor = tree.view.cursor();
            if !cursor.seek(&key)? {
                break;
            }
            let Some((key, _)) = cursor.current() else {
                break;
            };
            if (key.objectid, key.item_type) != (objectid::ORPHAN, KeyType::ORPHAN_ITEM) {
                break;
            }
            drop(cursor);
            if let Some(id) = FileId::stored(tree.id(), key.offset) {
                self.finish_orphan(tree, id)?;
            }
            from = key.next();
        }
        Ok(())
    }

    fn finish_orphan(&self, tree: &Arc<Tree>, id: FileId) -> Result<()> {
        let inode = self.get(id)?;
        match read_inode(&tree.view, id) {
            Ok(item) if item.nlink.get() == 0 => return self.evict(&inode),
            Ok(_) | Err(Error::NoSuchInode(_)) => {}
            Err(error) => return Err(error),
        }
        self.delete_stale(&inode)
    }

    /// Deletes the ORPHAN_ITEM of an inode that has names or does not exist. On an inode with names it marks
    /// an incomplete Merkle tree. Older kernels also left one for a truncation.
    fn delete_stale(&self, inode: &Arc<Inode>) -> Result<()> {
        let id = inode.id;
        let reservation =
            self.reserve_metadata(id.root, EditEstimate::items(1).with_global_reserve())?;
        let _state = inode.lock.write();
        let merkle = match read_inode(&inode.tree.view, id) {
            Ok(item) if item.nlink.get() == 0 => return Ok(()),
            Ok(item) => !item.flags().contains(InodeFlags::RO_VERITY),
            Err(Error::NoSuchInode(_)) => false,
            Err(error) => return Err(error),
        };
        let mut edits = vec![Edit::Delete(orphan_key(id.ino))];
        if merkle {
            edits.extend(merkle_keys(inode)?.into_iter().map(Edit::Delete));
        }
        let txn = self.join_transaction(reservation)?;
        inode.tree.check_alive()?;
        txn.edit(&inode.tree, edits);
        Ok(())
    }
}

fn merkle_keys(inode: &Inode) -> Result<Vec<Key>> {
    let mut keys = Vec::new();
    let mut cursor = inode.tree.view.cursor();
    let first = Key::new(inode.id.ino.0, KeyType::VERITY_DESC_ITEM, 0);
    let mut more = cursor.seek(&first)?;
    while more
        && let Some((key, _)) = cursor.current()
        && key.objectid == first.objectid
        && key.item_type <= KeyType::VERITY_MERKLE_ITEM
    {
        keys.push(key);
        more = cursor.advance()?;
    }
    Ok(keys)
}

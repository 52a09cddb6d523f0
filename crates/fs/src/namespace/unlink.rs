//! Removing a name, and deleting the inode with its last name.
//!
//! An inode without a hold and with few items is deleted at once. Otherwise it becomes an orphan, and is
//! deleted in steps, now or when the last hold is dropped.

use std::sync::Arc;

use ubtrfs_device::nonblocking;
use ubtrfs_format::item::{FileKind, FileTime, InodeItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::{EditEstimate, FileId, Reservation, TransactionHandle};
use ubtrfs_tree::View;

use super::entry::check_name;
use crate::error::{Error, Result};
use crate::inode::{
    Draft, EVICTED_AT_ONCE, Inode, InodeState, ItemDeletions, Locked, LockedExtents, all_items,
    check_mutable, kind_of, must_be_dir, note_change,
};
use crate::namespace::Namespace;

/// The file type that a call removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemovedKind {
    Directory,
    Other,
}

/// The state of an inode after a name was removed.
#[derive(Debug)]
pub(super) enum AfterUnlink<'a> {
    /// It has other names.
    Something,
    /// It is an orphan, to be evicted when it has no hold.
    Orphan,
    /// It is deleted with these items. Its extents stay locked until then.
    Nothing(ItemDeletions, LockedExtents<'a>),
}

/// The outcome of `rmdir`.
#[derive(Debug)]
pub(crate) enum Rmdir {
    /// A directory was removed.
    Removed,
    /// The name leads to a subvolume, or to one that a snapshot did not copy. Its parent is this directory.
    Subvolume(Arc<Inode>),
}

impl Namespace {
    /// Removes the name of a file that is not a directory.
    pub(crate) fn unlink(&self, dir: FileId, name: &[u8]) -> Result<()> {
        self.remove_entry(dir, name, RemovedKind::Other).map(drop)
    }

    /// Removes an empty directory. Does nothing if the name leads to a subvolume.
    pub(crate) fn rmdir(&self, dir: FileId, name: &[u8]) -> Result<Rmdir> {
        self.remove_entry(dir, name, RemovedKind::Directory)
    }

    fn remove_entry(&self, dir: FileId, name: &[u8], wanted: RemovedKind) -> Result<Rmdir> {
        check_name(name)?;
        let reservation = self
            .inodes
            .reserve_metadata(dir.root, EditEstimate::of_freeing())?;
        let parent = self.inodes.inode_in_use(dir)?;
        loop {
            let victim;
            let mut locked = Locked::all([&parent])?;
            let mut draft = Draft::new(&parent.tree);
            let Some(entry) = draft.find_entry(dir.ino, name)? else {
                must_be_dir(dir, &draft.inode(dir)?)?;
                return Err(Error::NotFound);
            };
            let Some(id) = entry.inode_in(dir, name)? else {
                if wanted == RemovedKind::Directory {
                    drop(locked);
                    return Ok(Rmdir::Subvolume(parent));
                }
                draft.may_remove_from(dir)?;
                let root = self.lookup(dir, name)?.ok_or(Error::NotFound)?;
                if !root.is_empty_subvolume_dir() {
                    let tree = self.roots.tree_of(root)?;
                    Draft::new(&tree).check_mutable(root)?;
                }
                return Err(Error::IsADirectory(root));
            };
            victim = self.inodes.get_in(&parent.tree, id);
            if !locked.try_add(&victim) {
                drop(locked);
                locked = Locked::all([&parent, &victim])?;
                draft = Draft::new(&parent.tree);
                if draft.find_entry(dir.ino, name)? != Some(entry) {
                    continue;
                }
            }
            let names = (&parent, name, &victim);
            self.take_locked(reservation, locked, draft, names, wanted)?;
            return Ok(Rmdir::Removed);
        }
    }

    fn take_locked(
        &self,
        reservation: Reservation<'_>,
        mut locked: Locked<'_>,
        mut draft: Draft<'_>,
        (parent, name, victim): (&Arc<Inode>, &[u8], &Arc<Inode>),
        wanted: RemovedKind,
    ) -> Result<()> {
        let (dir, id) = (parent.id, victim.id);
        let dir_item = draft.may_remove_from(dir)?;
        let mut item = draft.inode(id)?;
        check_mutable(id, &item)?;
        match (wanted, kind_of(id, &item)?) {
            (RemovedKind::Other, FileKind::Directory) => return Err(Error::IsADirectory(id)),
            (RemovedKind::Directory, kind) if kind != FileKind::Directory => {
                return Err(Error::NotADirectory(id));
            }
            _ => {}
        }
        let now = FileTime::now();
        let index = draft.remove_ref(id.ino, dir.ino, name)?;
        draft.remove_from_known(dir, dir_item, (name, index), now)?;
        let left = self.drop_link(&mut draft, victim, &mut item, locked.state(id), now)?;
        let txn = self.inodes.join_to_change(reservation, &parent.tree)?;
        draft.enter(&txn);
        let evict = self.finish_unlink(&txn, victim, locked.state(id), left);
        drop(txn);
        drop(locked);
        if evict {
            self.inodes.queue_eviction(victim);
        }
        self.inodes.release(victim);
        Ok(())
    }

    /// Drafts the changes to an inode that has lost a name. Its back reference is removed already.
    pub(super) fn drop_link<'a>(
        &self,
        draft: &mut Draft<'_>,
        inode: &'a Arc<Inode>,
        item: &mut InodeItem,
        state: &InodeState,
        now: FileTime,
    ) -> Result<AfterUnlink<'a>> {
        let ino = inode.id.ino;
        let is_dir = kind_of(inode.id, item)? == FileKind::Directory;
        let links = if is_dir {
            0
        } else {
            item.nlink.get().saturating_sub(1)
        };
        if is_dir {
            check_empty(&inode.tree.view, inode.id)?;
        }
        item.nlink = links.into();
        note_change(item, now);
        let is_held = state.open_count > 0 || links == 0 && self.inodes.is_referenced(inode.id);
        // The lock order is extents before inode. `try_lock` does not wait, so it may break that order.
        if links == 0
            && !is_held
            && let Some(extents) = inode.extents.try_lock()
            && let Some(deletions) = all_items(inode, EVICTED_AT_ONCE)?
        {
            for &key in &deletions.keys {
                draft.delete(key);
            }
            return Ok(AfterUnlink::Nothing(deletions, extents));
        }
        draft.put_inode(ino, item);
        if links > 0 {
            return Ok(AfterUnlink::Something);
        }
        if !is_held && !self.inodes.can_queue_orphan() {
            // The eviction could wait.
            nonblocking::check()?;
        }
        // ORPHAN-1 and ORPHAN-QUEUE-1
        draft.put_orphan(ino.0);
        Ok(AfterUnlink::Orphan)
    }

    /// Finishes the removal of a name. Returns whether the inode must be evicted once its lock is released.
    pub(super) fn finish_unlink(
        &self,
        txn: &TransactionHandle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        left: AfterUnlink<'_>,
    ) -> bool {
        match left {
            AfterUnlink::Something => false,
            AfterUnlink::Orphan => {
                state.unlinked = true;
                self.inodes.pin_if_referenced(inode, state);
                if state.open_count > 0 {
                    self.inodes.note_held_orphan();
                }
                state.open_count == 0
            }
            AfterUnlink::Nothing(deletions, _extents) => {
                deletions.drop_refs(txn);
                self.inodes.discard_buffer(state);
                false
            }
        }
    }
}

/// Checks that a directory has no entries.
pub(crate) fn check_empty(view: &View, dir: FileId) -> Result<()> {
    let mut cursor = view.cursor();
    let first = Key::new(dir.ino.0, KeyType::DIR_ITEM, 0);
    if cursor.seek(&first)?
        && let Some((key, _)) = cursor.current()
        && key.objectid == first.objectid
        && key.item_type <= KeyType::DIR_INDEX
    {
        return Err(Error::NotEmpty(dir));
    }
    Ok(())
}

//! Taking a name away, and the inode with its last one.
//!
//! An inode that is not held goes at once if its items are few. Otherwise it becomes an orphan, and goes
//! in steps, now or when its last holder lets go.

use std::sync::Arc;

use parking_lot::MutexGuard;
use ubtrfs_device::nonblocking;
use ubtrfs_format::item::{FileKind, FileTime, InodeItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_transaction::{EditEstimate, FileId, Reservation, TransactionHandle};
use ubtrfs_tree::View;

use super::entry::check_name;
use crate::error::{Error, Result};
use crate::inode::{
    Draft, EVICTED_AT_ONCE, FileExtentsState, Inode, InodeState, ItemDeletions, Locked, all_items,
    check_mutable, kind_of, must_be_dir, note_change,
};
use crate::namespace::Namespace;

/// The kind of file that a call removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemovedKind {
    Directory,
    Other,
}

/// The state of an inode after it has lost a name.
#[derive(Debug)]
pub(super) enum AfterUnlink<'a> {
    /// Other names.
    Something,
    /// An orphan, to be evicted once it is not held.
    Orphan,
    /// Nothing once these are deleted, and what they refer to is dropped. Its extents are locked until then.
    Nothing(ItemDeletions, MutexGuard<'a, FileExtentsState>),
}

/// The outcome of `rmdir`.
#[derive(Debug)]
pub(crate) enum Rmdir {
    /// A directory, which is removed.
    Removed,
    /// A subvolume, or the entry of one that a snapshot did not copy, in this directory.
    Subvolume(Arc<Inode>),
}

impl Namespace {
    /// Takes the name of a file that is no directory away.
    pub(crate) fn unlink(&self, dir: FileId, name: &[u8]) -> Result<()> {
        self.remove_entry(dir, name, RemovedKind::Other).map(drop)
    }

    /// Deletes an empty directory, unless the name leads to a subvolume.
    pub(crate) fn rmdir(&self, dir: FileId, name: &[u8]) -> Result<Rmdir> {
        self.remove_entry(dir, name, RemovedKind::Directory)
    }

    fn remove_entry(&self, dir: FileId, name: &[u8], wanted: RemovedKind) -> Result<Rmdir> {
        check_name(name)?;
        let reservation = self.inodes.reserve_metadata(EditEstimate::of_freeing())?;
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

    /// Drafts what becomes of an inode that has lost a name; its back reference is out already.
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
        let links = match is_dir {
            true => 0,
            false => item.nlink.get().saturating_sub(1),
        };
        if is_dir {
            check_empty(&inode.tree.view, inode.id)?;
        }
        item.nlink = links.into();
        note_change(item, now);
        let is_held = state.open_count > 0 || links == 0 && self.inodes.is_referenced(inode.id);
        // The extents of an inode are locked before it is; without waiting any order is right.
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
            // Evicting it may.
            nonblocking::check()?;
        }
        // ORPHAN-1 and ORPHAN-QUEUE-1
        draft.put_orphan(ino.0);
        Ok(AfterUnlink::Orphan)
    }

    /// Does with an inode what was drafted; true if it is to be evicted once its lock is free.
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

/// Refuses a directory that has entries.
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

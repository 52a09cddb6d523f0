//! Holds on inodes, which keep an inode after its last name is gone.
//!
//! Not here: open files (`volume::open_file`).

use std::sync::Arc;

use ubtrfs_device::nonblocking;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{FileKind, InodeFlags};
use ubtrfs_storage::{FileId, lock};

use super::inode_flag_checks::may_write;
use super::inode_item::{inode_item_cached, kind_of};
use super::{Inode, Inodes, SeenErrors};
use crate::error::{Error, Result};

/// A hold on an inode. Dropping the last hold of an inode without a name deletes the inode.
#[derive(Debug)]
pub(crate) struct InodeHold {
    inodes: Arc<Inodes>,
    inode: Arc<Inode>,
    seen_errors: SeenErrors,
}

impl InodeHold {
    pub(crate) fn id(&self) -> FileId {
        self.inode.id
    }

    /// Returns whether dropping it now would block, in a thread that must not wait.
    pub(crate) fn would_block(&self) -> bool {
        let is_last = || {
            let state = lock::read(&self.inode.lock);
            let evicts = state.map_or(true, |state| state.unlinked && state.open_count <= 1);
            evicts && !self.inodes.can_queue_orphan() || self.inode.tree.is_deleted()
        };
        nonblocking::is_set() && is_last()
    }

    pub(crate) fn inodes(&self) -> &Arc<Inodes> {
        &self.inodes
    }

    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    pub(crate) fn seen_errors(&self) -> &SeenErrors {
        &self.seen_errors
    }

    /// Creates a hold whose references to the inode and its tree have been counted already.
    pub(crate) fn counted(inodes: Arc<Inodes>, inode: Arc<Inode>) -> InodeHold {
        InodeHold {
            inodes,
            inode,
            seen_errors: SeenErrors::default(),
        }
    }
}

impl Inodes {
    /// Lets the cleaner free a deleted subvolume, as no thread holds any of its inodes.
    pub(crate) fn release_deleted(&self, root: RootId) {
        self.forget_inodes(root);
        if let Ok(manager) = self.transactions() {
            manager.cleaner.wake();
        }
    }

    /// Discards the buffered data of a deleted subvolume.
    fn forget_inodes(&self, root: RootId) {
        for inode in self.table.take_subvolume(root) {
            self.discard_buffer(&mut inode.lock.write());
        }
    }

    /// Acquires an inode of any kind except an empty subvolume directory.
    pub(crate) fn acquire(self: &Arc<Self>, id: FileId) -> Result<InodeHold> {
        if id.is_empty_subvolume_dir() {
            return Err(Error::NoSuchInode(id));
        }
        let inode = self.get(id)?;
        let mut state = lock::write(&inode.lock)?;
        if state.open_count == 0 && inode_item_cached(&inode.tree, id)?.nlink.get() == 0 {
            return Err(Error::NoSuchInode(id));
        }
        inode.tree.acquire()?;
        state.open_count += 1;
        let seen_errors = SeenErrors::at_opening(state.buffer.writeback_errors());
        drop(state);
        let mut held = InodeHold::counted(Arc::clone(self), inode);
        held.seen_errors = seen_errors;
        Ok(held)
    }

    /// Acquires a file for writing; with `appends`, for writing at its end only. Writes do not repeat these
    /// checks.
    pub(crate) fn acquire_for_writing(
        self: &Arc<Self>,
        id: FileId,
        appends: bool,
    ) -> Result<InodeHold> {
        let held = self.acquire(id)?;
        let inode = &held.inode;
        let item = inode_item_cached(&inode.tree, id)?;
        if kind_of(id, &item)? == FileKind::Directory {
            return Err(Error::IsADirectory(id));
        }
        may_write(&inode.tree, id, &item)?;
        if item.flags().contains(InodeFlags::APPEND) && !appends {
            Err(Error::NotPermitted(id))
        } else {
            Ok(held)
        }
    }
}

impl Drop for InodeHold {
    fn drop(&mut self) {
        // In a forked child, the inode is left to the parent.
        if self.inodes.roots.is_drop_in_fork() {
            return;
        }
        let mut state = self.inode.lock.write();
        state.open_count -= 1;
        let gone = state.open_count == 0 && state.unlinked;
        drop(state);
        if gone {
            self.inodes.note_released_orphan();
        }
        let tree = &self.inode.tree;
        nonblocking::blocking_scope(|| {
            if gone && !tree.is_deleted() {
                self.inodes.queue_eviction(&self.inode);
            }
            if tree.release() {
                self.inodes.release_deleted(tree.id());
            }
        });
    }
}

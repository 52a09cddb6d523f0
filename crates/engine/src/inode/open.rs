//! Open files: what keeps an inode after its last name is gone.

use std::sync::Arc;

use ubtrfs_device::waiting;
use ubtrfs_format::item::{FileKind, InodeFlags};

use super::guard::may_write;
use super::inode_item::{kind_of, known_inode};
use super::{Inode, SeenErrors};
use crate::error::{Error, Result};
use crate::file_id::FileId;
use crate::lock;
use crate::volume::Volume;

/// A hold on an inode. If it is the last one of an inode without a name, dropping it deletes the inode.
#[derive(Debug)]
pub struct OpenFile {
    volume: Arc<Volume>,
    inode: Arc<Inode>,
    seen_errors: SeenErrors,
}

impl OpenFile {
    pub fn id(&self) -> FileId {
        self.inode.id
    }

    /// Lets go, or gives the hold back if that would mean to wait and this thread must not.
    ///
    /// Dropping it waits in any case.
    pub fn close(self) -> std::result::Result<(), OpenFile> {
        match self.would_wait() {
            true => Err(self),
            false => Ok(()),
        }
    }

    /// Whether letting go now would mean to wait, and this thread must not.
    pub fn would_wait(&self) -> bool {
        let is_last = || {
            let state = lock::read(&self.inode.lock);
            let evicts = state.map_or(true, |state| state.unlinked && state.open_count <= 1);
            evicts && !self.volume.can_queue_orphan() || self.inode.tree.is_deleted()
        };
        waiting::is_forbidden() && is_last()
    }

    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    pub(crate) fn seen_errors(&self) -> &SeenErrors {
        &self.seen_errors
    }

    /// `inode` and its tree have been counted already.
    pub(crate) fn counted(volume: Arc<Volume>, inode: Arc<Inode>) -> OpenFile {
        OpenFile {
            volume,
            inode,
            seen_errors: SeenErrors::default(),
        }
    }
}

impl Volume {
    /// Holds an inode of any kind, but a stub.
    ///
    /// Errors: it does not exist, or has lost its last name and nobody holds it.
    pub fn hold(self: &Arc<Self>, id: FileId) -> Result<OpenFile> {
        if id.is_stub() {
            return Err(Error::NoSuchInode(id));
        }
        let inode = self.inodes.get(self, id)?;
        let mut state = lock::write(&inode.lock)?;
        if state.open_count == 0 && known_inode(&inode.tree, id)?.nlink.get() == 0 {
            return Err(Error::NoSuchInode(id));
        }
        inode.tree.hold()?;
        state.open_count += 1;
        let seen_errors = SeenErrors::at_opening(state.buffer.writeback_errors());
        drop(state);
        let mut held = OpenFile::counted(Arc::clone(self), inode);
        held.seen_errors = seen_errors;
        Ok(held)
    }

    /// Holds a file that shall be written to, `appends`: at its end only. Writing itself does not ask again.
    ///
    /// Errors: a directory; an immutable file, one of a read-only subvolume, and an append-only one if not
    /// `appends`.
    pub fn hold_for_writing(self: &Arc<Self>, id: FileId, appends: bool) -> Result<OpenFile> {
        let held = self.hold(id)?;
        let inode = &held.inode;
        let item = known_inode(&inode.tree, id)?;
        if kind_of(id, &item)? == FileKind::Directory {
            return Err(Error::IsADirectory(id));
        }
        may_write(&inode.tree, id, &item)?;
        match item.flags().contains(InodeFlags::APPEND) && !appends {
            true => Err(Error::NotPermitted(id)),
            false => Ok(held),
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let mut state = self.inode.lock.write();
        state.open_count -= 1;
        let gone = state.open_count == 0 && state.unlinked;
        drop(state);
        let tree = &self.inode.tree;
        waiting::while_allowed(|| {
            if gone && !tree.is_deleted() {
                self.volume.queue_eviction(&self.inode);
            }
            if tree.let_go() {
                self.volume.let_go_of_deleted(tree.id());
            }
        });
    }
}

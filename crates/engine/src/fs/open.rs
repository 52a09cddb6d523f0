//! Open files: what keeps an inode after its last name is gone.

use std::sync::Arc;

use super::inode_item::read_inode;
use super::{FileId, Inode};
use crate::error::{Error, Result};
use crate::volume::Volume;

/// A hold on an inode. If it is the last one of an inode without a name, dropping it deletes the inode.
#[derive(Debug)]
pub struct OpenFile {
    volume: Arc<Volume>,
    inode: Arc<Inode>,
}

impl OpenFile {
    pub fn id(&self) -> FileId {
        self.inode.id
    }

    /// `inode` has been counted already.
    pub(super) fn counted(volume: Arc<Volume>, inode: Arc<Inode>) -> OpenFile {
        OpenFile { volume, inode }
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
        let mut state = inode.lock.write();
        if state.open_count == 0 && read_inode(&inode.tree.view, id)?.nlink.get() == 0 {
            return Err(Error::NoSuchInode(id));
        }
        state.open_count += 1;
        drop(state);
        Ok(OpenFile::counted(Arc::clone(self), inode))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let mut state = self.inode.lock.write();
        state.open_count -= 1;
        let gone = state.open_count == 0 && state.unlinked;
        drop(state);
        if gone {
            self.volume.evict_or_leave(&self.inode);
        }
    }
}

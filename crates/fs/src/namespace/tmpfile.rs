//! Unnamed files (O_TMPFILE).

use std::sync::Arc;

use ubtrfs_format::item::{FileKind, FileTime};
use ubtrfs_storage::{EditEstimate, FileId, lock};

use super::inherit::inherited;
use super::new_inode::{NewInode, Parent};
use crate::error::{Error, Result};
use crate::inode::{Draft, InodeHold, may_write, must_be_dir};
use crate::namespace::Namespace;

impl Namespace {
    /// Creates a regular file without a name, with the same inheritance as a file created in `dir`. It is
    /// deleted with its last hold, unless `link` names it first. `linkable` is whether that is allowed.
    pub(crate) fn tmpfile(
        &self,
        dir: FileId,
        new: &NewInode<'_>,
        linkable: bool,
    ) -> Result<InodeHold> {
        new.check(self.roots.node_store().nodesize())?;
        if new.kind()? != FileKind::Regular {
            return Err(Error::Invalid("kind of a file without a name"));
        }
        let reservation = self
            .inodes
            .reserve_metadata(dir.root, EditEstimate::items(5).bytes(new.bytes()))?;
        let parent = self.inodes.inode_in_use(dir)?;
        let mut state = lock::write(&parent.lock)?;
        let mut draft = Draft::new(&parent.tree);
        let dir_item = draft.inode(dir)?;
        must_be_dir(dir, &dir_item)?;
        // As in the kernel, also in a directory that has been deleted.
        may_write(&parent.tree, dir, &dir_item)?;
        let inherited = inherited(&parent.tree, dir, &mut state)?;
        let id = FileId::new(dir.root, self.new_ino(&parent.tree)?);
        let from = Parent {
            item: &dir_item,
            inherited: &inherited,
        };
        draft.insert_new(id.ino, new, 0, &from, FileTime::now())?;
        // ORPHAN-1
        draft.put_orphan(id.ino.0);
        // Take the hold before the orphan becomes visible, or it could be evicted.
        let inode = self.inodes.get(id)?;
        let mut held = lock::write(&inode.lock)?;
        let txn = self.inodes.join_to_change(reservation, &parent.tree)?;
        inode.tree.acquire()?;
        draft.enter(&txn);
        held.open_count = 1;
        held.unlinked = true;
        held.linkable = linkable;
        drop(txn);
        drop(held);
        Ok(InodeHold::counted(Arc::clone(&self.inodes), inode))
    }
}

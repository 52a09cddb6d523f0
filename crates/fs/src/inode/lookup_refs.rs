//! References to inodes that the engine cannot see, such as the kernel's lookup counts.
//!
//! A mount serves an inode until the kernel has forgotten it, whether it is open or not. Counting each lookup
//! here would cost more than the lookup itself. Therefore the engine queries the mount when an inode loses
//! its last name.
//!
//! Not here: references of open files (`open`).

use std::fmt::Debug;
use std::sync::Arc;

use ubtrfs_format::ids::RootId;
use ubtrfs_storage::FileId;
use ubtrfs_storage::roots::Tree;

use super::hold::InodeHold;
use super::{Inode, InodeState, Inodes};

/// References to inodes outside the engine (FUSE: `nlookup`).
///
/// Locks: called with the inode locked. The implementation may take leaf locks only.
pub trait LookupRefs: Debug + Send + Sync {
    /// Returns whether it has a reference to the inode.
    fn knows(&self, id: FileId) -> bool;

    /// Pins an inode that has lost its last name, if it has a reference to it. A pinned inode counts as held until
    /// [`crate::Volume::unpin`], which the implementation calls once.
    fn pin(&self, id: FileId) -> bool;

    /// Lists the inodes of a subvolume that it has references to.
    fn inodes_of(&self, subvolume: RootId) -> Vec<FileId>;
}

impl Inodes {
    /// Sets the source of outside references.
    pub(crate) fn set_lookup_refs(&self, lookup_refs: Option<Arc<dyn LookupRefs>>) {
        *self.lookup_refs.write() = lookup_refs;
    }

    /// Drops the reference that [`LookupRefs::pin`] took.
    pub(crate) fn unpin(self: &Arc<Self>, id: FileId) {
        if let Some(inode) = self.table.find(id) {
            drop(InodeHold::counted(Arc::clone(self), inode));
        }
    }

    /// Returns whether an inode has references outside the engine.
    pub(crate) fn is_referenced(&self, id: FileId) -> bool {
        let refs = self.lookup_refs.read();
        refs.as_ref().is_some_and(|refs| refs.knows(id))
    }

    /// Pins an inode if it has outside references.
    pub(crate) fn pin_if_referenced(&self, inode: &Inode, state: &mut InodeState) {
        let refs = self.lookup_refs.read();
        if let Some(refs) = refs.as_ref()
            && inode.tree.acquire().is_ok()
        {
            if refs.pin(inode.id) {
                state.open_count += 1;
            } else {
                _ = inode.tree.release();
            }
        }
    }

    /// Pins the inodes of a deleted subvolume that have outside references. The caller holds the subvolume.
    pub(crate) fn pin_inodes_of(&self, tree: &Tree) {
        let Some(refs) = self.lookup_refs.read().clone() else {
            return;
        };
        for id in refs.inodes_of(tree.id()) {
            if let Ok(inode) = self.get(id) {
                self.pin_if_referenced(&inode, &mut inode.lock.write());
            }
        }
    }
}

impl InodeHold {
    /// Closes the file, and pins the inode if it has outside references.
    pub(crate) fn close_and_pin(self) {
        let inode = self.inode();
        self.inodes()
            .pin_if_referenced(inode, &mut inode.lock.write());
    }
}

//! Inodes that are kept after their last name is gone, because somebody else still knows them.
//!
//! A mount answers for a file until the kernel has forgotten it, open or not. Holding each file that was ever looked
//! up would cost more than the lookup; so the keeper is asked when an inode is about to go.
//!
//! Not here: holds of those who open a file (`open`).

use std::fmt::Debug;
use std::sync::Arc;

use ubtrfs_format::ids::RootId;

use super::open::OpenFile;
use super::{FileId, Inode, InodeState};
use crate::volume::{Tree, Volume};

/// Who knows inodes beside those that hold them.
///
/// Locks: it is asked under the lock of the inode, so what it locks is a leaf.
pub trait Keeper: Debug + Send + Sync {
    /// Whether it knows the inode.
    fn knows(&self, id: FileId) -> bool;

    /// An inode that it knew has lost its last name. True: it counts as held until [`Volume::let_go_of_kept`], which
    /// the keeper calls once.
    fn keep(&self, id: FileId) -> bool;

    /// All that it knows of a subvolume.
    fn known_of(&self, subvolume: RootId) -> Vec<FileId>;
}

impl Volume {
    /// Has a keeper asked from now on; None: nobody.
    pub fn set_keeper(&self, keeper: Option<Arc<dyn Keeper>>) {
        *self.keeper.write() = keeper;
    }

    /// The keeper does not know an inode any more that it kept.
    pub fn let_go_of_kept(self: &Arc<Self>, id: FileId) {
        if let Some(inode) = self.inodes.find(id) {
            drop(OpenFile::counted(Arc::clone(self), inode));
        }
    }

    /// Whether an inode that nobody holds is known all the same.
    pub(super) fn is_known(&self, id: FileId) -> bool {
        let keeper = self.keeper.read();
        keeper.as_ref().is_some_and(|keeper| keeper.knows(id))
    }

    /// Has the keeper hold an inode if it knows it.
    pub(super) fn leave_to_keeper(&self, inode: &Inode, state: &mut InodeState) {
        let keeper = self.keeper.read();
        if let Some(keeper) = keeper.as_ref()
            && inode.tree.hold().is_ok()
        {
            match keeper.keep(inode.id) {
                true => state.open_count += 1,
                false => _ = inode.tree.let_go(),
            }
        }
    }

    /// Has the keeper hold what it knows of a subvolume that has just been deleted and that the caller holds.
    pub(crate) fn keep_known_of(&self, tree: &Tree) {
        let Some(keeper) = self.keeper.read().clone() else {
            return;
        };
        for id in keeper.known_of(tree.id()) {
            if let Ok(inode) = self.inodes.get(self, id) {
                self.leave_to_keeper(&inode, &mut inode.lock.write());
            }
        }
    }
}

impl OpenFile {
    /// Leaves the hold to the keeper, if it knows the inode.
    pub fn leave_to_keeper(self) {
        let (volume, inode) = (self.volume(), self.inode());
        volume.leave_to_keeper(inode, &mut inode.lock.write());
    }
}

//! Inodes that have lost their last name and their last holder, until a thread of the volume has deleted them.
//!
//! Deleting one may wait: for data of it that is on its way to a device, and for blocks that hold its items.
//! Who took the name away does not wait for that.
//!
//! Invariants
//! - UNNAMED-1: what is listed has an ORPHAN_ITEM, so that a crash leaves it to the next opening.
//! - UNNAMED-2: who needs space that may not be there, and who syncs, first deletes what is listed.
//! - UNNAMED-3: what could not be deleted for want of space is listed.
//!
//! Locks: `turn` while one is deleted, before all locks of inodes; the list's is a leaf.
//! Not here: how an inode is deleted (`evict`), the thread (`txn::background`).

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use ubtrfs_device::waiting;

use super::Inode;
use super::evict::all_items;
use super::unlink::AT_ONCE;
use crate::error::{Error, Result};
use crate::volume::Volume;

/// Beyond this many, who takes a name away deletes the inode as well.
const MOST: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Unnamed {
    list: Mutex<VecDeque<Arc<Inode>>>,
    turn: Mutex<()>,
}

impl Volume {
    /// Whether an inode without a name can be left to the volume's thread.
    pub(super) fn can_leave_unnamed(&self) -> bool {
        let is_served = self.writer().is_ok_and(|writer| writer.has_background());
        is_served && self.unnamed.list.lock().len() < MOST
    }

    /// Has an inode deleted that has no name and that nobody holds: later, if it takes long. A failure leaves it to
    /// the next opening.
    pub(super) fn give_up(&self, inode: &Arc<Inode>) {
        let at_once = || waiting::while_forbidden(|| self.evict_at_once(inode));
        if !self.can_leave_unnamed() {
            return self.evict_or_list(inode);
        }
        if !self.is_resting() && at_once().is_ok_and(|done| done) {
            return;
        }
        self.unnamed.list.lock().push_back(Arc::clone(inode));
        if let Ok(writer) = self.writer() {
            writer.want_eviction();
        }
    }

    /// False: it has many items.
    fn evict_at_once(&self, inode: &Arc<Inode>) -> Result<bool> {
        match all_items(inode, AT_ONCE)? {
            Some(_) => self.evict(inode).map(|()| true),
            None => Ok(false),
        }
    }

    /// UNNAMED-3. Any other failure leaves the inode to the next opening.
    fn evict_or_list(&self, inode: &Arc<Inode>) {
        match self.evict(inode) {
            Ok(()) => {}
            Err(Error::NoSpace) => self.unnamed.list.lock().push_back(Arc::clone(inode)),
            Err(error) => {
                let id = inode.id;
                tracing::warn!(root = id.root.0, ino = id.ino.0, %error, "file without a name is left");
            }
        }
    }

    /// Deletes all that was given up before the call.
    ///
    /// Locks: none may be held, as for [`Volume::admit`].
    pub(crate) fn evict_unnamed(&self) {
        if self.is_resting() {
            return;
        }
        let count = self.unnamed.list.lock().len();
        // At least once: to wait for whose turn it is.
        for _ in 0..count.max(1) {
            let _turn = self.unnamed.turn.lock();
            let Some(inode) = self.unnamed.list.lock().pop_front() else {
                return;
            };
            self.evict_or_list(&inode);
            self.inodes.let_go(&inode);
        }
    }
}

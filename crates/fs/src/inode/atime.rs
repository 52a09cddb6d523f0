//! Updating access times.

use ubtrfs_format::item::{FileTime, InodeFlags, InodeItem};
use ubtrfs_storage::{FileId, lock};

use super::inode_item::inode_item_cached;
use super::{Inodes, note_times};
use crate::error::{Error, Result};

/// The policy for updating a file's access time when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AtimePolicy {
    Never,
    /// If the access time is not after the last change, or is a day old.
    #[default]
    Relative,
    Always,
}

const DAY_SECONDS: i64 = 24 * 60 * 60;

impl Inodes {
    /// Updates the access time after a read. Without space, or on a read-only subvolume, it does nothing and
    /// returns no error.
    pub(crate) fn touch_atime(&self, id: FileId, policy: AtimePolicy) -> Result<()> {
        let now = FileTime::now();
        if policy == AtimePolicy::Never || !self.roots.is_writable() || id.is_empty_subvolume_dir()
        {
            return Ok(());
        }
        let tree = self.roots.tree_of(id)?;
        if tree.is_read_only() || !is_due(&inode_item_cached(&tree, id)?, policy, now) {
            return Ok(());
        }
        let reservation = match self.reserve_metadata(id.root, self.cost_of_times()) {
            Err(Error::NoSpace) => return Ok(()),
            reservation => reservation?,
        };
        // Not `inode_in_use`: recovery in the subvolume is left to the next writer, so that readers do not
        // wait for it.
        let inode = self.get(id)?;
        inode.tree.check_alive()?;
        {
            let _state = lock::write(&inode.lock)?;
            let mut item = inode_item_cached(&inode.tree, id)?;
            if !is_due(&item, policy, now) {
                return Ok(());
            }
            item.atime = now.into();
            let txn = self.join_to_change(reservation, &inode.tree)?;
            note_times(&txn, &inode, &mut item);
        }
        self.flush_lazy_times();
        Ok(())
    }
}

fn is_due(item: &InodeItem, policy: AtimePolicy, now: FileTime) -> bool {
    if item.flags().contains(InodeFlags::NOATIME) {
        return false;
    }
    let atime = FileTime::from(item.atime);
    match policy {
        AtimePolicy::Never => false,
        AtimePolicy::Always => atime != now,
        AtimePolicy::Relative => {
            atime <= FileTime::from(item.mtime)
                || atime <= FileTime::from(item.ctime)
                || now.sec.saturating_sub(atime.sec) >= DAY_SECONDS
        }
    }
}

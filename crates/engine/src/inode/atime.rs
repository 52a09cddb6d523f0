//! Noting that a file was read.

use ubtrfs_format::item::{FileTime, InodeFlags, InodeItem};
use ubtrfs_transaction::{FileId, lock};

use super::inode_item::inode_item_cached;
use super::{Inodes, note_times};
use crate::error::{Error, Result};

/// When reading a file changes its access time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AtimePolicy {
    Never,
    /// If it is not after the last change, or a day old.
    #[default]
    Relative,
    Always,
}

const DAY_SECONDS: i64 = 24 * 60 * 60;

impl Inodes {
    /// Notes that a file was read. A file that cannot be changed is left as it is, without an error.
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
        let reservation = match self.reserve_metadata(self.cost_of_times()) {
            Err(Error::NoSpace) => return Ok(()),
            reservation => reservation?,
        };
        // Not `inode_in_use`: work that was interrupted in the subvolume can wait for its next writer. Readers wait for
        // nothing.
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

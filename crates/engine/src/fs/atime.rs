//! Noting that a file was read.

use ubtrfs_format::item::{InodeFlags, InodeItem};

use super::draft::Draft;
use super::inode_item::read_inode;
use super::{FileId, FileTime};
use crate::error::{Error, Result};
use crate::lock;
use crate::txn::Cost;
use crate::volume::Volume;

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

impl Volume {
    /// Notes that a file was read. What cannot be changed is left as it is, without an error.
    pub fn touch_atime(&self, id: FileId, policy: AtimePolicy) -> Result<()> {
        let now = FileTime::now();
        if policy == AtimePolicy::Never || !self.is_writable() || id.is_stub() {
            return Ok(());
        }
        let tree = self.tree_of(id)?;
        if tree.is_read_only() || !is_due(&read_inode(&tree.view, id)?, policy, now) {
            return Ok(());
        }
        let permit = match self.admit(Cost::items(1)) {
            Err(Error::NoSpace) => return Ok(()),
            permit => permit?,
        };
        let inode = self.inode_in_use(id)?;
        let _state = lock::write(&inode.lock)?;
        let mut draft = Draft::new(&inode.tree);
        let mut item = draft.inode(id)?;
        if !is_due(&item, policy, now) {
            return Ok(());
        }
        item.atime = now.into();
        draft.put_inode(id.ino, &item);
        let txn = self.enter_tree(permit, &inode.tree)?;
        draft.enter(&txn);
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

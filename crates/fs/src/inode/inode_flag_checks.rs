//! Checks of inode flags and read-only subvolumes, in the kernel's order.
//!
//! Not here: permissions of users (the kernel checks them for a mount).

use ubtrfs_format::item::{FileKind, InodeFlags, InodeItem};
use ubtrfs_storage::FileId;
use ubtrfs_storage::roots::Tree;

use super::inode_item::kind_of;
use crate::error::{Error, Result};

/// Checks whether an entry may be added to a directory.
pub(crate) fn may_add(tree: &Tree, id: FileId, dir: &InodeItem) -> Result<()> {
    let is_gone = || tree.is_deleted() && tree.item().root_dirid.get() == id.ino.0;
    if dir.nlink.get() == 0 || is_gone() {
        return Err(Error::NotFound);
    }
    may_write(tree, id, dir)
}

/// Checks whether an entry may be removed from a directory.
pub(crate) fn may_remove(tree: &Tree, id: FileId, dir: &InodeItem) -> Result<()> {
    may_write(tree, id, dir)?;
    check_mutable(id, dir)
}

/// Checks whether owner, mode, times and attributes may change.
pub(crate) fn may_change(tree: &Tree, id: FileId, item: &InodeItem) -> Result<()> {
    check_mutable(id, item)?;
    Ok(tree.check_writable()?)
}

/// Checks whether the contents may change, at least by appending.
pub(crate) fn may_write(tree: &Tree, id: FileId, item: &InodeItem) -> Result<()> {
    if item.flags().contains(InodeFlags::IMMUTABLE) {
        return Err(Error::NotPermitted(id));
    }
    Ok(tree.check_writable()?)
}

/// Checks that an inode is neither append-only nor immutable, so that its names and attributes may change.
pub(crate) fn check_mutable(id: FileId, item: &InodeItem) -> Result<()> {
    let guards = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    if item.flags().intersects(guards) {
        Err(Error::NotPermitted(id))
    } else {
        Ok(())
    }
}

pub(crate) fn must_be_dir(id: FileId, item: &InodeItem) -> Result<()> {
    match kind_of(id, item)? {
        FileKind::Directory => Ok(()),
        _ => Err(Error::NotADirectory(id)),
    }
}

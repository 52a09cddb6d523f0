//! Checks before a regular file is changed, and the updates that every change of its data shares.

use std::ops::Range;

use ubtrfs_format::item::{FileKind, FileTime, InodeFlags, InodeItem};
pub(super) use ubtrfs_format::limits::MAX_FILE_BYTES;
use ubtrfs_storage::{EditEstimate, Reservation, TransactionHandle, lock};

use super::Files;
use super::extent_edit::ExtentEdit;
use crate::error::{Error, Result};
use crate::inode::{Inode, inode_item_cached, kind_of, note_change};

/// Returns the item of a regular file.
pub(super) fn read_file(inode: &Inode) -> Result<InodeItem> {
    let item = inode_item_cached(&inode.tree, inode.id)?;
    match kind_of(inode.id, &item)? {
        FileKind::Regular => Ok(item),
        FileKind::Directory => Err(Error::IsADirectory(inode.id)),
        _ => Err(Error::NotAFile(inode.id)),
    }
}

/// Refuses a file with any of these flags, or with fs-verity, whose data never changes.
pub(super) fn refuse_flags(inode: &Inode, guards: InodeFlags) -> Result<()> {
    let guards = guards | InodeFlags::RO_VERITY;
    let _state = lock::read(&inode.lock)?;
    if read_file(inode)?.flags().intersects(guards) {
        Err(Error::NotPermitted(inode.id))
    } else {
        Ok(())
    }
}

/// Sets the mtime and ctime to now.
pub(super) fn note_write(item: &mut InodeItem) {
    let now = FileTime::now();
    item.mtime = now.into();
    note_change(item, now);
}

/// Returns the end of a range, or an error if it is beyond the largest file size.
pub(super) fn end_of(offset: u64, len: u64) -> Result<u64> {
    match offset.checked_add(len) {
        Some(end) if end <= MAX_FILE_BYTES => Ok(end),
        _ => Err(Error::FileTooBig),
    }
}

impl Files {
    /// Joins the transaction to change a file, unless its subvolume was deleted or became read-only since the
    /// look-up.
    pub(super) fn join_to_change_file<'v>(
        &'v self,
        inode: &Inode,
        reservation: Reservation<'v>,
    ) -> Result<TransactionHandle<'v>> {
        self.inodes.join_to_change(reservation, &inode.tree)
    }

    /// Joins the transaction to finish a change or to store buffered data, even if the subvolume has become
    /// read-only.
    pub(super) fn join_to_finish_change<'v>(
        &'v self,
        inode: &Inode,
        reservation: Reservation<'v>,
    ) -> Result<TransactionHandle<'v>> {
        let txn = self.inodes.join_transaction(reservation)?;
        inode.tree.check_alive()?;
        Ok(txn)
    }

    /// Returns the number of extents in `range` as it is now, up to the limit `most`.
    pub(super) fn extents_in(
        &self,
        inode: &Inode,
        range: Range<u64>,
        most: usize,
    ) -> Result<usize> {
        let _state = lock::read(&inode.lock)?;
        let (extent_edit, _) = ExtentEdit::load_head(inode, self.roots.sectorsize(), range, most)?;
        Ok(extent_edit.extents().count())
    }

    /// Commits between two steps of a change, if many edits have accumulated or there is no room for the next
    /// step. The caller has locked the file's extents. This thread commits itself, because reclaiming space
    /// writes back files and would wait for these locks.
    pub(super) fn commit_between_steps(&self, next: EditEstimate) -> Result<()> {
        if self.inodes.transactions()?.wants_commit(next) {
            Ok(self.inodes.transactions()?.commit_running()?)
        } else {
            Ok(())
        }
    }
}

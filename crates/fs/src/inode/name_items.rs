//! The common part of items that hold names: DIR_ITEM, DIR_INDEX and XATTR_ITEM.

use ubtrfs_format::item::DirHead;
pub(crate) use ubtrfs_format::limits::MAX_NAME_BYTES;
use ubtrfs_format::node::{ITEM_HEAD_SIZE, leaf_data_size};
use ubtrfs_tree::View;

pub(crate) const TRANSID_AT: u16 = std::mem::offset_of!(DirHead, transid) as u16;

/// Returns whether `more` bytes can be appended to an item of `old` bytes. Like the kernel, it leaves room in
/// the leaf for the head of another item.
pub(crate) fn has_room(view: &View, old: usize, more: usize) -> bool {
    old + more + 2 * ITEM_HEAD_SIZE <= leaf_data_size(view.store().nodesize())
}

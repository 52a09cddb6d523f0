//! Edits of single items.

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{FileExtent, FileExtentHead, FileExtentRegular, InodeItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_sim::craft::Crafted;
use zerocopy::FromBytes;

/// Changes the first item that matches `is_it`.
pub(super) fn edit(
    volume: &mut Crafted,
    tree: RootId,
    is_it: impl Fn(Key, &[u8]) -> bool,
    mut change: impl FnMut(&mut Key, &mut Vec<u8>),
) {
    let mut done = false;
    volume.edit_leaves(tree, |items| {
        let found = items.iter_mut().find(|(key, bytes)| is_it(*key, bytes));
        let Some((key, bytes)) = found.filter(|_| !done) else {
            return false;
        };
        change(key, bytes);
        done = true;
        true
    });
    assert!(done, "no such item in tree {tree}");
}

pub(super) fn edit_type(
    volume: &mut Crafted,
    tree: RootId,
    item_type: KeyType,
    change: impl FnMut(&mut Key, &mut Vec<u8>),
) {
    edit(volume, tree, |key, _| key.item_type == item_type, change);
}

pub(super) fn edit_key(
    volume: &mut Crafted,
    tree: RootId,
    wanted: Key,
    change: impl FnMut(&mut Key, &mut Vec<u8>),
) {
    edit(volume, tree, |key, _| key == wanted, change);
}

/// Removes the first item that matches `is_it`, and returns it.
pub(super) fn remove(
    volume: &mut Crafted,
    tree: RootId,
    is_it: impl Fn(Key, &[u8]) -> bool,
) -> (Key, Vec<u8>) {
    let mut removed = None;
    volume.edit_leaves(tree, |items| {
        let found = items.iter().position(|(key, bytes)| is_it(*key, bytes));
        let Some(index) = found.filter(|_| removed.is_none()) else {
            return false;
        };
        removed = Some(items.remove(index));
        true
    });
    removed.unwrap_or_else(|| panic!("no such item in tree {tree}"))
}

/// Adds an item to the leaf that covers its key.
pub(super) fn insert(volume: &mut Crafted, tree: RootId, key: Key, bytes: &[u8]) {
    let mut firsts = Vec::new();
    volume.edit_leaves(tree, |items| {
        firsts.extend(items.first().map(|(key, _)| *key));
        false
    });
    firsts.sort_unstable();
    let after = firsts.partition_point(|first| *first <= key);
    let home = firsts[after.saturating_sub(1)];
    volume.edit_leaves(tree, |items| {
        if items.first().map(|(key, _)| *key) != Some(home) {
            return false;
        }
        items.push((key, bytes.to_vec()));
        true
    });
}

/// Returns all items of a tree's leaves, in order.
pub(super) fn items(volume: &mut Crafted, tree: RootId) -> Vec<(Key, Vec<u8>)> {
    let mut all = Vec::new();
    volume.edit_leaves(tree, |items| {
        all.extend(items.iter().cloned());
        false
    });
    all.sort();
    all
}

pub(super) fn find(
    volume: &mut Crafted,
    tree: RootId,
    is_it: impl Fn(Key, &[u8]) -> bool,
) -> (Key, Vec<u8>) {
    let all = items(volume, tree);
    let found = all.into_iter().find(|(key, bytes)| is_it(*key, bytes));
    found.unwrap_or_else(|| panic!("no such item in tree {tree}"))
}

pub(super) fn inode(bytes: &mut [u8]) -> &mut InodeItem {
    InodeItem::mut_from_bytes(bytes).expect("an inode item")
}

/// Returns the head and body of a file extent that is not inline.
pub(super) fn extent(bytes: &mut [u8]) -> (&mut FileExtentHead, &mut FileExtentRegular) {
    let (head, rest) = FileExtentHead::mut_from_prefix(bytes).expect("a head");
    (
        head,
        FileExtentRegular::mut_from_bytes(rest).expect("a body"),
    )
}

/// Returns whether it is a simple file extent: written, uncompressed, and used as a whole.
pub(super) fn is_plain(key: Key, bytes: &[u8]) -> bool {
    key.item_type == KeyType::EXTENT_DATA
        && matches!(
            FileExtent::decode(bytes),
            Some(FileExtent::Regular { head, body, prealloc: false })
                if head.compression == 0
                    && body.disk().is_some()
                    && body.offset.get() == 0
                    && body.num_bytes == body.disk_num_bytes
        )
}

pub(super) fn add_u64(number: &mut zerocopy::little_endian::U64, more: u64) {
    *number = number.get().wrapping_add(more).into();
}

//! What is shown of inodes that come, change and go.

use std::sync::Arc;

use zerocopy::{FromZeros, IntoBytes};

use super::*;

const ROOT: RootId = RootId::FS_TREE;

fn item(size: u64) -> InodeItem {
    let mut item = InodeItem::new_zeroed();
    item.size = size.into();
    item
}

fn key(ino: u64) -> Key {
    Key::new(ino, KeyType::INODE_ITEM, 0)
}

fn put(ino: u64, size: u64) -> Edit {
    Edit::Put(key(ino), Arc::from(item(size).as_bytes()))
}

fn size(items: &InodeItems, ino: u64) -> Option<u64> {
    items.get(ROOT, ino).ok().map(|item| item.size.get())
}

#[test]
fn last_edit_is_shown_until_the_inode_goes() {
    let items = InodeItems::default();
    items.follow(ROOT, &put(257, 1));
    items.follow(ROOT, &put(258, 2));
    items.follow(ROOT, &put(257, 3));
    assert_eq!((size(&items, 257), size(&items, 258)), (Some(3), Some(2)));
    items.follow(ROOT, &Edit::Delete(key(257)));
    assert_eq!((size(&items, 257), size(&items, 258)), (None, Some(2)));
    items.forget(ROOT, 258);
    assert_eq!(size(&items, 258), None);
}

#[test]
fn inode_of_another_tree_is_another() {
    let items = InodeItems::default();
    items.follow(ROOT, &put(257, 1));
    for root in 258..1000 {
        assert!(items.get(RootId(root), 257).is_err());
    }
}

#[test]
fn what_was_read_before_an_edit_does_not_enter_after_it() {
    let items = InodeItems::default();
    let early = items.get(ROOT, 257).unwrap_err();
    items.follow(ROOT, &put(257, 2));
    items.follow(ROOT, &Edit::Delete(key(257)));
    items.enter(early, ROOT, 257, &item(1));
    assert_eq!(size(&items, 257), None);
    let late = items.get(ROOT, 257).unwrap_err();
    items.enter(late, ROOT, 257, &item(3));
    assert_eq!(size(&items, 257), Some(3));
}

#[test]
fn inodes_of_one_slot_take_turns() {
    let items = InodeItems::default();
    let other = 257 + (PAGES * PAGE_SLOTS) as u64;
    items.follow(ROOT, &put(257, 1));
    items.follow(ROOT, &put(other, 2));
    assert_eq!((size(&items, 257), size(&items, other)), (None, Some(2)));
    items.follow(ROOT, &Edit::Delete(key(257)));
    assert_eq!(size(&items, other), Some(2));
}

#[test]
fn other_items_of_an_inode_are_none_of_this() {
    let items = InodeItems::default();
    items.follow(ROOT, &put(257, 1));
    let name = Key::new(257, KeyType::INODE_REF, 256);
    items.follow(ROOT, &Edit::Delete(name));
    assert_eq!(size(&items, 257), Some(1));
}

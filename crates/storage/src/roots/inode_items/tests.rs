//! Cached items of inodes that are created, changed and deleted.

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

fn size(items: &InodeItemCache, ino: u64) -> Option<u64> {
    items.get(ROOT, ino).ok().map(|item| item.size.get())
}

fn follow(items: &InodeItemCache, edit: &Edit) {
    items.follow(ROOT, edit, ItemChange::Any, Transid(7));
}

// ITEMS-1
#[test]
fn last_edit_is_shown_until_the_inode_goes() {
    let items = InodeItemCache::default();
    follow(&items, &put(257, 1));
    follow(&items, &put(258, 2));
    follow(&items, &put(257, 3));
    assert_eq!((size(&items, 257), size(&items, 258)), (Some(3), Some(2)));
    follow(&items, &Edit::Delete(key(257)));
    assert_eq!((size(&items, 257), size(&items, 258)), (None, Some(2)));
    items.forget(ROOT, 258);
    assert_eq!(size(&items, 258), None);
}

#[test]
fn inode_of_another_tree_is_another() {
    let items = InodeItemCache::default();
    follow(&items, &put(257, 1));
    for root in 258..1000 {
        assert!(items.get(RootId(root), 257).is_err());
    }
}

// ITEMS-2
#[test]
fn items_read_before_an_edit_do_not_enter_after_it() {
    let items = InodeItemCache::default();
    let early = items.get(ROOT, 257).unwrap_err();
    follow(&items, &put(257, 2));
    follow(&items, &Edit::Delete(key(257)));
    items.enter(early, ROOT, 257, &item(1));
    assert_eq!(size(&items, 257), None);
    let late = items.get(ROOT, 257).unwrap_err();
    items.enter(late, ROOT, 257, &item(3));
    assert_eq!(size(&items, 257), Some(3));
}

#[test]
fn inodes_of_one_slot_take_turns() {
    let items = InodeItemCache::default();
    let other = 257 + (MOST_PAGES * PAGE_SLOTS) as u64;
    follow(&items, &put(257, 1));
    follow(&items, &put(other, 2));
    assert_eq!((size(&items, 257), size(&items, other)), (None, Some(2)));
    follow(&items, &Edit::Delete(key(257)));
    assert_eq!(size(&items, other), Some(2));
}

#[test]
fn other_items_of_an_inode_are_none_of_this() {
    let items = InodeItemCache::default();
    follow(&items, &put(257, 1));
    let name = Key::new(257, KeyType::INODE_REF, 256);
    follow(&items, &Edit::Delete(name));
    assert_eq!(size(&items, 257), Some(1));
}

// ITEMS-3
#[test]
fn changes_of_times_leave_the_last_other_change_as_it_was() {
    let items = InodeItemCache::default();
    let id = FileId::new(ROOT, InodeNr(257));
    let times = |transid| items.follow(ROOT, &put(257, 1), ItemChange::Times, Transid(transid));
    let changed = || items.changed_in(id).ok();
    assert_eq!(changed(), None);
    items.follow(ROOT, &put(257, 1), ItemChange::Any, Transid(7));
    times(8);
    assert_eq!(changed(), Some(Transid(7)));
    // Another inode takes the slot, so its earlier changes are unknown.
    let other = 257 + (MOST_PAGES * PAGE_SLOTS) as u64;
    follow(&items, &put(other, 2));
    assert_eq!(changed(), None);
    times(9);
    assert_eq!(changed(), Some(Transid(9)));
    items.follow(
        ROOT,
        &Edit::Delete(key(other)),
        ItemChange::Any,
        Transid(10),
    );
    assert_eq!(changed(), Some(Transid(9)));
}

#[test]
fn items_are_noted_unless_there_was_a_change_meanwhile() {
    let items = InodeItemCache::default();
    let id = FileId::new(ROOT, InodeNr(257));
    let enter = || {
        follow(&items, &put(257 + (MOST_PAGES * PAGE_SLOTS) as u64, 2));
        let ticket = items.get(ROOT, 257).unwrap_err();
        items.enter(ticket, ROOT, 257, &InodeItem::new_zeroed());
        items.changed_in(id).unwrap_err()
    };
    let ticket = enter();
    items.note_changed_by(ticket, id, Transid(12));
    assert_eq!(items.changed_in(id).ok(), Some(Transid(12)));
    let ticket = enter();
    items.follow(ROOT, &put(257, 1), ItemChange::Any, Transid(14));
    items.note_changed_by(ticket, id, Transid(13));
    assert_eq!(items.changed_in(id).ok(), Some(Transid(14)));
}

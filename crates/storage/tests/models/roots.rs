//! Holds on the inodes of a subvolume, and its deletion (TREE-3).

#[path = "../../src/roots/tree/root_item.rs"]
mod root_item;

use std::sync::Arc;

use loom::thread;
use root_item::SharedRootItem;
use ubtrfs_format::item::RootItem;

use crate::check;

fn subvolume() -> Arc<SharedRootItem> {
    Arc::new(SharedRootItem::new(RootItem::new_subvolume(16384)))
}

/// Deletes the subvolume. Returns whether it has no holds, so that its blocks may be freed.
fn delete(item: &SharedRootItem) -> bool {
    item.change(|item| item.refs = 0.into());
    !item.is_held()
}

/// TREE-3
#[test]
fn deletion_or_last_release_frees_a_subvolume() {
    check(5, || {
        let item = subvolume();
        assert!(item.acquire());
        let holder = Arc::clone(&item);
        let releasing = thread::spawn(move || holder.release());
        let is_free = delete(&item);
        let was_last = releasing.join().unwrap();
        assert!(is_free || was_last, "the blocks stay until the next mount");
    });
}

/// TREE-3
#[test]
fn hold_is_met_by_a_deletion_or_refused() {
    check(5, || {
        let item = subvolume();
        let holder = Arc::clone(&item);
        let acquiring = thread::spawn(move || holder.acquire());
        let is_free = delete(&item);
        let is_held = acquiring.join().unwrap();
        assert!(!(is_free && is_held));
    });
}

#[test]
fn one_of_two_releases_is_the_last() {
    check(5, || {
        let item = subvolume();
        assert!(item.acquire() && item.acquire());
        assert!(!delete(&item));
        let holder = Arc::clone(&item);
        let releasing = thread::spawn(move || holder.release());
        let here = item.release();
        let there = releasing.join().unwrap();
        assert!(here != there);
    });
}

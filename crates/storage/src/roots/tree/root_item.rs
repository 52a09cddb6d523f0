//! The root item of a tree, and the holds on its inodes that outlive it (TREE-3).
//!
//! A deletion marks the tree before it checks for holds, and the release of a hold decrements the count before it
//! checks for the mark. Both orders are sequentially consistent, so at least one of the two sees the other and frees
//! the blocks.

use ubtrfs_format::item::{RootItem, RootItemFlags};

use crate::sync::{AtomicBool, AtomicU64, Ordering, RwLock};

#[derive(Debug)]
pub(super) struct SharedRootItem {
    item: RwLock<RootItem>,
    /// Flags that most calls check: whether the subvolume is deleted, and whether it is read-only. Set while `item` is
    /// locked.
    deleted: AtomicBool,
    read_only: AtomicBool,
    /// Number of held inodes of the tree.
    held_inodes: AtomicU64,
    /// Number of readers that need the tree to stay read-only. Incremented while `item` is locked.
    snapshot_readers: AtomicU64,
}

impl SharedRootItem {
    pub(super) fn new(item: RootItem) -> SharedRootItem {
        SharedRootItem {
            deleted: AtomicBool::new(is_deleted(&item)),
            read_only: AtomicBool::new(is_read_only(&item)),
            item: RwLock::new(item),
            held_inodes: AtomicU64::new(0),
            snapshot_readers: AtomicU64::new(0),
        }
    }

    pub(super) fn get(&self) -> RootItem {
        *self.item.read()
    }

    pub(super) fn last_snapshot(&self) -> u64 {
        self.item.read().last_snapshot.get()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut RootItem)) {
        let mut item = self.item.write();
        change(&mut item);
        self.deleted.store(is_deleted(&item), Ordering::SeqCst);
        self.read_only.store(is_read_only(&item), Ordering::Release);
    }

    #[inline]
    pub(super) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.held_inodes.load(Ordering::SeqCst) > 0
    }

    /// Takes a hold on an inode. Returns false if the tree is deleted and none of its inodes is held.
    pub(super) fn acquire(&self) -> bool {
        // A deletion waits for the lock, and then sees the hold.
        let item = self.item.read();
        self.held_inodes
            .try_update(Ordering::AcqRel, Ordering::Acquire, |held| {
                (held > 0 || item.refs.get() > 0).then_some(held + 1)
            })
            .is_ok()
    }

    /// Releases a hold. Returns true if it was the last one of a deleted subvolume.
    pub(super) fn release(&self) -> bool {
        self.held_inodes.fetch_sub(1, Ordering::SeqCst) == 1 && self.deleted.load(Ordering::SeqCst)
    }

    /// Keeps the tree read-only. Returns false if it is writable.
    pub(super) fn keep_read_only(&self) -> bool {
        // A change of the flag waits for the lock, and then sees the reader.
        let item = self.item.read();
        let is_read_only = is_read_only(&item);
        if is_read_only {
            self.snapshot_readers.fetch_add(1, Ordering::AcqRel);
        }
        is_read_only
    }

    pub(super) fn is_kept_read_only(&self) -> bool {
        self.snapshot_readers.load(Ordering::Acquire) > 0
    }

    pub(super) fn end_read_only(&self) {
        self.snapshot_readers.fetch_sub(1, Ordering::AcqRel);
    }
}

fn is_deleted(item: &RootItem) -> bool {
    item.refs.get() == 0
}

fn is_read_only(item: &RootItem) -> bool {
    item.flags().contains(RootItemFlags::RDONLY)
}

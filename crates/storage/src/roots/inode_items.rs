//! A cache of INODE_ITEMs that were recently read or changed, so that calls on inodes in use need no tree search.
//!
//! A direct-mapped table: each slot has the item of the last inode with its hash. Times that are only in memory
//! (`lazy_times`) take precedence over a slot.
//!
//! Invariants
//! - ITEMS-1: a cached item equals the item in the tree's view, except for lazy times. Edits update the cache while
//!   they hold the tree's mutable set. Items changed by a commit itself are dropped when it is published.
//! - ITEMS-2: an item read from a tree enters only if its slot has not changed since before the read.
//! - ITEMS-3: `changed_in` of a slot is no older than the last transaction that changed anything but times of its
//!   inode.
//!
//! Locks: each slot's, a leaf, held for one copy.
//! Not here: written data without an extent, which no item records (`inode::delalloc`).

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use ubtrfs_format::ids::{InodeNr, RootId, Transid};
use ubtrfs_format::item::InodeItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::Edit;
use zerocopy::FromBytes;

use super::lazy_times::LazyTimes;
use crate::file_id::FileId;

#[cfg(test)]
mod tests;

/// Maximum number of pages, a power of two. Pages are allocated when their slots are first used.
const MOST_PAGES: usize = 512;
const PAGE_SLOTS: usize = 256;

/// The cached inode items of all trees of a volume.
#[derive(Debug)]
pub struct InodeItemCache {
    pub lazy: Arc<LazyTimes>,
    pages: Vec<OnceLock<Vec<Mutex<Slot>>>>,
}

impl InodeItemCache {
    /// Creates a cache within the budget.
    pub(super) fn new(budget_bytes: u64) -> Self {
        let pages = pages_of(
            budget_bytes,
            PAGE_SLOTS * size_of::<Mutex<Slot>>(),
            MOST_PAGES,
        );
        InodeItemCache {
            lazy: Arc::default(),
            pages: (0..pages).map(|_| OnceLock::new()).collect(),
        }
    }
}

impl Default for InodeItemCache {
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

/// Returns the number of pages that fit a budget, rounded down to a power of two.
pub(super) fn pages_of(budget_bytes: u64, page_bytes: usize, most: usize) -> usize {
    let fit = budget_bytes / page_bytes as u64;
    let fit = usize::try_from(fit).unwrap_or(most).clamp(1, most);
    1 << fit.ilog2()
}

#[derive(Debug, Default)]
struct Slot {
    /// The number of edits so far.
    version: u64,
    id: (u64, u64),
    item: Option<InodeItem>,
    /// ITEMS-3. None means unknown.
    changed_in: Option<Transid>,
}

/// The kind of change to an INODE_ITEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemChange {
    /// Other fields than times, or also other items of the inode.
    Any,
    /// Times, and fields that count their changes.
    Times,
}

/// Permission to enter an item read from a tree after the ticket was issued.
#[derive(Debug)]
#[must_use]
pub struct Ticket {
    version: u64,
}

impl InodeItemCache {
    #[inline]
    fn slot(&self, (root, ino): (u64, u64)) -> &Mutex<Slot> {
        // Neighbours are often used together, so they get different slots.
        let spread = root.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        let at = (ino ^ spread) as usize;
        let page = self.pages[(at / PAGE_SLOTS) & (self.pages.len() - 1)].get_or_init(|| {
            let slots = std::iter::repeat_with(Mutex::default);
            slots.take(PAGE_SLOTS).collect()
        });
        &page[at % PAGE_SLOTS]
    }

    /// Returns the item, or a ticket to enter it.
    #[inline]
    pub fn get(&self, root: RootId, ino: u64) -> Result<InodeItem, Ticket> {
        self.look(root, ino, |item| *item)
    }

    /// Calls `look` with the cached item, without a copy, and returns its result. Otherwise returns a ticket to enter
    /// the item.
    #[inline]
    pub fn look<T>(
        &self,
        root: RootId,
        ino: u64,
        look: impl FnOnce(&InodeItem) -> T,
    ) -> Result<T, Ticket> {
        if let Some(item) = self.lazy.get(FileId::new(root, InodeNr(ino))) {
            return Ok(look(&item));
        }
        let id = (root.0, ino);
        let slot = self.slot(id).lock();
        match &slot.item {
            Some(item) if slot.id == id => Ok(look(item)),
            _ => Err(Ticket {
                version: slot.version,
            }),
        }
    }

    /// Enters an item read from a tree (ITEMS-2).
    pub fn enter(&self, ticket: Ticket, root: RootId, ino: u64, item: &InodeItem) {
        let id = (root.0, ino);
        let mut slot = self.slot(id).lock();
        if slot.version == ticket.version {
            let known = slot.changed_in.filter(|_| slot.id == id);
            (slot.id, slot.item, slot.changed_in) = (id, Some(*item), known);
        }
    }

    /// Returns the last transaction that changed anything but times of an inode, or a later one. If it is unknown,
    /// returns a ticket to enter it.
    #[inline]
    pub fn changed_in(&self, id: FileId) -> Result<Transid, Ticket> {
        let id = (id.root.0, id.ino.0);
        let slot = self.slot(id).lock();
        match slot.changed_in {
            Some(transid) if slot.id == id => Ok(transid),
            _ => Err(Ticket {
                version: slot.version,
            }),
        }
    }

    /// Notes that the inode was last changed in or before `transid`, which must be the transaction that was running
    /// after the ticket was issued.
    pub fn note_changed_by(&self, ticket: Ticket, id: FileId, transid: Transid) {
        let id = (id.root.0, id.ino.0);
        let mut slot = self.slot(id).lock();
        if slot.version == ticket.version && slot.id == id {
            slot.changed_in = Some(transid);
        }
    }

    /// Applies an edit of a tree by transaction `transid` to the cache. Called while its mutable set is held (ITEMS-1).
    pub(crate) fn follow(&self, root: RootId, edit: &Edit, change: ItemChange, transid: Transid) {
        let (key, value) = match edit {
            Edit::Insert(key, value) | Edit::Put(key, value) => (key, Some(value)),
            Edit::Delete(key) => (key, None),
        };
        if is_inode_item(key) {
            let item = value.and_then(|value| InodeItem::read_from_bytes(value).ok());
            self.set((root.0, key.objectid), item, change, Some(transid));
        }
    }

    /// Removes an item from the cache, because the item in the tree has changed.
    pub(crate) fn forget(&self, root: RootId, ino: u64) {
        self.set((root.0, ino), None, ItemChange::Any, None);
    }

    fn set(
        &self,
        id: (u64, u64),
        item: Option<InodeItem>,
        change: ItemChange,
        changed_in: Option<Transid>,
    ) {
        {
            let mut slot = self.slot(id).lock();
            slot.version += 1;
            if item.is_some() || slot.id == id {
                // An inode that is new in its slot has unknown earlier changes, which may belong to this transaction.
                let is_known = slot.id == id && slot.changed_in.is_some();
                if change == ItemChange::Any || !is_known {
                    slot.changed_in = changed_in;
                }
                (slot.id, slot.item) = (id, item);
            }
        }
        // Must be last: a reader that misses the lazy times then finds the new item in the slot.
        self.lazy.forget(FileId::new(RootId(id.0), InodeNr(id.1)));
    }
}

pub fn is_inode_item(key: &Key) -> bool {
    key.item_type == KeyType::INODE_ITEM && key.offset == 0
}

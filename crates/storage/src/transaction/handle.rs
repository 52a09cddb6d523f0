//! Joining the running transaction.
//!
//! An operation reserves space (which may wait), takes its inode locks, reads, joins, edits, and leaves.
//! Between joining and leaving, it does no IO and does not wait, because a freeze waits for it.
//!
//! Locks: none may be held in `reserve_metadata`, which may wait for a commit, and a commit writes back files. The
//! freeze guard is held, shared, while a [`TransactionHandle`] lives. The inode locks that protect the values read are
//! acquired before the guard. So edits of an older transaction never follow edits of a newer one.

use std::cell::Cell;
use std::sync::Arc;

use parking_lot::RwLockReadGuard;
use ubtrfs_format::ids::Transid;
use ubtrfs_format::item::RootItem;
use ubtrfs_format::key::Key;
use ubtrfs_tree::Edit;

use super::data_ref::{DataRef, DiskExtent};
use super::delayed_refs::DelayedRefs;
use super::manager::TransactionManager;
use super::pending_subvolumes::{Origin, PendingSubvolume, Puts};
use super::reclaim::HandleCount;
use super::reservation::{EditCounts, ReservationUnits};
use super::running::RunningTransaction;
use super::superblock_edits::SuperblockEdits;
use crate::error::Result;
use crate::roots::{ItemChange, NameChanges, Tree};

/// An operation's reservation, which allows it to join the running transaction. A drop releases it.
#[derive(Debug)]
#[must_use]
pub struct Reservation<'v> {
    reserved: Option<(&'v TransactionManager, Reserved)>,
}

#[derive(Debug)]
enum Reserved {
    Edits(EditCounts),
    /// Units of a batch that was reserved earlier.
    Units(ReservationUnits),
}

impl<'v> Reservation<'v> {
    /// Creates an empty reservation, for work that an earlier operation has reserved, such as the write-back of its
    /// data.
    #[inline]
    pub fn already_made() -> Reservation<'v> {
        Reservation { reserved: None }
    }

    /// Reserves `cost` without a check for space.
    pub(super) fn make(manager: &'v TransactionManager, cost: EditCounts) -> Reservation<'v> {
        manager.reserve(cost);
        Reservation {
            reserved: Some((manager, Reserved::Edits(cost))),
        }
    }

    /// Creates a reservation of `units` taken from the cache.
    #[inline]
    pub(super) fn of_units(
        manager: &'v TransactionManager,
        units: ReservationUnits,
    ) -> Reservation<'v> {
        Reservation {
            reserved: Some((manager, Reserved::Units(units))),
        }
    }
}

impl Reservation<'_> {
    /// Releases the unused part of the reservation. The operation's edits, `used`, are already counted.
    #[inline]
    fn release_unused(&mut self, used: EditCounts) {
        if let Some((manager, Reserved::Units(units))) = &mut self.reserved {
            manager.reservations.release_unused(units, used);
        }
    }
}

impl Drop for Reservation<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.reserved {
            Some((manager, Reserved::Edits(cost))) => manager.release(cost),
            Some((manager, Reserved::Units(units))) => manager.reservations.consume_cached(units),
            None => {}
        }
    }
}

/// A handle of the running transaction. It delays a freeze until it is dropped.
#[derive(Debug)]
pub struct TransactionHandle<'v> {
    guard: RwLockReadGuard<'v, Arc<RunningTransaction>>,
    /// Held until the edits are counted.
    reservation: Reservation<'v>,
    /// The item edits so far. None after any other change, which then counts as the whole reservation.
    edits: Cell<Option<EditCounts>>,
    _count: HandleCount,
}

impl Drop for TransactionHandle<'_> {
    #[inline]
    fn drop(&mut self) {
        // RESERVATION-2
        if let Some(edits) = self.edits.get() {
            self.reservation.release_unused(edits);
        }
    }
}

impl TransactionManager {
    /// Joins the running transaction. Waits only for the pointer swaps of a freeze.
    #[inline]
    pub fn join_transaction<'v>(
        &'v self,
        reservation: Reservation<'v>,
    ) -> Result<TransactionHandle<'v>> {
        // RUN-2
        let guard = self.running.read();
        self.check_alive()?;
        Ok(TransactionHandle {
            guard,
            reservation,
            edits: Cell::new(Some(EditCounts::default())),
            _count: HandleCount::one_more(),
        })
    }
}

impl TransactionHandle<'_> {
    #[inline]
    pub fn transid(&self) -> Transid {
        self.guard.transid
    }

    /// Inserts an item, whose key must be absent.
    pub fn insert(&self, tree: &Arc<Tree>, key: Key, value: impl Into<Arc<[u8]>>) {
        self.edit(tree, [Edit::Insert(key, value.into())]);
    }

    /// Inserts or replaces an item.
    pub fn put(&self, tree: &Arc<Tree>, key: Key, value: impl Into<Arc<[u8]>>) {
        self.edit(tree, [Edit::Put(key, value.into())]);
    }

    /// Puts an INODE_ITEM that differs from the old one only in times.
    pub fn put_times(&self, tree: &Arc<Tree>, key: Key, value: impl Into<Arc<[u8]>>) {
        let edit = [Edit::Put(key, value.into())];
        self.edit_as(tree, edit, None, ItemChange::Times);
    }

    /// Applies several edits to one tree under one lock. They must not change names.
    pub fn edit<I>(&self, tree: &Arc<Tree>, edits: I)
    where
        I: IntoIterator<Item = Edit>,
        I::IntoIter: ExactSizeIterator,
    {
        self.edit_names(tree, edits, None);
    }

    /// Applies several edits to one tree under one lock. `names` must list all names that change.
    pub fn edit_names<I>(&self, tree: &Arc<Tree>, edits: I, names: Option<&NameChanges>)
    where
        I: IntoIterator<Item = Edit>,
        I::IntoIter: ExactSizeIterator,
    {
        self.edit_as(tree, edits, names, ItemChange::Any);
    }

    #[inline]
    fn edit_as<I>(
        &self,
        tree: &Arc<Tree>,
        edits: I,
        names: Option<&NameChanges>,
        change: ItemChange,
    ) where
        I: IntoIterator<Item = Edit>,
        I::IntoIter: ExactSizeIterator,
    {
        let edits = edits.into_iter();
        let count = edits.len() as u64;
        let grown = tree.edit(edits, names, change, self.guard.transid);
        self.guard.grew(grown, count);
        let more = EditCounts {
            items: count,
            leaves: count,
            bytes: grown.max(0).cast_unsigned(),
        };
        self.edits
            .update(|edits| edits.map(|edits| edits.and(more)));
        // The first edit of a shared leaf copies it and may add a reference for each of its extents (`worst_case`).
        if tree.shared_up_to().0 > 0 {
            self.guard.edited_shared(count);
        }
        self.guard.touch(tree);
    }

    /// Adds an extent written by this transaction. Its references are added separately.
    pub fn new_data_extent(&self, extent: DiskExtent) {
        self.edit_refs(0, |refs| refs.new_data(extent.start, extent.len));
    }

    pub fn add_data_ref(&self, extent: DiskExtent, data: DataRef) {
        self.change_data_ref(extent, data, 1);
    }

    pub fn drop_data_ref(&self, extent: DiskExtent, data: DataRef) {
        self.change_data_ref(extent, data, -1);
    }

    fn change_data_ref(&self, extent: DiskExtent, data: DataRef, delta: i64) {
        self.edit_refs(1, |refs| {
            refs.change(extent.start, extent.len, data.into(), delta, None);
        });
    }

    fn edit_refs(&self, items: u64, edit: impl FnOnce(&mut DelayedRefs)) {
        self.edits.set(None);
        let mut refs = self.guard.refs.lock();
        let before = refs.bytes() as i64;
        edit(&mut refs);
        self.guard.grew(refs.bytes() as i64 - before, items);
    }

    /// Changes the root item of `tree`, except for its root block.
    pub fn change_root_item(&self, tree: &Arc<Tree>, change: impl FnOnce(&mut RootItem)) {
        self.edits.set(None);
        // TREE-2: the commit writes the item to the root tree.
        tree.change_item(change);
        self.guard.touch(tree);
    }

    pub fn edit_superblock(&self, edit: impl FnOnce(&mut SuperblockEdits)) {
        self.edits.set(None);
        edit(&mut self.guard.superblock.lock());
    }

    /// Makes the commit create the missing UUID tree with these items.
    pub fn make_uuid_tree(&self, puts: Puts) {
        self.edits.set(None);
        self.guard.uuids.lock().extend(puts);
    }

    /// Makes the commit create a subvolume.
    pub fn queue_subvolume(&self, pending: PendingSubvolume) {
        self.edits.set(None);
        // These trees must take part in the freeze, so that the commit gets their root items as of that moment.
        self.guard.touch(&pending.dir_tree);
        if let Origin::Snapshot(source) = &pending.origin {
            self.guard.touch(source);
        }
        self.guard.queue_subvolume(pending);
    }
}

//! Deletes an inode that has no name and no holder, in bounded steps.
//!
//! The last step deletes its ORPHAN_ITEM. After an interruption the next mount deletes the rest.

use std::sync::Arc;

use ubtrfs_format::ids::{InodeNr, Logical, RootId};
use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::{
    DataRef, DiskExtent, EditEstimate, FREEING_ITEMS, Reservation, TransactionHandle, lock,
};
use ubtrfs_tree::Edit;

use super::inode_item::{decode, inode_key};
use super::orphan::orphan_key;
use super::{Inode, InodeState, Inodes};
use crate::error::{CorruptItem, Error, Result};

/// An inode with at most this many items is evicted at once.
pub(crate) const EVICTED_AT_ONCE: usize = FREEING_ITEMS as usize - NAME_EDITS;
/// Edits of one name, its back references, and its directory.
pub(crate) const NAME_EDITS: usize = 8;

/// The most items that one step deletes.
const STEP: usize = 256;
/// The most items that one step deletes on a full volume.
const STEP_WHEN_FULL: usize = FREEING_ITEMS as usize - STEP_EDITS;
/// The ORPHAN_ITEM and the INODE_ITEM.
const STEP_EDITS: usize = 2;

/// Items to delete, and their data references.
#[derive(Debug, Default)]
pub(crate) struct ItemDeletions {
    pub(crate) keys: Vec<Key>,
    refs: Vec<(DiskExtent, DataRef)>,
    /// The sum of their `nbytes`.
    nbytes: u64,
}

impl ItemDeletions {
    /// Adds an item of `inode`.
    pub(crate) fn add(&mut self, inode: &Inode, key: Key, bytes: &[u8]) -> Result<()> {
        self.keys.push(key);
        if key.item_type != KeyType::EXTENT_DATA {
            return Ok(());
        }
        let extent = FileExtent::decode(bytes).ok_or(Error::Corrupt {
            tree: inode.id.root,
            key,
            what: CorruptItem::Undecodable,
        })?;
        let FileExtent::Regular { body, .. } = extent else {
            self.nbytes = self.nbytes.saturating_add(extent.num_bytes());
            return Ok(());
        };
        let Some(start) = body.disk() else {
            return Ok(());
        };
        self.nbytes = self.nbytes.saturating_add(extent.num_bytes());
        let extent = DiskExtent {
            start: Logical(start.0),
            len: body.disk_num_bytes.get(),
        };
        let data = DataRef {
            root: inode.id.root,
            ino: inode.id.ino,
            offset: key.offset.wrapping_sub(body.offset.get()),
        };
        self.refs.push((extent, data));
        Ok(())
    }

    /// Drops the data references of the items. The caller deletes the items.
    pub(crate) fn drop_refs(&self, txn: &TransactionHandle<'_>) {
        for (extent, data) in &self.refs {
            txn.drop_data_ref(*extent, *data);
        }
    }
}

/// Returns all items of an inode, or None if there are more than `most`.
pub(crate) fn all_items(inode: &Inode, most: usize) -> Result<Option<ItemDeletions>> {
    let InodeNr(ino) = inode.id.ino;
    let keys = Key::new(ino, KeyType(0), 0)..=Key::new(ino, KeyType(u8::MAX), u64::MAX);
    let Some(items) = inode.tree.view.few_items(keys, most)? else {
        return Ok(None);
    };
    let mut deletions = ItemDeletions::default();
    for item in items {
        deletions.add(inode, item.key(), &item)?;
    }
    Ok(Some(deletions))
}

impl Inodes {
    /// Deletes an inode without a name, unless it has a hold again or its subvolume was deleted.
    pub(crate) fn evict(&self, inode: &Arc<Inode>) -> Result<()> {
        while inode.tree.check_alive().is_ok() {
            // Reserve before taking locks: reclaiming space may evict or write back other inodes.
            let (reservation, step) = self.reserve_step(inode.id.root)?;
            let _extents = inode.extents.lock()?;
            let mut state = lock::write(&inode.lock)?;
            if state.open_count > 0 {
                return Ok(());
            }
            let Some(bytes) = inode.tree.view.get(&inode_key(inode.id.ino))? else {
                return Ok(());
            };
            let mut item = decode(inode.id, &bytes)?;
            if item.nlink.get() != 0 {
                return Ok(());
            }
            self.discard_buffer(&mut state);
            let (mut deletions, rest) = last_items(inode, step)?;
            let txn = self.join_transaction(reservation)?;
            inode.tree.check_alive()?;
            deletions.drop_refs(&txn);
            if !rest {
                deletions.keys.push(orphan_key(inode.id.ino));
                txn.edit(&inode.tree, deletions.keys.drain(..).map(Edit::Delete));
                return Ok(());
            }
            // The size shrinks with the extents.
            if let Some(lowest) = deletions.keys.last()
                && lowest.item_type == KeyType::EXTENT_DATA
            {
                item.size = item.size.get().min(lowest.offset).into();
            }
            item.nbytes = item.nbytes.get().saturating_sub(deletions.nbytes).into();
            item.transid = txn.transid().0.into();
            let put = Edit::Put(
                inode_key(inode.id.ino),
                zerocopy::IntoBytes::as_bytes(&item).into(),
            );
            let mut edits: Vec<Edit> = deletions.keys.drain(..).map(Edit::Delete).collect();
            edits.push(put);
            txn.edit(&inode.tree, edits);
        }
        Ok(())
    }

    /// Reserves metadata for a step. Also returns the most items that the step may delete.
    fn reserve_step(&self, subvolume: RootId) -> Result<(Reservation<'_>, usize)> {
        let cost = |step: usize| {
            EditEstimate::neighbours((step + STEP_EDITS) as u64).with_global_reserve()
        };
        let step = if self.transactions()?.fits_now(cost(STEP)) {
            STEP
        } else {
            STEP_WHEN_FULL
        };
        Ok((self.reserve_metadata(subvolume, cost(step))?, step))
    }

    /// Discards the buffered data of a deleted inode.
    pub(crate) fn discard_buffer(&self, state: &mut InodeState) {
        state.buffer = Default::default();
    }
}

/// Returns the last items of an inode, at most `most`, in descending order, and whether there are more. The
/// INODE_ITEM is thus deleted last.
fn last_items(inode: &Inode, most: usize) -> Result<(ItemDeletions, bool)> {
    let InodeNr(ino) = inode.id.ino;
    let mut deletions = ItemDeletions::default();
    let mut cursor = inode.tree.view.cursor();
    let mut more = cursor.seek_floor(&Key::new(ino, KeyType(u8::MAX), u64::MAX))?;
    while more
        && let Some((key, bytes)) = cursor.current()
        && key.objectid == ino
    {
        if deletions.keys.len() == most {
            return Ok((deletions, true));
        }
        deletions.add(inode, key, bytes)?;
        more = cursor.retreat()?;
    }
    Ok((deletions, false))
}

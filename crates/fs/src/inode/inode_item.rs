//! The INODE_ITEM: reading it, and the updates that all changes of an inode share.

use ubtrfs_format::ids::InodeNr;
use ubtrfs_format::item::{FileKind, FileTime, InodeItem, Timespec};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::roots::{Ticket, Tree};
use ubtrfs_storage::{FileId, TransactionHandle};
use ubtrfs_tree::View;
use zerocopy::{FromBytes, IntoBytes};

use super::Inode;
use super::draft::{Draft, Stamps};
use crate::error::{CorruptItem, Error, Result};

pub(crate) fn inode_key(ino: InodeNr) -> Key {
    Key::new(ino.0, KeyType::INODE_ITEM, 0)
}

/// Reads the item of an inode that must exist.
pub(crate) fn read_inode(view: &View, id: FileId) -> Result<InodeItem> {
    let key = inode_key(id.ino);
    match view.get(&key)? {
        Some(bytes) => decode(id, &bytes),
        None => Err(Error::NoSuchInode(id)),
    }
}

/// Returns the item of an inode that must exist, from the cache if possible. Inlined, because a call would
/// copy the item again.
#[inline]
pub(crate) fn inode_item_cached(tree: &Tree, id: FileId) -> Result<InodeItem> {
    match tree.inode_items.get(id.root, id.ino.0) {
        Ok(item) => Ok(item),
        Err(ticket) => read_and_cache(tree, id, ticket),
    }
}

/// Calls `look` with the item of an inode that must exist, without copying the item.
#[inline]
pub(crate) fn look_at_inode<T>(
    tree: &Tree,
    id: FileId,
    look: impl Fn(&InodeItem) -> T,
) -> Result<T> {
    match tree.inode_items.look(id.root, id.ino.0, &look) {
        Ok(seen) => Ok(seen),
        Err(ticket) => Ok(look(&read_and_cache(tree, id, ticket)?)),
    }
}

#[cold]
fn read_and_cache(tree: &Tree, id: FileId, ticket: Ticket) -> Result<InodeItem> {
    let item = read_inode(&tree.view, id)?;
    tree.inode_items.enter(ticket, id.root, id.ino.0, &item);
    Ok(item)
}

pub(crate) fn decode(id: FileId, bytes: &[u8]) -> Result<InodeItem> {
    match InodeItem::read_from_prefix(bytes) {
        Ok((item, _)) => Ok(item),
        Err(_) => Err(corrupt(id, CorruptItem::Undecodable)),
    }
}

/// Returns the file type of an inode.
pub(crate) fn kind_of(id: FileId, item: &InodeItem) -> Result<FileKind> {
    let mode = item.mode.get();
    FileKind::from_mode(mode).ok_or_else(|| corrupt(id, CorruptItem::Mode(mode)))
}

fn corrupt(id: FileId, what: CorruptItem) -> Error {
    Error::Corrupt {
        tree: id.root,
        key: inode_key(id.ino),
        what,
    }
}

const TRANSID_AT: u16 = std::mem::offset_of!(InodeItem, transid) as u16;
const GENERATION_AT: u16 = std::mem::offset_of!(InodeItem, generation) as u16;

impl Draft<'_> {
    /// Returns the item of an inode that must exist.
    #[inline]
    pub(crate) fn inode(&mut self, id: FileId) -> Result<InodeItem> {
        match self.drafted(&inode_key(id.ino)) {
            Some(Some(bytes)) => decode(id, bytes),
            Some(None) => Err(Error::NoSuchInode(id)),
            None => inode_item_cached(self.tree(), id),
        }
    }

    /// Replaces the item of an existing inode.
    pub(crate) fn put_inode(&mut self, ino: InodeNr, item: &InodeItem) {
        self.put(inode_key(ino), item.as_bytes(), Stamps::at(TRANSID_AT));
    }

    pub(crate) fn insert_inode(&mut self, ino: InodeNr, item: &InodeItem) {
        let stamps = Stamps::at_both(GENERATION_AT, TRANSID_AT);
        self.insert(inode_key(ino), item.as_bytes(), stamps);
    }
}

/// Updates the ctime and sequence for a change other than to the contents.
pub(crate) fn note_change(item: &mut InodeItem, now: FileTime) {
    item.ctime = Timespec::from(now);
    item.sequence = item.sequence.get().wrapping_add(1).into();
}

/// Replaces the item of an inode.
pub(crate) fn put_inode(txn: &TransactionHandle<'_>, inode: &Inode, item: &mut InodeItem) {
    item.transid = txn.transid().0.into();
    txn.put(&inode.tree, inode_key(inode.id.ino), item.as_bytes());
}

/// Replaces the item of an inode that differs only in times, or keeps the times in memory.
pub(crate) fn note_times(txn: &TransactionHandle<'_>, inode: &Inode, item: &mut InodeItem) {
    if !inode.tree.inode_items.lazy.keep(inode.id, item) {
        item.transid = txn.transid().0.into();
        txn.put_times(&inode.tree, inode_key(inode.id.ino), item.as_bytes());
    }
}

/// Updates a directory for an added or removed entry with a name of `name_len` bytes.
pub(crate) fn note_entry(dir: &mut InodeItem, now: FileTime, change: EntryChange, name_len: usize) {
    let bytes = 2 * name_len as u64;
    let size = dir.size.get();
    dir.size = match change {
        EntryChange::Added => size.saturating_add(bytes),
        EntryChange::Removed => size.saturating_sub(bytes),
    }
    .into();
    dir.mtime = Timespec::from(now);
    note_change(dir, now);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryChange {
    Added,
    Removed,
}

//! The item changes of one operation to one tree, before they enter the running transaction.
//!
//! Reads through a draft return drafted changes. An operation may therefore change an item more than once;
//! for example, names with colliding hashes share an item. The transid is not known until the transaction is
//! joined. Each value therefore has stamps: the offsets where `enter` fills the transid in.
//!
//! Invariants
//! - DRAFT-1: a draft has at most one change per key, and knows whether the tree has the key.
//! - DRAFT-2: the name that changes is noted with every draft of a DIR_ITEM.
//!
//! Locks: takes no locks. The inodes of the drafted items stay locked until the draft has entered.
//! Not here: the meaning of the items (`inode_item`, `entry`, `back_ref`, `xattr`).

use std::ops::Deref;
use std::sync::Arc;

use ubtrfs_format::ids::{InodeNr, Transid};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::roots::{Name, NameChanges, Tree};
use ubtrfs_storage::{EditTarget, Puts, TransactionHandle};
use ubtrfs_tree::{Edit, Item};

use crate::error::Result;

// The drafted changes to one tree.
#[derive(Debug)]
pub(crate) struct Draft<'t> {
    tree: &'t Arc<Tree>,
    /// Whether the items are for a tree that does not exist yet.
    for_new_tree: bool,
    /// Items found in the tree. They stay valid while the inodes are locked.
    seen: Vec<(Key, Option<Item>)>,
    changes: Vec<Change>,
    names: NameChanges,
}

#[derive(Debug)]
struct Change {
    key: Key,
    /// Whether the tree has the key.
    there: bool,
    /// None deletes the item, which is then in the tree.
    value: Option<Arc<[u8]>>,
    stamps: Stamps,
}

impl Change {
    /// Converts it into an edit by transaction `transid`.
    #[inline]
    fn into_edit(self, transid: Transid) -> Edit {
        let Change {
            key,
            there,
            value,
            stamps,
        } = self;
        let Some(mut value) = value else {
            return Edit::Delete(key);
        };
        if stamps.len > 0 {
            let transid = transid.0.to_le_bytes();
            let bytes = Arc::make_mut(&mut value);
            for offset in stamps.iter() {
                bytes[offset..offset + 8].copy_from_slice(&transid);
            }
        }
        if there {
            Edit::Put(key, value)
        } else {
            Edit::Insert(key, value)
        }
    }
}

/// An item's bytes, drafted or in the tree.
#[derive(Clone, Debug)]
pub(crate) enum Bytes {
    Drafted(Arc<[u8]>),
    Stored(Item),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Drafted(bytes) => bytes,
            Bytes::Stored(item) => item,
        }
    }
}

/// The offsets in a value where the 8-byte transid is filled in. No operation needs more than two per item.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamps {
    offsets: [u16; 2],
    len: u8,
}

impl Stamps {
    pub(crate) const NONE: Stamps = Stamps {
        offsets: [0; 2],
        len: 0,
    };

    pub(crate) const fn at(offset: u16) -> Stamps {
        Stamps {
            offsets: [offset, 0],
            len: 1,
        }
    }

    pub(crate) const fn at_both(first: u16, second: u16) -> Stamps {
        Stamps {
            offsets: [first, second],
            len: 2,
        }
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        self.offsets[..usize::from(self.len)]
            .iter()
            .map(|&offset| usize::from(offset))
    }

    fn add(&mut self, offset: usize) {
        self.offsets[usize::from(self.len)] = offset as u16;
        self.len += 1;
    }

    /// Returns the stamps after cutting out `len` bytes at `start`.
    fn cut(&self, start: usize, len: usize) -> Stamps {
        let mut left = Stamps::NONE;
        for offset in self.iter() {
            if offset < start {
                left.add(offset);
            } else if offset >= start + len {
                left.add(offset - len);
            }
        }
        left
    }
}

impl<'t> Draft<'t> {
    pub(crate) fn new(tree: &'t Arc<Tree>) -> Draft<'t> {
        Draft {
            tree,
            for_new_tree: false,
            seen: Vec::with_capacity(8),
            changes: Vec::with_capacity(8),
            names: NameChanges::default(),
        }
    }

    /// Creates the draft of the first items of a new subvolume. `parent` is the tree of its directory.
    pub(crate) fn for_new_tree(parent: &'t Arc<Tree>) -> Draft<'t> {
        Draft {
            for_new_tree: true,
            ..Draft::new(parent)
        }
    }

    /// Notes that the entry `name` of `dir` changes to `location`.
    pub(crate) fn note_name(&mut self, dir: InodeNr, name: &[u8], location: Option<Key>) {
        let inode = location.filter(|location| location.item_type == KeyType::INODE_ITEM);
        let inode = inode.map(|location| InodeNr(location.objectid));
        if let Some(name) = Name::new(self.tree.id(), dir, name) {
            self.tree.names.touch(&name);
            self.names.note(name, inode);
        }
    }

    pub(crate) fn tree(&self) -> &'t Arc<Tree> {
        self.tree
    }

    /// Returns the drafted state of a key, if there is one. In a tree that does not exist yet, other keys
    /// have no item.
    pub(crate) fn drafted(&self, key: &Key) -> Option<Option<&[u8]>> {
        match self.changes.iter().find(|change| change.key == *key) {
            Some(change) => Some(change.value.as_deref()),
            None => self.for_new_tree.then_some(None),
        }
    }

    /// Returns the item including drafted changes.
    pub(crate) fn get(&mut self, key: &Key) -> Result<Option<Bytes>> {
        if let Some(change) = self.changes.iter().find(|change| change.key == *key) {
            return Ok(change.value.clone().map(Bytes::Drafted));
        }
        if self.for_new_tree {
            return Ok(None);
        }
        if let Some((_, item)) = self.seen.iter().find(|(seen, _)| seen == key) {
            return Ok(item.clone().map(Bytes::Stored));
        }
        let item = self.tree.view.get(key)?;
        self.seen.push((*key, item.clone()));
        Ok(item.map(Bytes::Stored))
    }

    /// Inserts an item whose key is neither in the tree nor in the draft.
    pub(crate) fn insert(&mut self, key: Key, value: impl Into<Arc<[u8]>>, stamps: Stamps) {
        match self.change(&key) {
            // It was drafted as deleted.
            Some(change) => {
                debug_assert!(change.value.is_none(), "{key} is there");
                change.value = Some(value.into());
                change.stamps = stamps;
            }
            None => self.push(key, false, Some(value.into()), stamps),
        }
    }

    /// Replaces the value of an item that [`Draft::get`] found.
    pub(crate) fn put(&mut self, key: Key, value: impl Into<Arc<[u8]>>, stamps: Stamps) {
        match self.change(&key) {
            // DRAFT-1
            Some(change) => {
                change.value = Some(value.into());
                change.stamps = stamps;
            }
            None => self.push(key, true, Some(value.into()), stamps),
        }
    }

    /// Deletes an item that [`Draft::get`] found.
    pub(crate) fn delete(&mut self, key: Key) {
        match self.changes.iter().position(|change| change.key == key) {
            Some(at) if self.changes[at].there => self.changes[at].value = None,
            // It was only drafted: the tree does not have it.
            Some(at) => {
                self.changes.swap_remove(at);
            }
            None => self.push(key, true, None, Stamps::NONE),
        }
    }

    /// Appends `record` to the item at `key`, or inserts the item. `old` is the result of `get`. `stamp` is
    /// the offset of the transid in the record.
    pub(crate) fn append(
        &mut self,
        key: Key,
        old: Option<&Bytes>,
        record: &[u8],
        stamp: Option<u16>,
    ) {
        let Some(old) = old else {
            let stamps = stamp.map_or(Stamps::NONE, Stamps::at);
            return self.insert(key, record, stamps);
        };
        let mut stamps = self.stamps(&key);
        if let Some(stamp) = stamp {
            stamps.add(old.len() + usize::from(stamp));
        }
        self.put(key, [&**old, record].concat(), stamps);
    }

    /// Cuts `len` bytes at `start` out of the item. Deletes the item if nothing is left. `old` is the result
    /// of `get`.
    pub(crate) fn cut(&mut self, key: Key, old: &Bytes, start: usize, len: usize) {
        if len == old.len() {
            return self.delete(key);
        }
        let stamps = self.stamps(&key).cut(start, len);
        self.put(key, [&old[..start], &old[start + len..]].concat(), stamps);
    }

    fn stamps(&self, key: &Key) -> Stamps {
        let drafted = self.changes.iter().find(|change| change.key == *key);
        drafted.map_or(Stamps::NONE, |change| change.stamps)
    }

    fn change(&mut self, key: &Key) -> Option<&mut Change> {
        self.changes.iter_mut().find(|change| change.key == *key)
    }

    fn push(&mut self, key: Key, there: bool, value: Option<Arc<[u8]>>, stamps: Stamps) {
        // DRAFT-1: only for keys that `change` has not found.
        self.changes.push(Change {
            key,
            there,
            value,
            stamps,
        });
    }

    /// Applies all changes in the running transaction, atomically.
    pub(crate) fn enter(self, txn: &TransactionHandle<'_>) {
        let transid = txn.transid();
        let edits = self.changes.into_iter();
        let edits = edits.map(|change| change.into_edit(transid));
        txn.edit_names(self.tree, edits, Some(&self.names));
    }

    /// Applies all changes to `target`, atomically.
    pub(crate) fn enter_into(self, target: &dyn EditTarget) {
        let transid = target.transid();
        let edits = self.changes.into_iter();
        let edits = edits.map(|change| change.into_edit(transid)).collect();
        target.edit_items(self.tree, edits, Some(&self.names));
    }

    /// Converts the draft of a new subvolume into its items, by ascending key. Such a draft deletes nothing.
    pub(crate) fn into_puts(self, txn: &TransactionHandle<'_>) -> Puts {
        let transid = txn.transid().0.to_le_bytes();
        let put = |change: Change| {
            let mut value = change.value?.to_vec();
            for offset in change.stamps.iter() {
                value[offset..offset + 8].copy_from_slice(&transid);
            }
            Some((change.key, value))
        };
        let mut puts: Puts = self.changes.into_iter().filter_map(put).collect();
        puts.sort_unstable_by_key(|(key, _)| *key);
        puts
    }
}

//! The items of logged inodes that changed since they were logged.
//!
//! An fsync therefore reads only the new changes, even if the transaction has changed many items of the inode.
//!
//! Invariants
//! - LOG-JOURNAL-1: the journal contains each item of a logged inode that was edited after the inode was last logged,
//!   until the transaction is committed.
//!
//! Locks: a leaf. The transaction handle that makes an edit records it.
//! Not here: the contents of a log.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use ubtrfs_format::key::{Key, KeyType};

use crate::file_id::IdHasher;

/// The journal of one subvolume.
#[derive(Debug, Default)]
pub struct LogJournal {
    /// Whether any inode is logged. If not, edits cost nothing here.
    is_active: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Logged inodes, with the keys of their items edited since, except for names.
    inodes: HashMap<u64, BTreeSet<Key>, BuildHasherDefault<IdHasher>>,
    /// Keys of names: INODE_REF, INODE_EXTREF, DIR_INDEX.
    names: BTreeSet<Key>,
}

impl LogJournal {
    /// Adds edited keys.
    pub(super) fn note(&self, keys: impl IntoIterator<Item = Key>) {
        let mut state = self.state.lock();
        for key in keys {
            let State { inodes, names } = &mut *state;
            let Some(items) = inodes.get_mut(&key.objectid) else {
                continue;
            };
            // LOG-JOURNAL-1
            if is_name(key.item_type) {
                names.insert(key)
            } else {
                items.insert(key)
            };
        }
    }

    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// Returns all names changed since [`LogJournal::logged_names`], ascending.
    pub fn names(&self) -> Vec<Key> {
        self.state.lock().names.iter().copied().collect()
    }

    /// Returns the keys of an inode's other items that changed since it was logged.
    pub fn items_of(&self, ino: u64) -> Vec<Key> {
        let state = self.state.lock();
        let items = state.inodes.get(&ino).into_iter().flatten();
        items.copied().collect()
    }

    /// Clears the names, because the log contains all of them now.
    pub fn logged_names(&self) {
        self.state.lock().names.clear();
    }

    /// Begins to record edits of these inodes. The log contains their earlier edits, except for names.
    pub fn logged_items(&self, inodes: impl IntoIterator<Item = u64>) {
        let mut state = self.state.lock();
        for ino in inodes {
            state.inodes.entry(ino).or_default().clear();
        }
        self.is_active.store(true, Ordering::Release);
    }

    /// Clears the journal, because the log is void and no inode is logged.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        self.is_active.store(false, Ordering::Release);
        *state = State::default();
    }
}

fn is_name(item_type: KeyType) -> bool {
    matches!(
        item_type,
        KeyType::INODE_REF | KeyType::INODE_EXTREF | KeyType::DIR_INDEX
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(ino: u64, item_type: KeyType) -> Key {
        Key::new(ino, item_type, 7)
    }

    /// LOG-JOURNAL-1
    #[test]
    fn edits_of_logged_inodes_are_noted_until_they_are_logged() {
        let journal = LogJournal::default();
        journal.logged_items([300]);
        let edits = [300, 301].map(|ino| {
            [
                key(ino, KeyType::INODE_ITEM),
                key(ino, KeyType::INODE_REF),
                key(ino, KeyType::EXTENT_DATA),
            ]
        });
        journal.note(edits.into_iter().flatten());
        let items = [KeyType::INODE_ITEM, KeyType::EXTENT_DATA].map(|kind| key(300, kind));
        assert_eq!(journal.items_of(300), items);
        assert_eq!(journal.items_of(301), []);
        assert_eq!(journal.names(), [key(300, KeyType::INODE_REF)]);
        journal.logged_items([300]);
        assert_eq!(journal.items_of(300), []);
        journal.logged_names();
        assert!(journal.names().is_empty());
        assert!(journal.is_active());
        journal.end();
        assert!(!journal.is_active());
        journal.note([key(300, KeyType::INODE_ITEM)]);
        assert_eq!(journal.items_of(300), []);
    }
}

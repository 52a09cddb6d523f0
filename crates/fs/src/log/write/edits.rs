//! Pending edits of a log, over its current items.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::LogSession;
use ubtrfs_storage::roots::Tree;

/// The log of a subvolume with pending edits, which may be discarded.
pub(super) struct LogEdits<'g> {
    session: &'g LogSession<'g>,
    subvolume: RootId,
    edits: BTreeMap<Key, Option<Arc<[u8]>>>,
}

/// Pending edits of a log.
pub(super) struct Edits(BTreeMap<Key, Option<Arc<[u8]>>>);

impl<'g> LogEdits<'g> {
    pub(super) fn new(session: &'g LogSession<'g>, subvolume: RootId) -> LogEdits<'g> {
        LogEdits {
            session,
            subvolume,
            edits: BTreeMap::new(),
        }
    }

    pub(super) fn transid(&self) -> u64 {
        self.session.transid().0
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<[u8]>> {
        match self.edits.get(key) {
            Some(edit) => edit.as_ref(),
            None => self.session.get(self.subvolume, key),
        }
    }

    pub(super) fn put(&mut self, key: Key, item: impl Into<Arc<[u8]>>) {
        self.edits.insert(key, Some(item.into()));
    }

    pub(super) fn delete(&mut self, key: Key) {
        match self.session.get(self.subvolume, &key) {
            Some(_) => self.edits.insert(key, None),
            None => self.edits.remove(&key),
        };
    }

    /// Returns the items in a range of keys, in ascending order.
    pub(super) fn items_in(&self, range: RangeInclusive<Key>) -> Vec<(Key, Arc<[u8]>)> {
        let of_log = self.session.items_in(self.subvolume, range.clone());
        let unchanged = of_log.filter(|(key, _)| !self.edits.contains_key(key));
        let mut items: Vec<_> = unchanged
            .map(|(key, item)| (*key, Arc::clone(item)))
            .collect();
        let edited = self.edits.range(range);
        items.extend(edited.filter_map(|(key, item)| Some((*key, Arc::clone(item.as_ref()?)))));
        items.sort_unstable_by_key(|(key, _)| *key);
        items
    }

    /// Returns the last item in a range of keys.
    pub(super) fn last_in(&self, range: RangeInclusive<Key>) -> Option<(Key, Arc<[u8]>)> {
        let of_log = self.session.items_in(self.subvolume, range.clone()).rev();
        let of_log = of_log
            .filter(|(key, _)| !self.edits.contains_key(key))
            .map(|(key, item)| (*key, Arc::clone(item)))
            .next();
        let edited = self.edits.range(range).rev();
        let edited = edited
            .filter_map(|(key, item)| Some((*key, Arc::clone(item.as_ref()?))))
            .next();
        [of_log, edited]
            .into_iter()
            .flatten()
            .max_by_key(|(key, _)| *key)
    }

    /// Returns the inserted and replaced items.
    pub(super) fn put_items(&self) -> impl Iterator<Item = (&Key, &Arc<[u8]>)> {
        let edits = self.edits.iter();
        edits.filter_map(|(key, item)| Some((key, item.as_ref()?)))
    }

    pub(super) fn into_edits(self) -> Edits {
        Edits(self.edits)
    }
}

impl Edits {
    pub(super) fn enter(self, tree: &Arc<Tree>, session: &mut LogSession<'_>) {
        for (key, item) in self.0 {
            match item {
                Some(item) => session.put(tree, key, item),
                None => session.delete(tree.id(), key),
            }
        }
    }
}

/// Returns the range of an inode's keys with the given types.
pub(super) fn keys_of(ino: u64, types: RangeInclusive<KeyType>) -> RangeInclusive<Key> {
    Key::new(ino, *types.start(), 0)..=Key::new(ino, *types.end(), u64::MAX)
}

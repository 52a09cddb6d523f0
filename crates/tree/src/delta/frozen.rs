//! The changes of one tree in the committing transaction.

use std::ops::RangeInclusive;
use std::sync::Arc;

use ubtrfs_format::key::Key;

use super::{DeltaMap, Entry};
use crate::apply::Change;

/// A set that accepts no more edits.
#[derive(Debug)]
pub struct FrozenSet {
    map: Arc<DeltaMap>,
}

impl FrozenSet {
    pub(crate) fn new(map: Arc<DeltaMap>) -> FrozenSet {
        FrozenSet { map }
    }

    /// Returns whether `set` is the only reference to the map, so that dropping it frees all of the map.
    pub fn is_last(set: &Arc<FrozenSet>) -> bool {
        Arc::strong_count(set) == 1 && Arc::strong_count(&set.map) == 1
    }

    pub fn len(&self) -> usize {
        self.map.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.map.slots.is_empty()
    }

    /// Returns the memory size, counted as in [`super::DeltaSize`].
    pub fn bytes(&self) -> u64 {
        self.map.bytes
    }

    /// Returns the set's entry for `key`: `None` without one, `Some(None)` for a whiteout, or a value.
    pub fn get(&self, key: &Key) -> Option<Option<&[u8]>> {
        self.map.get(key).map(|entry| entry.as_deref())
    }

    /// Iterates over the entries in key order. None is a whiteout.
    pub fn iter(&self) -> impl Iterator<Item = (Key, Option<&[u8]>)> {
        self.map
            .slots
            .iter()
            .map(|(key, slot)| (*key, slot.value.as_deref()))
    }

    /// Returns the batch for [`crate::apply`].
    pub fn changes(&self) -> Vec<Change<'_>> {
        self.iter().map(Change::from).collect()
    }

    pub(crate) fn entry(&self, key: &Key) -> Option<&Entry> {
        self.map.get(key)
    }

    /// Returns whether there is an entry in a range of keys.
    pub(crate) fn has_within(&self, keys: &RangeInclusive<Key>) -> bool {
        self.map.within(keys.clone(), 1).next().is_some()
    }

    pub(crate) fn above(&self, key: Key, most: usize, out: &mut impl Extend<(Key, Entry)>) {
        let entries = self.map.above(key, most);
        out.extend(entries.map(|(key, entry)| (key, entry.clone())));
    }

    pub(crate) fn below(&self, key: Key, most: usize, out: &mut impl Extend<(Key, Entry)>) {
        let entries = self.map.below(key, most);
        out.extend(entries.map(|(key, entry)| (key, entry.clone())));
    }
}

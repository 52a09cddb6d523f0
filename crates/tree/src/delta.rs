//! Changes that the on-disk tree does not have yet: a sorted map of values and whiteouts.
//!
//! A tree is read as a stack: mutable set, then at most one frozen set, then the committed root. The newest set that
//! has a key wins.
//!
//! Invariants
//! - DELTA-1: a key is in a set once, as a value or as a whiteout.
//! - DELTA-2: a frozen set is never edited; it is the mutable set's map, handed over, not a copy.
//! - DELTA-3: a whiteout exists only where a lower set may hold the key, and in memory only: `apply` turns each into
//!   a deletion.
//!
//! Locks: each mutable set has a leaf lock. It is held for one look-up or for the edits of one call, never across IO.
//! Not here: the stack (`live`), merging it (`cursor`), when to freeze (the commit).

mod frozen;
mod gaps;
mod mutable;
mod walk;

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

use ubtrfs_format::key::Key;

pub use frozen::FrozenSet;
pub(crate) use mutable::MutableSet;
pub(crate) use walk::{Direction, Overlay};

/// A change of one key. The methods of [`crate::LiveTree`] describe the precondition of each variant.
#[derive(Clone, Debug)]
pub enum Edit {
    Insert(Key, Arc<[u8]>),
    Put(Key, Arc<[u8]>),
    Delete(Key),
}

impl Edit {
    #[inline]
    pub fn key(&self) -> Key {
        match self {
            Edit::Insert(key, _) | Edit::Put(key, _) | Edit::Delete(key) => *key,
        }
    }
}

/// The size of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeltaSize {
    pub entries: usize,
    /// Memory of the keys and values, including an estimate of the map's overhead.
    pub bytes: u64,
}

impl Edit {
    /// Returns the key that is visible after the edit, or None for a deletion.
    fn added(&self) -> Option<&Key> {
        match self {
            Edit::Insert(key, _) | Edit::Put(key, _) => Some(key),
            Edit::Delete(_) => None,
        }
    }
}

/// A value, or None for a whiteout.
pub(crate) type Entry = Option<Arc<[u8]>>;

/// An entry's key and slot in the map, whose nodes are two thirds full on average.
const ENTRY_BYTES: u64 = (size_of::<Key>() + size_of::<Slot>()) as u64 * 3 / 2;
/// A value's reference counts and the allocator's overhead.
const VALUE_BYTES: u64 = 32;

#[derive(Clone, Debug)]
struct Slot {
    value: Entry,
    /// Whether a lower set may hold the key.
    lower: bool,
}

impl Slot {
    fn bytes(&self) -> u64 {
        let value = self.value.as_ref();
        ENTRY_BYTES + value.map_or(0, |value| value.len() as u64 + VALUE_BYTES)
    }
}

/// The sorted map of a set, mutable at first and then frozen.
#[derive(Debug, Default)]
pub(crate) struct DeltaMap {
    slots: BTreeMap<Key, Slot>,
    bytes: u64,
}

impl DeltaMap {
    fn size(&self) -> DeltaSize {
        DeltaSize {
            entries: self.slots.len(),
            bytes: self.bytes,
        }
    }

    fn get(&self, key: &Key) -> Option<&Entry> {
        self.slots.get(key).map(|slot| &slot.value)
    }

    fn edit(&mut self, edit: Edit) {
        match edit {
            Edit::Insert(key, value) => self.insert(key, value),
            Edit::Put(key, value) => self.put(key, value),
            Edit::Delete(key) => self.delete(key),
        }
    }

    fn insert(&mut self, key: Key, value: Arc<[u8]>) {
        match self.slots.entry(key) {
            btree_map::Entry::Vacant(vacant) => {
                let slot = Slot {
                    value: Some(value),
                    lower: false,
                };
                self.bytes += vacant.insert(slot).bytes();
            }
            btree_map::Entry::Occupied(mut occupied) => {
                let slot = occupied.get_mut();
                // DELTA-1
                assert!(slot.value.is_none(), "{key} was inserted but is there");
                self.bytes -= slot.bytes();
                slot.value = Some(value);
                self.bytes += slot.bytes();
            }
        }
    }

    fn put(&mut self, key: Key, value: Arc<[u8]>) {
        let slot = self.slots.entry(key).or_insert_with(|| {
            self.bytes += ENTRY_BYTES;
            Slot {
                value: None,
                lower: true,
            }
        });
        self.bytes -= slot.bytes();
        slot.value = Some(value);
        self.bytes += slot.bytes();
    }

    fn delete(&mut self, key: Key) {
        match self.slots.entry(key) {
            btree_map::Entry::Vacant(vacant) => {
                let slot = Slot {
                    value: None,
                    lower: true,
                };
                self.bytes += vacant.insert(slot).bytes();
            }
            btree_map::Entry::Occupied(mut occupied) => {
                self.bytes -= occupied.get().bytes();
                // DELTA-3
                if occupied.get().lower {
                    occupied.get_mut().value = None;
                    self.bytes += occupied.get().bytes();
                } else {
                    occupied.remove();
                }
            }
        }
    }

    /// Returns up to `most` entries at or above `key`, ascending.
    fn above(&self, key: Key, most: usize) -> impl Iterator<Item = (Key, &Entry)> {
        self.slots
            .range(key..)
            .map(|(key, slot)| (*key, &slot.value))
            .take(most)
    }

    /// Returns up to `most` entries in a range of keys, ascending.
    fn within(
        &self,
        range: RangeInclusive<Key>,
        most: usize,
    ) -> impl Iterator<Item = (Key, &Entry)> {
        self.slots
            .range(range)
            .map(|(key, slot)| (*key, &slot.value))
            .take(most)
    }

    /// Returns up to `most` entries at or below `key`, descending.
    fn below(&self, key: Key, most: usize) -> impl Iterator<Item = (Key, &Entry)> {
        self.slots
            .range((Bound::Unbounded, Bound::Included(key)))
            .rev()
            .map(|(key, slot)| (*key, &slot.value))
            .take(most)
    }
}

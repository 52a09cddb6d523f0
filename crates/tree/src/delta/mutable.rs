//! The changes of one tree in the running transaction.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;
use ubtrfs_format::key::Key;

use super::gaps::Gaps;
use super::{DeltaMap, DeltaSize, Edit, Entry, FrozenSet};

#[cfg(test)]
mod tests;

#[derive(Debug, Default)]
pub(crate) struct MutableSet {
    state: RwLock<State>,
    /// The number of the map's entries, so that readers need no lock while it is 0. Never 0 during an edit.
    len: AtomicUsize,
    /// Incremented by every edit, so that a cursor can check without the lock that its look-ups are still valid.
    version: AtomicU64,
    /// Whether there are gaps, so that readers need no lock while there are none.
    has_gaps: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    map: Arc<DeltaMap>,
    /// Ranges of keys without a visible item in this set and the sets below.
    gaps: Gaps,
    /// How many publications have replaced the sets below.
    publications: u64,
    /// Whether the map was handed over to a frozen set.
    frozen: bool,
}

impl MutableSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn size(&self) -> DeltaSize {
        self.state.read().map.size()
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.state.read().map.slots.keys().copied().collect()
    }

    #[inline]
    pub(crate) fn get(&self, key: &Key) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        self.state.read().map.get(key).cloned()
    }

    /// Applies the edits to the map and returns how many bytes it grew. Returns the edits if the set was frozen.
    #[inline]
    pub(crate) fn edit<E: IntoIterator<Item = Edit>>(&self, edits: E) -> Result<i64, E> {
        let mut state = self.state.write();
        let state = &mut *state;
        if state.frozen {
            return Err(edits);
        }
        // DELTA-2
        let map = Arc::get_mut(&mut state.map).expect("only a frozen set shares the map");
        let before = map.bytes;
        // Makes readers take the lock: a thread that learns of an edit early must wait until all are applied.
        self.len.store(map.slots.len().max(1), Ordering::Release);
        for edit in edits {
            // GAPS-1
            if !state.gaps.is_empty()
                && let Some(key) = edit.added()
            {
                state.gaps.cut(key);
            }
            map.edit(edit);
        }
        let growth = map.bytes.wrapping_sub(before).cast_signed();
        self.len.store(map.slots.len(), Ordering::Release);
        self.version.fetch_add(1, Ordering::Release);
        Ok(growth)
    }

    /// Ends editing and calls `swap` with the map and the next mutable set, under the lock. Returns its result. If
    /// the set is empty, returns None and changes nothing.
    pub(crate) fn freeze<T>(&self, swap: impl FnOnce(FrozenSet, MutableSet) -> T) -> Option<T> {
        let mut state = self.state.write();
        if state.map.slots.is_empty() {
            return None;
        }
        state.frozen = true;
        // A key that is not visible through this set is not visible through an empty set above it either.
        let gaps = std::mem::take(&mut state.gaps);
        let next = MutableSet {
            has_gaps: AtomicBool::new(!gaps.is_empty()),
            state: RwLock::new(State {
                gaps,
                publications: state.publications,
                ..State::default()
            }),
            ..MutableSet::default()
        };
        Some(swap(FrozenSet::new(Arc::clone(&state.map)), next))
    }

    /// Returns the gap that contains `key`.
    pub(crate) fn gap(&self, key: &Key) -> Option<RangeInclusive<Key>> {
        if self.has_gaps.load(Ordering::Acquire) {
            self.state.read().gaps.around(key)
        } else {
            None
        }
    }

    /// Adds a gap that was found in this `version` of the set, above the sets of publication number `publications`.
    pub(crate) fn note_gap(&self, gap: RangeInclusive<Key>, version: u64, publications: u64) {
        let mut state = self.state.write();
        // GAPS-1: neither this set nor the sets below have changed since the walk.
        let is_current = (self.version(), state.publications) == (version, publications);
        if !state.frozen && is_current {
            state.gaps.add(gap);
            self.has_gaps.store(true, Ordering::Release);
        }
    }

    /// Discards the gaps before a publication: the new root may contain items that the commit itself has added.
    pub(crate) fn forget_gaps(&self) {
        let mut state = self.state.write();
        state.gaps = Gaps::default();
        state.publications += 1;
        self.has_gaps.store(false, Ordering::Release);
    }

    /// Copies up to `most` entries at or above `key` to `out`, and returns the version of the set.
    pub(crate) fn above(&self, key: Key, most: usize, out: &mut impl Extend<(Key, Entry)>) -> u64 {
        let state = self.state.read();
        let entries = state.map.above(key, most);
        out.extend(entries.map(|(key, entry)| (key, entry.clone())));
        self.version()
    }

    /// Copies up to `most` entries in a range of keys to `out`.
    pub(crate) fn within(
        &self,
        range: RangeInclusive<Key>,
        most: usize,
        out: &mut impl Extend<(Key, Entry)>,
    ) {
        if self.is_empty() {
            return;
        }
        let state = self.state.read();
        let entries = state.map.within(range, most);
        out.extend(entries.map(|(key, entry)| (key, entry.clone())));
    }

    /// Returns whether there is an entry in a range of keys.
    pub(crate) fn has_within(&self, range: RangeInclusive<Key>) -> bool {
        !self.is_empty() && self.state.read().map.within(range, 1).next().is_some()
    }

    /// Copies up to `most` entries at or below `key` to `out`, and returns the version of the set.
    pub(crate) fn below(&self, key: Key, most: usize, out: &mut impl Extend<(Key, Entry)>) -> u64 {
        let state = self.state.read();
        let entries = state.map.below(key, most);
        out.extend(entries.map(|(key, entry)| (key, entry.clone())));
        self.version()
    }
}

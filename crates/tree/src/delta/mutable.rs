//! The running transaction's changes of one tree.

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
    /// The number of the map's entries, so that readers need no lock while it is 0. Not 0 while the set is edited.
    len: AtomicUsize,
    /// Raised by every edit, so that a cursor knows without the lock that what it looked up still holds.
    version: AtomicU64,
    /// Whether there are gaps, so that readers need no lock while there are none.
    has_gaps: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    map: Arc<DeltaMap>,
    /// The ranges of keys that show nothing through this set and those below.
    gaps: Gaps,
    /// How often the sets below were replaced.
    publications: u64,
    /// The map was handed over.
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

    /// Hands the edits to the map and returns by how many bytes it grew; gives them back if the set was
    /// frozen.
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
        // A thread that learns of an edit by other ways, before all are made, waits for them here.
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

    /// Ends editing, calls `swap` with the map and the set that comes next before anybody else can look, and returns
    /// its result. None, and nothing has changed, if the set is empty.
    pub(crate) fn freeze<T>(&self, swap: impl FnOnce(FrozenSet, MutableSet) -> T) -> Option<T> {
        let mut state = self.state.write();
        if state.map.slots.is_empty() {
            return None;
        }
        state.frozen = true;
        // A key that was not visible through this one is not visible through an empty one above it.
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

    /// Returns the gap that `key` lies in.
    pub(crate) fn gap(&self, key: &Key) -> Option<RangeInclusive<Key>> {
        match self.has_gaps.load(Ordering::Acquire) {
            true => self.state.read().gaps.around(key),
            false => None,
        }
    }

    /// Notes a gap that was found while the set was of `version`, over the sets that came with the publication of
    /// that number.
    pub(crate) fn note_gap(&self, gap: RangeInclusive<Key>, version: u64, publications: u64) {
        let mut state = self.state.write();
        // GAPS-1: the edits and the sets below are those that the walk went over.
        let is_current = (self.version(), state.publications) == (version, publications);
        if !state.frozen && is_current {
            state.gaps.add(gap);
            self.has_gaps.store(true, Ordering::Release);
        }
    }

    /// Forgets the gaps, before other sets come to lie below: a commit adds items by itself.
    pub(crate) fn forget_gaps(&self) {
        let mut state = self.state.write();
        state.gaps = Gaps::default();
        state.publications += 1;
        self.has_gaps.store(false, Ordering::Release);
    }

    /// Copies up to `most` entries at or above `key` to `out`, and returns the version that they are of.
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

    /// Copies up to `most` entries at or below `key` to `out`, and returns the version that they are of.
    pub(crate) fn below(&self, key: Key, most: usize, out: &mut impl Extend<(Key, Entry)>) -> u64 {
        let state = self.state.read();
        let entries = state.map.below(key, most);
        out.extend(entries.map(|(key, entry)| (key, entry.clone())));
        self.version()
    }
}

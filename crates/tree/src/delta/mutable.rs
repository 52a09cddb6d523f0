//! The running transaction's changes of one tree.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;
use ubtrfs_format::key::Key;

use super::{DeltaMap, DeltaSize, Edit, Entry, FrozenSet};

#[derive(Debug, Default)]
pub(crate) struct MutableSet {
    state: RwLock<State>,
    /// Of the map's entries, so that readers need no lock while it is 0.
    len: AtomicUsize,
    /// Raised by every edit, so that a cursor knows without the lock that what it looked up still holds.
    version: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    map: Arc<DeltaMap>,
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

    pub(crate) fn get(&self, key: &Key) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        self.state.read().map.get(key).cloned()
    }

    /// Hands the edits to the map and returns by how many bytes it grew; gives them back if the set was
    /// frozen.
    pub(crate) fn edit<E: IntoIterator<Item = Edit>>(&self, edits: E) -> Result<i64, E> {
        let mut state = self.state.write();
        if state.frozen {
            return Err(edits);
        }
        let map = Arc::get_mut(&mut state.map).expect("only a frozen set shares the map");
        let before = map.bytes;
        for edit in edits {
            map.edit(edit);
        }
        let growth = map.bytes.wrapping_sub(before).cast_signed();
        self.len.store(map.slots.len(), Ordering::Release);
        self.version.fetch_add(1, Ordering::Release);
        Ok(growth)
    }

    /// Ends editing, calls `swap` with the map before anybody else can look, and returns its result.
    /// None, and nothing has changed, if the set is empty.
    pub(crate) fn freeze<T>(&self, swap: impl FnOnce(FrozenSet) -> T) -> Option<T> {
        let mut state = self.state.write();
        if state.map.slots.is_empty() {
            return None;
        }
        state.frozen = true;
        Some(swap(FrozenSet::new(Arc::clone(&state.map))))
    }

    /// Up to `most` entries at or above `key`, and the version that they are of.
    pub(crate) fn above(&self, key: Key, most: usize, out: &mut impl Extend<(Key, Entry)>) -> u64 {
        let state = self.state.read();
        let entries = state.map.above(key, most);
        out.extend(entries.map(|(key, entry)| (key, entry.clone())));
        self.version()
    }

    /// Up to `most` entries at or below `key`, and the version that they are of.
    pub(crate) fn below(&self, key: Key, most: usize, out: &mut impl Extend<(Key, Entry)>) -> u64 {
        let state = self.state.read();
        let entries = state.map.below(key, most);
        out.extend(entries.map(|(key, entry)| (key, entry.clone())));
        self.version()
    }
}

//! A mutable tree: the stack of its sets, and edits of the newest.
//!
//! Invariants
//! - LIVE-1: a reader takes all layers in one step: either those before a freeze or a publication, or those
//!   after it.
//! - LIVE-2: an edit is made in the set that is mutable at that time; a freeze waits for it.
//! - LIVE-3: freezing and publishing swap pointers; no set is ever copied.
//!
//! Locks: `switch` before the mutable set's. Neither is held across IO.
//! Not here: the sets themselves (`delta`), new roots (`apply`), the order of a commit.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::Key;

use crate::block::Item;
use crate::committed::CommittedRoot;
use crate::delta::{DeltaSize, Edit, Entry, FrozenSet, MutableSet, Overlay};
use crate::error::TreeError;
use crate::store::NodeStore;

#[cfg(test)]
mod tests;

/// The newest set that is visible through a view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Depth {
    Mutable,
    Frozen,
    Committed,
}

/// The sets of a tree at one moment.
#[derive(Debug)]
pub(crate) struct Layers {
    mutable: Arc<MutableSet>,
    frozen: Option<Arc<FrozenSet>>,
    committed: CommittedRoot,
    /// The number of publications before this one.
    publications: u64,
}

impl Layers {
    pub(crate) fn committed(&self) -> CommittedRoot {
        self.committed
    }

    fn mutable(&self, depth: Depth) -> Option<&Arc<MutableSet>> {
        (depth == Depth::Mutable).then_some(&self.mutable)
    }

    fn frozen(&self, depth: Depth) -> Option<&Arc<FrozenSet>> {
        self.frozen.as_ref().filter(|_| depth != Depth::Committed)
    }

    pub(crate) fn overlay(&self, depth: Depth) -> Option<Overlay> {
        Overlay::new(self.mutable(depth), self.frozen(depth), self.publications)
    }

    /// Returns the entry of `key` in the newest set above the committed one that has it.
    fn entry(&self, depth: Depth, key: &Key) -> Option<Entry> {
        let newest = self.mutable(depth).and_then(|set| set.get(key));
        newest.or_else(|| self.frozen(depth)?.entry(key).cloned())
    }
}

/// A tree with its uncommitted changes.
#[derive(Debug)]
pub struct LiveTree {
    store: Arc<NodeStore>,
    id: RootId,
    layers: ArcSwap<Layers>,
    /// Held by a thread that replaces the layers.
    switch: Mutex<()>,
}

impl LiveTree {
    pub fn new(store: Arc<NodeStore>, committed: CommittedRoot) -> Arc<LiveTree> {
        Arc::new(LiveTree {
            store,
            id: committed.tree,
            layers: ArcSwap::from_pointee(Layers {
                mutable: Arc::default(),
                frozen: None,
                committed,
                publications: 0,
            }),
            switch: Mutex::new(()),
        })
    }

    pub fn id(&self) -> RootId {
        self.id
    }

    pub fn store(&self) -> &Arc<NodeStore> {
        &self.store
    }

    pub fn committed(&self) -> CommittedRoot {
        self.layers.load().committed
    }

    /// Returns the committing transaction's changes.
    pub fn frozen(&self) -> Option<Arc<FrozenSet>> {
        self.layers.load().frozen.clone()
    }

    pub(crate) fn layers(&self) -> Arc<Layers> {
        self.layers.load_full()
    }

    pub(crate) fn get(&self, depth: Depth, key: &Key) -> Result<Option<Item>, TreeError> {
        // LIVE-1
        let layers = self.layers.load();
        match layers.entry(depth, key) {
            Some(entry) => Ok(entry.map(|value| Item::from_delta(*key, value))),
            None => layers.committed.get(&self.store, key),
        }
    }

    /// Returns the items in a range of keys, ascending, if only the mutable set has entries there. Otherwise, or if
    /// there are more than `most`, returns None.
    pub(crate) fn only_edited_in(
        &self,
        keys: RangeInclusive<Key>,
        most: usize,
    ) -> Result<Option<Vec<Item>>, TreeError> {
        // LIVE-1
        let layers = self.layers.load();
        let frozen = layers.frozen.as_ref();
        if frozen.is_some_and(|set| set.has_within(&keys))
            || !layers.committed.is_empty_in(&self.store, &keys)?
        {
            return Ok(None);
        }
        let mut entries: Vec<(Key, Entry)> = Vec::new();
        layers
            .mutable
            .within(keys, most.saturating_add(1), &mut entries);
        if entries.len() > most {
            return Ok(None);
        }
        let items = entries.into_iter();
        let items = items.filter_map(|(key, entry)| Some(Item::from_delta(key, entry?)));
        Ok(Some(items.collect()))
    }
}

/// Edits. Each returns how many bytes the mutable set grew ([`DeltaSize::bytes`]).
impl LiveTree {
    /// Adds an item with a key that is in no set or is hidden by a whiteout.
    ///
    /// # Panics
    /// If the mutable set holds an item of the key.
    pub fn insert(&self, key: Key, value: Arc<[u8]>) -> i64 {
        self.edit([Edit::Insert(key, value)])
    }

    /// Adds or replaces an item with a key that may be in a lower set.
    pub fn put(&self, key: Key, value: Arc<[u8]>) -> i64 {
        self.edit([Edit::Put(key, value)])
    }

    /// Removes an item. Leaves a whiteout only if a lower set may hold the key.
    pub fn delete(&self, key: Key) -> i64 {
        self.edit([Edit::Delete(key)])
    }

    /// Makes several edits atomically for threads that look up a key. `edits` runs under the set's lock.
    pub fn edit(&self, edits: impl IntoIterator<Item = Edit>) -> i64 {
        let mut edits = edits;
        loop {
            // LIVE-2: a set that was frozen concurrently returns the edits.
            match self.layers.load().mutable.edit(edits) {
                Ok(growth) => return growth,
                Err(back) => edits = back,
            }
        }
    }

    /// Returns whether the mutable set has an entry.
    pub fn is_dirty(&self) -> bool {
        !self.layers.load().mutable.is_empty()
    }

    /// Returns the keys in the mutable set, ascending.
    pub fn edited_keys(&self) -> Vec<Key> {
        self.layers.load().mutable.keys()
    }

    /// Returns the mutable set's entry for a key: `None` without one, `Some(None)` for a deletion.
    pub fn edited(&self, key: &Key) -> Option<Option<Arc<[u8]>>> {
        self.layers.load().mutable.get(key)
    }

    /// Returns the entries of the mutable set in a range of keys, ascending. A value of None is a deletion.
    pub fn edited_in(&self, range: RangeInclusive<Key>) -> Vec<(Key, Option<Arc<[u8]>>)> {
        const AT_ONCE: usize = 256;
        let mutable = Arc::clone(&self.layers.load().mutable);
        let (mut from, last) = (Some(*range.start()), *range.end());
        let mut entries: Vec<(Key, Option<Arc<[u8]>>)> = Vec::new();
        while let Some(key) = from {
            let before = entries.len();
            mutable.within(key..=last, AT_ONCE, &mut entries);
            let is_all = entries.len() - before < AT_ONCE;
            from = match entries.last() {
                Some((key, _)) if !is_all && *key < last => key.next(),
                _ => None,
            };
        }
        entries
    }

    /// Returns whether the mutable set has an entry in a range of keys.
    pub fn is_edited_in(&self, range: RangeInclusive<Key>) -> bool {
        self.layers.load().mutable.has_within(range)
    }

    /// Returns whether only the committed set can have entries in a range of keys.
    pub fn is_committed_in(&self, range: &RangeInclusive<Key>) -> bool {
        // LIVE-1
        let layers = self.layers.load();
        let frozen = layers.frozen.as_ref();
        !layers.mutable.has_within(range.clone())
            && !frozen.is_some_and(|set| set.has_within(range))
    }

    /// Returns the size of the mutable set.
    pub fn delta_size(&self) -> DeltaSize {
        self.layers.load().mutable.size()
    }
}

/// Calls of a commit.
impl LiveTree {
    /// Freezes the mutable set. Returns None if it is empty.
    ///
    /// # Panics
    /// If the previous frozen set was not published.
    pub fn freeze(&self) -> Option<Arc<FrozenSet>> {
        let _switch = self.switch.lock();
        let layers = self.layers.load_full();
        assert!(layers.frozen.is_none(), "tree {}: frozen twice", self.id);
        // LIVE-3
        layers.mutable.freeze(|frozen, next| {
            let frozen = Arc::new(frozen);
            self.layers.store(Arc::new(Layers {
                mutable: Arc::new(next),
                frozen: Some(Arc::clone(&frozen)),
                committed: layers.committed,
                publications: layers.publications,
            }));
            frozen
        })
    }

    /// Makes `root` the committed set and drops the frozen one, atomically for readers. `root` must include the
    /// frozen set's changes.
    pub fn publish(&self, root: CommittedRoot) {
        let _switch = self.switch.lock();
        let layers = self.layers.load_full();
        // GAPS-1: before readers see the new root.
        layers.mutable.forget_gaps();
        self.layers.store(Arc::new(Layers {
            mutable: Arc::clone(&layers.mutable),
            frozen: None,
            committed: root,
            publications: layers.publications + 1,
        }));
    }
}

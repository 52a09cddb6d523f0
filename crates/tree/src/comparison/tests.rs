//! Comparisons against a naive diff of all items, and the number of blocks read.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use ubtrfs_format::key::KeyType;
use ubtrfs_sim::Rng;

use super::*;
use crate::epoch::Epoch;
use crate::live::LiveTree;
use crate::test_volume::{TREE, TestVolume};

type Map = BTreeMap<Key, Vec<u8>>;
/// A key with the bytes of the old and of the new item.
type Row = (Key, Option<Vec<u8>>, Option<Vec<u8>>);

fn key(number: u64) -> Key {
    Key::new(number / 3, KeyType::STRING_ITEM, number % 3)
}

/// Item types that are unknown to the checker.
const ENTRIES: RangeInclusive<KeyType> = KeyType(3)..=KeyType(4);

/// Returns the key of an object with entries that span several leaves between other items.
fn key_with_entries(number: u64) -> Key {
    let (object, offset) = (number / 400, number % 400);
    let item_type = match offset {
        0 => KeyType(2),
        1..=250 => KeyType(3),
        251..=350 => KeyType(4),
        _ => KeyType(5),
    };
    Key::new(object, item_type, offset)
}

/// A tree whose committed states are all kept.
struct History {
    key: fn(u64) -> Key,
    volume: TestVolume,
    tree: Arc<LiveTree>,
    map: Map,
    states: Vec<(View, Map)>,
    _epochs: Vec<Arc<Epoch>>,
}

impl History {
    fn new() -> History {
        History::with_keys(key)
    }

    fn with_keys(key: fn(u64) -> Key) -> History {
        let mut volume = TestVolume::new(1 << 20);
        let tree = volume.tree(TREE);
        let mut history = History {
            key,
            volume,
            tree,
            map: Map::new(),
            states: Vec::new(),
            _epochs: Vec::new(),
        };
        history.keep();
        history
    }

    fn put(&mut self, number: u64, byte: u8) {
        let value = vec![byte; 50 + usize::from(byte)];
        let key = (self.key)(number);
        self.tree.put(key, value.as_slice().into());
        self.map.insert(key, value);
    }

    fn delete(&mut self, number: u64) {
        let key = (self.key)(number);
        self.tree.delete(key);
        self.map.remove(&key);
    }

    fn commit(&mut self) {
        self.tree.freeze();
        self.volume.commit(&self.tree);
        self.keep();
    }

    fn keep(&mut self) {
        self._epochs.push(self.volume.store.epoch());
        let view = View::new(Arc::clone(&self.volume.store), self.tree.committed());
        self.states.push((view, self.map.clone()));
    }

    /// Compares a state, or an empty tree, with a later state, and checks the result against the naive diff.
    fn check(&self, old: Option<usize>, new: usize) {
        let old = old.map(|at| &self.states[at]);
        let (view, new) = &self.states[new];
        let empty = Map::new();
        let compare = || Comparison::new(old.map(|(view, _)| view), view);
        let mut wanted = naive(old.map_or(&empty, |(_, map)| map), new);
        let found = differences(compare());
        assert!(found == wanted, "{} of {}", found.len(), wanted.len());
        let found = differences_of_leaves(compare());
        assert!(found == wanted, "{} of {}", found.len(), wanted.len());
        let found = differences(compare().without(ENTRIES));
        wanted.retain(|(key, ..)| !ENTRIES.contains(&key.item_type));
        assert!(found == wanted, "{} of {}", found.len(), wanted.len());
    }

    fn compare(&self, old: usize, new: usize) -> Comparison {
        Comparison::new(Some(&self.states[old].0), &self.states[new].0)
    }

    /// Returns how many blocks a comparison looks up.
    fn blocks_of(&self, comparison: Comparison) -> u64 {
        let looked = || {
            let stats = self.volume.store.stats();
            stats.hits + stats.misses
        };
        let before = looked();
        differences(comparison);
        looked() - before
    }
}

fn differences(mut comparison: Comparison) -> Vec<Row> {
    let mut found = Vec::new();
    while let Some(difference) = comparison.next_difference().unwrap() {
        found.push(row(&difference));
    }
    found
}

fn row(difference: &Difference) -> Row {
    let bytes = |item: Option<&Item>| item.map(|item| item.to_vec());
    let (old, new) = (difference.old_item(), difference.new_item());
    (difference.key(), bytes(old), bytes(new))
}

/// Collects the differences leaf by leaf.
fn differences_of_leaves(mut comparison: Comparison) -> Vec<Row> {
    let mut found = Vec::new();
    while comparison.next_of_leaves(&mut found).unwrap() {}
    found.iter().map(row).collect()
}

fn naive(old: &Map, new: &Map) -> Vec<Row> {
    let mut keys: Vec<Key> = old.keys().chain(new.keys()).copied().collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter()
        .map(|key| (key, old.get(&key).cloned(), new.get(&key).cloned()))
        .filter(|(_, old, new)| old != new)
        .collect()
}

/// Changes single items and runs of items, so that leaves are shared, moved, split and merged.
fn edit_at_random(history: &mut History, rng: &mut Rng, numbers: u64) {
    for _ in 0..rng.below(8) {
        let start = rng.below(numbers);
        let len = if rng.one_in(3) {
            rng.below(numbers / 4)
        } else {
            1
        };
        let (deletes, byte) = (rng.one_in(2), rng.next_u64() as u8);
        for number in start..start + len {
            if deletes {
                history.delete(number)
            } else {
                history.put(number, byte)
            }
        }
    }
}

fn check_history(mut history: History, seed: u64, numbers: u64, states: usize) {
    let mut rng = Rng::new(seed);
    for _ in 0..states {
        edit_at_random(&mut history, &mut rng, numbers);
        history.commit();
    }
    for new in 0..history.states.len() {
        history.check(None, new);
        for old in 0..history.states.len() {
            history.check(Some(old), new);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn comparisons_find_what_a_naive_diff_finds(seed: u64, numbers in 8..1500u64) {
        check_history(History::new(), seed, numbers, 4);
    }

    #[test]
    fn comparisons_leave_out_what_they_are_to(seed: u64, numbers in 8..3000u64) {
        check_history(History::with_keys(key_with_entries), seed, numbers, 4);
    }
}

/// COMPARE-1
#[test]
fn shared_subtrees_are_not_read() {
    let mut history = History::new();
    for number in 0..20_000 {
        history.put(number, 100);
    }
    history.commit();
    history.put(7_000, 1);
    history.delete(15_000);
    history.commit();
    let levels = u64::from(history.tree.committed().level) + 1;
    assert!(levels >= 3);
    let looked = history.blocks_of(history.compare(1, 2));
    // Nodes above leaves are looked up twice: once to read ahead the blocks below them.
    assert!(looked <= 3 * 2 * levels, "{looked} blocks");
    assert_eq!(history.blocks_of(history.compare(2, 2)), 0);
    assert_eq!(history.blocks_of(history.compare(1, 1)), 0);
}

/// COMPARE-2: added items before shared subtrees must not hide that these are shared.
#[test]
fn subtrees_behind_new_items_are_still_shared() {
    let mut history = History::new();
    for number in 10_000..20_000 {
        history.put(number, 100);
    }
    history.commit();
    for number in 0..60 {
        history.put(number, 100);
    }
    history.commit();
    history.check(Some(1), 2);
    history.check(Some(2), 1);
    let looked = history.blocks_of(history.compare(1, 2));
    assert!(looked < 30, "{looked} blocks");
}

/// Excluded leaves are neither entered nor read ahead.
#[test]
fn leaves_that_are_left_out_are_not_read() {
    let mut history = History::with_keys(key_with_entries);
    for number in 0..20_000 {
        history.put(number, 100);
    }
    history.commit();
    for number in 0..20_000 {
        history.put(number, 101);
    }
    history.commit();
    let store = &history.volume.store;
    let read = |comparison: Comparison| {
        store.forget_blocks();
        let before = store.stats();
        differences(comparison);
        let stats = store.stats();
        stats.read_ahead + stats.misses - before.read_ahead - before.misses
    };
    let all = read(history.compare(1, 2));
    let some = read(history.compare(1, 2).without(ENTRIES));
    assert!(some < all * 3 / 4, "{some} of {all} blocks");
}

/// Changes one leaf below each node, so that read-ahead below a single node finds nothing.
#[test]
fn scattered_changes_are_read_at_once() {
    let mut history = History::new();
    for number in 0..20_000 {
        history.put(number, 100);
    }
    history.commit();
    for number in (0..20_000).step_by(1500) {
        history.put(number, 1);
    }
    history.commit();
    let store = &history.volume.store;
    store.forget_blocks();
    let before = store.stats();
    history.check(Some(1), 2);
    let stats = store.stats();
    let read_ahead = stats.read_ahead - before.read_ahead;
    let alone = stats.misses - before.misses;
    assert!(read_ahead > 20, "{read_ahead}");
    // The roots.
    assert!(alone <= 2, "{alone}");
}

/// Leaves that were rewritten with equal contents.
#[test]
fn search_returns_amid_many_leaves_that_are_alike() {
    let mut history = History::new();
    let fill = |history: &mut History| {
        for number in 0..20_000 {
            history.put(number, 100);
        }
        history.commit();
    };
    fill(&mut history);
    fill(&mut history);
    let mut comparison = history.compare(1, 2);
    let looked = || {
        let stats = history.volume.store.stats();
        stats.hits + stats.misses
    };
    let (mut found, mut calls, mut most) = (Vec::new(), 0, 0);
    loop {
        let before = looked();
        let more = comparison.next_of_leaves(&mut found).unwrap();
        most = most.max(looked() - before);
        calls += 1;
        if !more {
            break;
        }
    }
    assert!(found.is_empty());
    assert!(calls > 5, "{calls}");
    // Two blocks a step, and look-ups of nodes for read-ahead.
    assert!(most <= 4 * MAX_ENTERED as u64, "{most} blocks");
}

/// COMPARE-3
#[test]
fn blocks_that_a_full_cache_drops_are_read_once() {
    let mut history = History::new();
    for number in 0..20_000 {
        history.put(number, 100);
    }
    history.commit();
    for number in (0..20_000).step_by(100) {
        history.put(number, 1);
    }
    history.commit();
    let store = &history.volume.store;
    let read = || {
        let stats = store.stats();
        (stats.read_ahead, stats.misses)
    };
    let compared = |comparison: Comparison| {
        let before = read();
        let found = differences(comparison).len();
        let after = read();
        (found, after.0 - before.0, after.1 - before.1)
    };
    store.forget_blocks();
    let (_, differing, _) = compared(history.compare(1, 2));
    assert!(differing > 2 * store.cache_blocks() as u64 / 3);

    // Fills the cache with all blocks of another state.
    store.forget_blocks();
    let all = || Comparison::new(None, &history.states[1].0);
    assert_eq!(compared(all()).0, 20_000);
    compared(all());
    let (found, read_ahead, alone) = compared(history.compare(1, 2));
    assert_eq!(found, 200);
    // The roots, and blocks that are alone in their batch.
    assert!(alone < 20, "{alone} and {read_ahead} of {differing}");
    assert!(
        read_ahead + alone <= differing + 20,
        "{read_ahead} of {differing}"
    );
}

#[test]
fn windows_are_small_beside_small_caches() {
    const BATCH: usize = 32;
    for (mib, window) in [
        (0, 1),
        (1, 2),
        (4, 8),
        (16, 32),
        (64, 32),
        (128, 64),
        (256, 128),
        (1024, 128),
    ] {
        // For nodes of 16 KiB.
        assert_eq!(window_of(mib * 64, BATCH), window, "{mib} MiB");
    }
}

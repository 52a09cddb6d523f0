//! A live tree against a plain sorted map.

mod model;
mod threads;

use std::collections::BTreeMap;

use ubtrfs_format::key::KeyType;

use super::*;
use crate::test_volume::{TREE, TestVolume};
use crate::view::View;

type Map = BTreeMap<Key, Vec<u8>>;

fn key(number: u64) -> Key {
    Key::new(number, KeyType::STRING_ITEM, number % 3)
}

fn value(byte: u8) -> Arc<[u8]> {
    Arc::from([byte; 100])
}

/// A tree and its expected contents at each depth.
struct World {
    volume: TestVolume,
    tree: Arc<LiveTree>,
    mutable: Map,
    frozen: Map,
    committed: Map,
    /// The contents of the tree at each freeze.
    past: Vec<Map>,
}

impl World {
    fn new() -> World {
        let mut volume = TestVolume::new(64 << 10);
        World {
            tree: volume.tree(TREE),
            volume,
            mutable: Map::new(),
            frozen: Map::new(),
            committed: Map::new(),
            past: Vec::new(),
        }
    }

    fn insert(&mut self, number: u64, byte: u8) {
        self.tree.insert(key(number), value(byte));
        self.mutable.insert(key(number), value(byte).to_vec());
    }

    fn put(&mut self, number: u64, byte: u8) {
        self.tree.put(key(number), value(byte));
        self.mutable.insert(key(number), value(byte).to_vec());
    }

    fn delete(&mut self, number: u64) {
        self.tree.delete(key(number));
        self.mutable.remove(&key(number));
    }

    fn freeze(&mut self) {
        if self.tree.freeze().is_some() {
            self.frozen.clone_from(&self.mutable);
            self.past.push(self.mutable.clone());
        }
    }

    /// Publishes a commit of the frozen set, after a freeze if nothing is frozen.
    fn commit(&mut self) {
        if self.tree.frozen().is_none() {
            self.freeze();
        }
        self.volume.commit(&self.tree);
        self.committed.clone_from(&self.frozen);
    }

    /// Checks that every depth yields its map, forwards and backwards.
    fn check(&self) {
        let views = [
            (self.tree.view(), &self.mutable),
            (self.tree.frozen_view(), &self.frozen),
            (self.tree.committed_view(), &self.committed),
        ];
        for (view, map) in views {
            assert!(forwards(&view) == *map);
            assert!(backwards(&view) == *map);
            check_ranges(&view, map);
        }
    }
}

/// Checks that short ranges yield the items of the map, or that there are more than the limit.
fn check_ranges(view: &View, map: &Map) {
    const MOST: usize = 2;
    for number in 0..32 {
        let keys = key(number)..=key(number + 3);
        let wanted: Vec<(Key, Vec<u8>)> = map
            .range(keys.clone())
            .map(|(key, value)| (*key, value.clone()))
            .collect();
        let found = view.few_items(keys, MOST).unwrap().map(|items| {
            let items = items.iter().map(|item| (item.key(), item.to_vec()));
            items.collect::<Vec<_>>()
        });
        assert_eq!(found, (wanted.len() <= MOST).then_some(wanted));
    }
}

fn forwards(view: &View) -> Map {
    let mut cursor = view.cursor().sequential();
    let mut items = Map::new();
    let mut more = cursor.seek(&Key::MIN).unwrap();
    while more {
        let (key, bytes) = cursor.current().unwrap();
        // CURSOR-4, and PATH-2 in a view of the committed set alone.
        assert!(items.last_key_value().is_none_or(|(last, _)| *last < key));
        items.insert(key, bytes.to_vec());
        more = cursor.advance().unwrap();
    }
    assert!(cursor.current().is_none());
    items
}

fn backwards(view: &View) -> Map {
    let mut cursor = view.cursor();
    let mut items = Map::new();
    let mut more = cursor.seek_floor(&Key::MAX).unwrap();
    while more {
        let item = cursor.item().unwrap();
        let first = items.first_key_value();
        // CURSOR-4 and PATH-2
        assert!(first.is_none_or(|(first, _)| item.key() < *first));
        items.insert(item.key(), item.to_vec());
        more = cursor.retreat().unwrap();
    }
    assert!(cursor.item().is_none());
    items
}

#[test]
fn whiteout_hides_committed_value() {
    let mut world = World::new();
    world.insert(1, 10);
    world.insert(2, 20);
    world.commit();
    world.delete(1);
    world.check();
    assert_eq!(world.tree.delta_size().entries, 1);
    world.freeze();
    world.check();
    world.insert(1, 11);
    world.check();
    world.commit();
    world.check();
    assert_eq!(world.tree.delta_size().entries, 1);
}

// DELTA-3
#[test]
fn deleting_what_was_never_committed_leaves_nothing() {
    let world = World::new();
    for number in 0..100_000 {
        world.tree.insert(key(number), value(1));
    }
    for number in 0..100_000 {
        world.tree.delete(key(number));
    }
    assert_eq!(world.tree.delta_size(), DeltaSize::default());
    assert!(!world.tree.is_dirty());
    assert!(world.tree.freeze().is_none());
    world.check();
}

#[test]
fn key_deleted_and_inserted_anew_still_hides_the_committed_one() {
    let mut world = World::new();
    world.insert(1, 10);
    world.commit();
    world.delete(1);
    world.insert(1, 11);
    world.check();
    world.delete(1);
    assert_eq!(world.tree.delta_size().entries, 1);
    world.check();
    world.commit();
    world.check();
    assert_eq!(world.committed.len(), 0);
}

// DELTA-1
#[test]
#[should_panic(expected = "was inserted but is there")]
fn inserting_a_key_twice_is_a_mistake() {
    let world = World::new();
    world.tree.insert(key(1), value(1));
    world.tree.insert(key(1), value(1));
}

#[test]
#[should_panic(expected = "frozen twice")]
fn freezing_before_the_last_set_was_published_is_a_mistake() {
    let world = World::new();
    world.tree.insert(key(1), value(1));
    world.tree.freeze();
    world.tree.insert(key(2), value(1));
    world.tree.freeze();
}

/// LIVE-3 for a publication.
#[test]
fn publication_leaves_the_mutable_set_where_it_is() {
    let mut world = World::new();
    world.insert(1, 10);
    world.freeze();
    world.insert(2, 20);
    let mutable = Arc::clone(&world.tree.layers().mutable);
    world.commit();
    assert!(Arc::ptr_eq(&mutable, &world.tree.layers().mutable));
    assert_eq!(world.tree.delta_size().entries, 1);
    world.check();
}

#[test]
fn growth_adds_up_to_the_size() {
    let mut world = World::new();
    let mut total = 0;
    total += world.tree.insert(key(1), value(1));
    total += world.tree.put(key(2), value(1));
    total += world.tree.put(key(2), Arc::from([0; 7]));
    total += world.tree.delete(key(2));
    assert!(total > 100);
    assert_eq!(total, world.tree.delta_size().bytes as i64);
    let frozen = world.tree.freeze().unwrap();
    assert_eq!(total, frozen.bytes() as i64);
    assert_eq!((frozen.len(), frozen.is_empty()), (2, false));
    assert_eq!(frozen.get(&key(1)), Some(Some(&[1; 100][..])));
    assert_eq!(frozen.get(&key(2)), Some(None));
    assert_eq!(frozen.get(&key(3)), None);
    world.volume.commit(&world.tree);
    let edits = [
        Edit::Delete(key(1)),
        Edit::Insert(key(2), value(2)),
        Edit::Delete(key(2)),
    ];
    let growth = world.tree.edit(edits);
    assert_eq!(growth, world.tree.delta_size().bytes as i64);
    assert_eq!(world.tree.delta_size().entries, 1);
}

#[test]
fn cursor_keeps_what_it_stands_on_and_meets_edits_ahead() {
    let mut world = World::new();
    for number in [10, 20, 30] {
        world.insert(number, 1);
    }
    world.commit();
    let view = world.tree.view();
    let mut cursor = view.cursor();
    assert!(cursor.seek(&key(10)).unwrap());
    world.tree.delete(key(10));
    world.tree.insert(key(15), value(2));
    world.tree.delete(key(20));
    assert_eq!(cursor.current().unwrap().0, key(10));
    assert!(cursor.advance().unwrap());
    assert_eq!(cursor.current().unwrap().0, key(15));
    world.tree.delete(key(15));
    assert_eq!(cursor.current().unwrap(), (key(15), &[2; 100][..]));
    assert!(cursor.advance().unwrap());
    assert_eq!(cursor.current().unwrap().0, key(30));
    assert!(!cursor.retreat().unwrap());
}

// EPOCH-2
#[test]
fn cursor_ends_in_the_sets_that_it_began_with() {
    let mut world = World::new();
    for number in 0..2000 {
        world.insert(number, 1);
    }
    world.commit();
    let (live, committed) = (world.tree.view(), world.tree.committed_view());
    let (mut live, mut committed) = (live.cursor(), committed.cursor());
    assert!(live.seek(&key(0)).unwrap());
    assert!(committed.seek(&key(0)).unwrap());
    // Enough commits to reuse every free block, if the cursors did not pin them.
    for round in 2..40 {
        for number in 0..2000 {
            world.put(number, round);
        }
        world.commit();
    }
    assert!(world.volume.pinned_epochs() > 1);
    for number in 0..2000 {
        // The first round edited the mutable set that the cursor holds.
        let byte = if number == 0 { 1 } else { 2 };
        assert_eq!(live.current().unwrap(), (key(number), &[byte; 100][..]));
        assert_eq!(committed.current().unwrap(), (key(number), &[1; 100][..]));
        assert_eq!(live.advance().unwrap(), number < 1999);
        assert_eq!(committed.advance().unwrap(), number < 1999);
    }
    drop(committed);
    assert!(live.seek(&key(0)).unwrap());
    assert_eq!(live.current().unwrap(), (key(0), &[39; 100][..]));
    world.commit();
    assert_eq!(world.volume.pinned_epochs(), 1, "the cursor is in the last");
    drop(live);
    world.commit();
    assert_eq!(world.volume.pinned_epochs(), 0);
}

// CURSOR-3
#[test]
fn run_of_deleted_keys_is_gone_through_once() {
    let mut world = World::new();
    for number in 0..20_000 {
        world.insert(number, 1);
    }
    world.commit();
    for number in 100..19_900 {
        world.delete(number);
    }
    let view = world.tree.view();
    let blocks_read = |number: u64, wanted: u64, floor: bool| {
        let store = world.tree.store();
        let before = store.stats().hits + store.stats().misses;
        let mut cursor = view.cursor();
        let found = if floor {
            cursor.seek_floor(&key(number))
        } else {
            cursor.seek(&key(number))
        };
        assert!(found.unwrap());
        assert_eq!(cursor.current().unwrap().0, key(wanted));
        store.stats().hits + store.stats().misses - before
    };
    assert!(blocks_read(100, 19_900, false) > 100);
    for number in [100, 101, 5000, 19_899] {
        let read = blocks_read(number, 19_900, false);
        assert!(read < 20, "{read}");
        let read = blocks_read(number, 99, true);
        assert!(read < 20, "{read}");
    }
    // A cursor that recorded the run before a freeze also sees an item added after it, in both directions.
    world.tree.freeze();
    world.tree.insert(key(7000), value(2));
    assert!(blocks_read(100, 7000, false) < 20);
    assert!(blocks_read(19_899, 7000, true) < 20);
    assert!(blocks_read(7001, 19_900, false) < 20);
    world.tree.delete(key(7000));
    blocks_read(100, 19_900, false);
    assert!(blocks_read(100, 19_900, false) < 20);
}

// GAPS-1
#[test]
fn run_noted_by_an_old_reader_hides_nothing_of_a_publication() {
    let mut world = World::new();
    for number in (0..100).filter(|number| *number != 45) {
        world.insert(number, 1);
    }
    world.commit();
    for number in 10..30 {
        world.delete(number);
    }
    world.freeze();
    for number in (30..90).filter(|number| *number != 45) {
        world.delete(number);
    }
    let view = world.tree.view();
    let mut before = view.cursor();
    assert!(before.seek(&key(9)).unwrap());
    // A commit adds items itself: the names of new subvolumes.
    let own = value(2);
    world.volume.commit_with(&world.tree, &[(key(45), &own)]);
    assert!(before.advance().unwrap());
    assert_eq!(before.current().unwrap().0, key(90));
    let mut after = view.cursor();
    assert!(after.seek(&key(30)).unwrap());
    assert_eq!(after.current().unwrap().0, key(45));
}

#[test]
fn set_that_is_being_edited_is_not_taken_for_an_empty_one() {
    let mut world = World::new();
    world.insert(1, 1);
    world.commit();
    let tree = Arc::clone(&world.tree);
    let edits = std::iter::once_with(|| {
        assert!(world.tree.is_dirty());
        Edit::Delete(key(1))
    });
    tree.edit(edits);
    assert_eq!(tree.view().get(&key(1)).unwrap().map(drop), None);
}

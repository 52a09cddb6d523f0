//! Look-ups compared with all items of the tree, and the number of blocks read.

use std::collections::BTreeMap;

use ubtrfs_format::key::KeyType;
use ubtrfs_sim::Rng;

use super::*;
use crate::test_volume::{TREE, TestVolume};

const KEYS: u64 = 3000;

fn key(number: u64) -> Key {
    Key::new(number, KeyType::STRING_ITEM, 0)
}

/// Creates a tree that has every second key.
fn tree() -> (TestVolume, View, BTreeMap<Key, Vec<u8>>) {
    let mut volume = TestVolume::new(1 << 20);
    let live = volume.tree(TREE);
    let mut map = BTreeMap::new();
    for number in (0..KEYS).step_by(2) {
        let value = vec![number as u8; 40];
        live.put(key(number), value.as_slice().into());
        map.insert(key(number), value);
    }
    live.freeze();
    volume.commit(&live);
    let view = View::new(Arc::clone(&volume.store), live.committed());
    (volume, view, map)
}

#[test]
fn leaves_at_hand_say_what_the_tree_says() {
    // RECENT-1
    let (_volume, view, map) = tree();
    let leaves = RecentLeaves::of(&view);
    let mut rng = Rng::new(1);
    let mut near = 0;
    for _ in 0..20_000 {
        near = match rng.below(8) {
            0 => rng.below(KEYS + 10),
            _ => (near + rng.below(20)).saturating_sub(8),
        };
        let wanted = map.get(&key(near));
        let found = leaves.get(&key(near)).unwrap();
        assert_eq!(found.as_deref(), wanted.map(Vec::as_slice), "{near}");
        let mut walked = Vec::new();
        let most = 1 + rng.below(50) as usize;
        let walk = leaves.walk(&key(near), |key, bytes| {
            walked.push((key, bytes.to_vec()));
            if walked.len() < most {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        walk.unwrap();
        let wanted = map.range(key(near)..).take(most);
        let wanted: Vec<(Key, Vec<u8>)> =
            wanted.map(|(&key, bytes)| (key, bytes.clone())).collect();
        assert!(walked == wanted, "{near}");
    }
}

#[test]
fn keys_of_one_leaf_cost_one_walk_from_the_root() {
    let (volume, view, map) = tree();
    let leaves = RecentLeaves::of(&view);
    let reads = || volume.store.stats().hits + volume.store.stats().misses;
    let before = reads();
    for key in map.keys() {
        assert!(leaves.get(key).unwrap().is_some());
    }
    assert!(reads() - before < map.len() as u64 / 5);
}

#[test]
fn empty_tree_has_no_key() {
    let mut volume = TestVolume::new(1 << 20);
    let live = volume.tree(TREE);
    let view = View::new(Arc::clone(&volume.store), live.committed());
    let leaves = RecentLeaves::of(&view);
    assert!(leaves.get(&key(1)).unwrap().is_none());
    let walk = leaves.walk(&key(1), |_, _| unreachable!("there is no item"));
    walk.unwrap();
}

//! The cost of walking over committed items below other sets.

use std::sync::Arc;

use ubtrfs_format::key::KeyType;

use super::*;
use crate::test_volume::{TREE, TestVolume};

fn key(number: u64) -> Key {
    Key::new(number, KeyType::STRING_ITEM, 0)
}

/// CURSOR-2
#[test]
fn upper_sets_are_looked_at_once_a_leaf() {
    let mut volume = TestVolume::new(64 << 10);
    let tree = volume.tree(TREE);
    for number in 0..2000 {
        tree.insert(key(number), Arc::from([1; 100]));
    }
    tree.freeze();
    volume.commit(&tree);
    tree.insert(key(5000), Arc::from([2; 100]));

    let view = tree.view();
    let mut cursor = view.cursor();
    assert!(cursor.seek(&Key::MIN).unwrap());
    let mut slots = cursor.path.slots_below(None);
    let mut items = 1;
    loop {
        // A merge of the sets records its direction.
        cursor.direction = Direction::Down;
        if !cursor.advance().unwrap() {
            break;
        }
        items += 1;
        if cursor.direction == Direction::Up {
            slots += cursor.path.slots_below(None);
        }
    }
    assert_eq!(items, 2001);
    assert_eq!(slots, 2000, "each leaf counted once");
}

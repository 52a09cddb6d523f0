//! Freezing a mutable set.

use ubtrfs_format::key::KeyType;

use super::*;

fn insert(number: u64) -> Edit {
    let key = Key::new(number, KeyType::STRING_ITEM, 0);
    Edit::Insert(key, Arc::from([1]))
}

/// DELTA-2, and LIVE-3 for a freeze.
#[test]
fn frozen_set_is_the_map_itself_and_takes_no_more_edits() {
    let set = MutableSet::default();
    set.edit([insert(1), insert(2)]).unwrap();
    let map = Arc::downgrade(&set.state.read().map);
    let (frozen, next) = set.freeze(|frozen, next| (frozen, next)).unwrap();
    assert_eq!(map.strong_count(), 2, "the two sets share one map");
    assert!(set.edit([insert(3)]).is_err());
    next.edit([insert(3)]).unwrap();
    assert_eq!((frozen.len(), next.size().entries), (2, 1));
    drop(set);
    assert_eq!((map.strong_count(), frozen.len()), (1, 2));
}

//! The kept inodes, and their order.

use ubtrfs_format::ids::{InodeNr, RootId};
use zerocopy::FromZeros;

use super::*;

fn id(ino: u64) -> FileId {
    FileId::new(RootId::FS_TREE, InodeNr(ino))
}

fn item(sequence: u64) -> InodeItem {
    let mut item = InodeItem::new_zeroed();
    item.sequence = sequence.into();
    item
}

fn wanted() -> LazyTimes {
    let times = LazyTimes::default();
    times.set_wanted(true);
    times
}

fn order(times: &LazyTimes) -> Vec<u64> {
    let all = times.of_turns(0..times.next_turn(), usize::MAX);
    all.iter().map(|(_, id)| id.ino.0).collect()
}

#[test]
fn none_are_kept_unless_wanted() {
    let times = LazyTimes::default();
    assert!(!times.keep(id(1), &item(1)));
    assert!(times.get(id(1)).is_none());
}

#[test]
fn the_newest_times_are_shown_in_the_first_ones_turn() {
    let times = wanted();
    assert!(times.keep(id(1), &item(1)) && times.keep(id(2), &item(1)));
    assert!(times.keep(id(1), &item(2)));
    assert_eq!(times.get(id(1)).unwrap().sequence.get(), 2);
    assert_eq!((order(&times), times.count()), (vec![1, 2], 2));
    times.forget(id(1));
    assert!(times.get(id(1)).is_none() && times.keep(id(1), &item(3)));
    assert_eq!(order(&times), [2, 1]);
}

// LAZY-2
#[test]
fn there_is_place_for_so_many() {
    let times = wanted();
    for ino in 0..MOST as u64 {
        assert!(times.keep(id(ino), &item(1)));
    }
    assert!(!times.keep(id(MOST as u64), &item(1)));
    assert!(times.keep(id(0), &item(2)));
    assert_eq!(times.surplus()[0], id(0));
    times.forget(id(0));
    assert!(times.keep(id(MOST as u64), &item(1)));
}

#[test]
fn old_ones_are_told_from_young_ones() {
    let times = wanted();
    assert!(times.keep(id(1), &item(1)));
    assert_eq!(times.turn_at_age(LONGEST), 0);
    let long_ago = Instant::now().checked_sub(2 * LONGEST);
    // A clock that began later cannot represent such an age.
    if let Some(long_ago) = long_ago {
        times.order.lock().turns.get_mut(&0).unwrap().1 = long_ago;
        assert!(times.keep(id(2), &item(1)));
        assert_eq!(times.turn_at_age(LONGEST), 1);
    }
}

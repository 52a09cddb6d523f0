//! Parts of appends, in any order.

use ubtrfs_format::ids::{InodeNr, RootId};

use super::*;

const MIB: u64 = 1 << 20;

fn file() -> FileId {
    FileId {
        root: RootId(5),
        ino: InodeNr(257),
    }
}

/// Returns a part of a direct write that begins at `end`.
fn part(end: u64, number: u64) -> Range<u64> {
    end + number * MIB..end + (number + 1) * MIB
}

#[test]
fn parts_may_come_and_be_done_in_any_order() {
    let orders = [
        [0, 1, 2, 3],
        [3, 2, 1, 0],
        [1, 0, 3, 2],
        [2, 3, 0, 1],
        [1, 3, 2, 0],
    ];
    for came in orders {
        for done in orders {
            let appends = Appends::default();
            let mut under_way: Vec<_> = came
                .iter()
                .map(|&number| appends.enter(file(), part(5, number), || Ok(5)).unwrap())
                .collect();
            for number in done {
                let range = part(5, number);
                let at = under_way.iter().position(|part| part.range == range);
                under_way.remove(at.unwrap()).written();
                assert!(appends.enter(file(), range, || Ok(u64::MAX)).is_err());
            }
            assert_eq!(appends.len(), 0);
            // One file for each.
            let appends = Appends::default();
            let mut size = 5;
            for number in done {
                let admitted = appends.enter(file(), part(5, number), || Ok(size));
                admitted.unwrap().written();
                size = size.max(part(5, number).end);
            }
            assert_eq!(appends.len(), 0);
        }
    }
}

// APPENDS-1
#[test]
fn written_bytes_are_not_written_again() {
    let appends = Appends::default();
    let refused = |range| {
        let entered = appends.enter(file(), range, || Ok(MIB));
        entered.is_err_and(|error| error == Errno::PERM)
    };
    assert!(refused(0..1) && refused(MIB - 1..2 * MIB));
    let second = appends.enter(file(), part(MIB, 1), || Ok(MIB)).unwrap();
    assert!(refused(part(MIB, 1)) && refused(0..MIB));
    second.written();
    assert!(refused(part(MIB, 1)) && refused(MIB..3 * MIB) && refused(3 * MIB - 1..4 * MIB));
    let first = appends.enter(file(), part(MIB, 0), || Ok(3 * MIB));
    first.unwrap().written();
    assert_eq!(appends.len(), 0);
}

// APPENDS-2 and APPENDS-3.
#[test]
fn a_part_that_was_not_written_may_come_again() {
    let appends = Appends::default();
    let enter = |number| appends.enter(file(), part(0, number), || Ok(0));
    drop(enter(0).unwrap());
    assert_eq!(appends.len(), 0);
    enter(1).unwrap().written();
    drop(enter(0).unwrap());
    enter(0).unwrap().written();
    assert_eq!(appends.len(), 0);
}

// APPENDS-4
#[test]
fn bytes_that_a_failed_part_left_out_are_not_written_later() {
    let appends = Appends::default();
    let enter = |number, size| appends.enter(file(), part(5, number), || Ok(size));
    let (first, second, third) = (enter(0, 5), enter(1, 5), enter(2, 5));
    second.unwrap().written();
    first.unwrap().failed();
    assert!(
        !appends.take_back(file(), 5).unwrap(),
        "the third is under way"
    );
    third.unwrap().written();
    let size = part(5, 2).end;
    assert!(enter(0, size).is_err());
    assert!(!appends.take_back(file(), 6).unwrap());
    assert!(appends.take_back(file(), 5).unwrap());
    assert!(!appends.take_back(file(), 5).unwrap(), "once");
    assert_eq!(appends.len(), 0);
    enter(0, 5).unwrap().failed();
    // An append after that starts a new run.
    enter(3, size).unwrap().written();
    assert_eq!(appends.len(), 0);
}

#[test]
fn a_file_that_lacks_a_part_can_be_appended_to_and_forgotten() {
    let appends = Appends::default();
    for number in 1..100 {
        let entered = appends.enter(file(), part(0, number), || Ok(0));
        entered.unwrap().written();
        assert_eq!(appends.0.lock()[&file()].parts.len(), 1);
    }
    appends.forget(file());
    assert_eq!(appends.len(), 0);
    assert!(appends.enter(file(), part(0, 3), || Ok(0)).is_ok());
}

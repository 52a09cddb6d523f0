//! The records of drops and reads, and a model of all concurrent accesses to one page.

mod model;

use super::*;

const PAGE: u64 = 4096;

fn pages(first: u64, count: u64) -> Span {
    Span::new(first * PAGE, count * PAGE)
}

// DROPS-1
#[test]
fn a_drop_is_noted_until_the_write_after_its_end_is_answered() {
    let mut drops = Drops::default();
    let number = drops.begin(pages(2, 1));
    assert!(drops.may_meet(pages(0, 3)) && !drops.may_meet(pages(0, 2)));
    assert_eq!(drops.take(pages(0, 8)), []);
    assert!(drops.may_meet(pages(2, 1)), "it is under way");
    drops.end(number);
    assert!(drops.may_meet(pages(2, 1)));
    drops.take(pages(0, 1));
    assert!(drops.is_empty());
}

// DROPS-2
#[test]
fn only_pages_that_were_dropped_and_read_since_may_be_old() {
    let mut drops = Drops::default();
    drops.note_read(pages(0, 8));
    let first = drops.begin(pages(1, 2));
    let second = drops.begin(pages(6, 1));
    drops.end(first);
    drops.note_read(pages(2, 3));
    assert_eq!(drops.take(pages(0, 8)), [pages(2, 1)]);
    drops.note_read(pages(0, 8));
    assert_eq!(
        drops.take(pages(0, 8)),
        [pages(6, 1)],
        "the first was over before the write before"
    );
    drops.end(second);
    drops.note_read(pages(0, 8));
    assert_eq!(drops.take(pages(0, 6)), []);
}

#[test]
fn bytes_under_a_shield_are_left_out() {
    let mut drops = Drops::default();
    assert_eq!(drops.unshielded(pages(0, 4)), [pages(0, 4)]);
    let written = [pages(1, 1), pages(3, 1)];
    drops.raise_shield(&written);
    assert_eq!(drops.unshielded(pages(0, 4)), [pages(0, 1), pages(2, 1)]);
    assert_eq!(drops.unshielded(pages(1, 1)), []);
    drops.lower_shield(&written);
    assert!(drops.is_empty());
}

//! What waits to be told, and how it grows coarse.

use super::*;

fn name(number: usize) -> Notice {
    Notice::Entry {
        dir: NodeId(1),
        name: number.to_string().into_bytes(),
    }
}

fn node(number: u64) -> Notice {
    Notice::Node {
        node: NodeId(number),
        contents: None,
    }
}

fn whole(number: u64) -> Notice {
    Notice::Node {
        node: NodeId(number),
        contents: Some((0, None)),
    }
}

fn full(has_epoch: bool) -> Waiting {
    let mut waiting = Waiting::new(has_epoch);
    for number in 0..EXACT_MAX {
        waiting.put(name(number));
    }
    waiting
}

fn taken(mut waiting: Waiting) -> Vec<Notice> {
    std::iter::from_fn(|| waiting.take()).collect()
}

#[test]
fn notices_are_told_in_order() {
    let mut waiting = Waiting::new(true);
    waiting.put(name(1));
    waiting.put(node(2));
    assert_eq!(taken(waiting), [name(1), node(2)]);
}

#[test]
fn beyond_the_limit_notices_cover_more_and_none_is_lost() {
    let mut waiting = full(true);
    for number in 0..10 {
        waiting.put(name(EXACT_MAX + number));
        waiting.put(node(5));
        waiting.put(node(4));
    }
    let taken = taken(waiting);
    assert_eq!(taken.len(), EXACT_MAX + 3);
    assert_eq!(taken[EXACT_MAX..], [Notice::AllNames, whole(4), whole(5)]);
}

#[test]
fn a_kernel_without_epochs_is_told_every_name() {
    let mut waiting = full(false);
    waiting.put(name(EXACT_MAX));
    waiting.put(node(5));
    let taken = taken(waiting);
    assert_eq!(taken[EXACT_MAX..], [name(EXACT_MAX), whole(5)]);
}

#[test]
fn nothing_waits_after_the_end() {
    let mut waiting = Waiting::new(true);
    waiting.ended = true;
    waiting.put(name(1));
    assert_eq!(waiting.take(), None);
}

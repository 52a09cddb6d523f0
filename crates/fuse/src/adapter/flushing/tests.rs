//! Some requests get a turn, some wait, and some are refused.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;

#[test]
fn all_that_have_a_place_get_a_turn_and_few_at_once() {
    let flushing = Flushing::default();
    let (running, most, turned_away) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    thread::scope(|scope| {
        for _ in 0..PLACES_FOR_SEARCHES {
            scope.spawn(|| {
                for _ in 0..50 {
                    let Some(_turn) = flushing.enter(For::Search) else {
                        turned_away.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    let now = running.fetch_add(1, Ordering::Relaxed) + 1;
                    most.fetch_max(now, Ordering::Relaxed);
                    thread::yield_now();
                    running.fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(turned_away.into_inner(), 0);
    assert!(most.into_inner() <= AT_ONCE);
}

// FLUSHING-1 and FLUSHING-2.
#[test]
fn commands_find_places_that_searches_leave() {
    let flushing = Flushing::default();
    flushing.taken.lock().searches = PLACES_FOR_SEARCHES;
    assert!(flushing.enter(For::Search).is_none());
    assert!(flushing.enter(For::Command).is_some());
    flushing.taken.lock().commands = PLACES - PLACES_FOR_SEARCHES;
    assert!(flushing.enter(For::Command).is_none());
}

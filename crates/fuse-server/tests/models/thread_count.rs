//! The limit of a count of threads.

#[path = "../../src/thread_count.rs"]
mod of_threads;

use loom::sync::Arc;
use loom::thread;

use of_threads::ThreadCount;

/// THREAD-COUNT-1
#[test]
fn threads_that_grow_at_once_stay_within_the_limit() {
    loom::model(|| {
        let count = Arc::new(ThreadCount::new(2));
        assert!(count.add());
        let others = [(); 2].map(|()| {
            let count = Arc::clone(&count);
            thread::spawn(move || count.add())
        });
        let added = others.map(|other| other.join().unwrap());
        assert_eq!(added.into_iter().filter(|&added| added).count(), 1);
        assert!(!count.add());
    });
}

#[test]
fn threads_that_retire_at_once_leave_those_that_last() {
    loom::model(|| {
        let count = Arc::new(ThreadCount::new(3));
        assert!(count.add() && count.add());
        let other = {
            let count = Arc::clone(&count);
            thread::spawn(move || count.remove_above(1))
        };
        let ours = count.remove_above(1);
        assert!(ours != other.join().unwrap());
        // A place is free once a thread that could not start is not counted any more.
        assert!(count.add() && count.add() && !count.add());
        count.remove();
        assert!(count.add());
    });
}

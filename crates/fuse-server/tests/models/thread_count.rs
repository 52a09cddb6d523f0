//! Threads that are added, read, serve and retire concurrently.

#[path = "../../src/thread_count.rs"]
mod of_threads;

use loom::sync::Arc;
use loom::thread;

use of_threads::ThreadCount;

/// THREAD-COUNT-1
#[test]
fn threads_that_grow_at_once_stay_within_the_limit() {
    loom::model(|| {
        let count = Arc::new(ThreadCount::new(1, 2));
        assert!(count.add());
        let others = [(); 2].map(|()| {
            let count = Arc::clone(&count);
            thread::spawn(move || count.add())
        });
        let added = others.map(|other| other.join().unwrap());
        assert_eq!(added.into_iter().filter(|&added| added).count(), 1);
        assert!(!count.add());
        // Room is free again once a thread that could not start is uncounted.
        count.remove();
        assert!(count.add());
    });
}

#[test]
fn threads_that_retire_at_once_leave_those_that_last() {
    loom::model(|| {
        let count = Arc::new(ThreadCount::new(2, 4));
        assert!((0..4).all(|_| count.add()));
        count.begin_read();
        count.begin_read();
        // A third thread stops reading, as the connection has sent nothing.
        count.begin_read();
        count.end_read();
        let retired = |count: &ThreadCount| [(); 2].map(|()| count.retire());
        let other = {
            let count = Arc::clone(&count);
            thread::spawn(move || retired(&count))
        };
        let ours = retired(&count);
        let all = ours.into_iter().chain(other.join().unwrap());
        assert_eq!(all.filter(|&is_retired| is_retired).count(), 2);
        assert!(count.add() && count.add() && !count.add());
    });
}

/// THREAD-COUNT-2: the last reader takes a request while a thread that has served may retire.
#[test]
fn a_thread_reads_while_fewer_serve_than_may_live() {
    for limit in [2, 3] {
        loom::model(move || {
            let count = Arc::new(ThreadCount::new(1, limit));
            assert!(count.add() && count.add());
            count.begin_read();
            let serving = {
                let count = Arc::clone(&count);
                thread::spawn(move || {
                    if count.begin_serving() {
                        // The new thread.
                        count.begin_read();
                    }
                })
            };
            if !count.retire() {
                count.begin_read();
            }
            serving.join().unwrap();
            // It serves without end. Another one that has served may retire, since one reads.
            assert!(count.retire());
        });
    }
}

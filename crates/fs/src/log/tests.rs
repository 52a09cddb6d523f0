//! Sync queues with several threads, where the test controls each log. `tests/models` tries all orders of a
//! few threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use parking_lot::Mutex;

use super::sync_queue::SyncQueue;

type Queue = SyncQueue<u32>;
type Outcome = Result<(), &'static str>;

/// Waits until `waiting` requests are queued.
fn wait_for(queue: &Queue, waiting: usize) {
    while queue.state.lock().waiting.len() < waiting {
        thread::yield_now();
    }
}

/// Makes a thread begin a log, which ends with the outcome sent through the channel.
fn begin_log<'s>(
    scope: &'s thread::Scope<'s, '_>,
    queue: &'s Queue,
) -> (Sender<Outcome>, Receiver<Outcome>) {
    let (end, ends) = mpsc::channel();
    let (done, is_done) = mpsc::channel();
    let (begun, begins) = mpsc::channel();
    scope.spawn(move || {
        let outcome = queue.serve(0, |requests| {
            assert_eq!(requests, [&0]);
            begun.send(()).unwrap();
            ends.recv().unwrap()
        });
        done.send(outcome).unwrap();
    });
    begins.recv().unwrap();
    (end, is_done)
}

/// Starts `callers` during a log that ends with `first`. Returns their outcomes; `log` logs for them.
fn come_during_a_log(
    queue: &Queue,
    callers: u32,
    first: Outcome,
    log: &(impl Fn(&[&u32]) -> Outcome + Sync),
) -> Vec<Outcome> {
    thread::scope(|scope| {
        let (end, is_done) = begin_log(scope, queue);
        let callers: Vec<_> = (1..=callers)
            .map(|number| scope.spawn(move || queue.serve(number, log)))
            .collect();
        wait_for(queue, callers.len());
        end.send(first).unwrap();
        assert_eq!(is_done.recv(), Ok(first));
        let outcomes = callers.into_iter().map(|caller| caller.join().unwrap());
        outcomes.collect()
    })
}

// SYNC-QUEUE-1, SYNC-QUEUE-2
#[test]
fn those_that_came_during_a_log_share_the_next() {
    let queue = Queue::default();
    let logs = Mutex::new(Vec::new());
    let outcomes = come_during_a_log(&queue, 6, Ok(()), &|requests| {
        let mut numbers: Vec<u32> = requests.iter().map(|&&number| number).collect();
        numbers.sort_unstable();
        logs.lock().push(numbers);
        Ok(())
    });
    assert_eq!(outcomes, [Ok(()); 6]);
    assert_eq!(*logs.lock(), [[1, 2, 3, 4, 5, 6]]);
    let state = queue.state.lock();
    assert_eq!((state.crowd, state.is_led), (6, false));
}

#[test]
fn those_served_and_those_that_came_meanwhile_are_expected_together() {
    let queue = Queue::default();
    let expected = Mutex::new(0);
    let outcomes = come_during_a_log(&queue, 2, Ok(()), &|_| {
        *expected.lock() = queue.state.lock().crowd;
        Ok(())
    });
    assert_eq!(outcomes, [Ok(()); 2]);
    assert_eq!(*expected.lock(), 3);
    // The first caller did not return.
    assert_eq!(queue.state.lock().crowd, 2);
}

// SYNC-QUEUE-3
#[test]
fn failure_is_told_to_one_and_the_others_try_again() {
    let queue = Queue::default();
    let failures = Mutex::new(Vec::new());
    let outcomes = come_during_a_log(&queue, 4, Err("the first"), &|requests| {
        let mut failures = failures.lock();
        match failures.len() {
            0 | 1 => {
                failures.push(requests.len());
                Err("no room")
            }
            _ => Ok(()),
        }
    });
    assert_eq!(
        outcomes.iter().filter(|outcome| outcome.is_err()).count(),
        2
    );
    assert_eq!(*failures.lock(), [4, 3]);
}

#[test]
fn panic_of_a_log_leaves_the_turn_to_others() {
    let queue = Queue::default();
    let panics = || queue.serve(1, |_| -> Result<(), ()> { panic!("on purpose") });
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    let seen = Mutex::new(0);
    let logged = queue.serve(2, |requests| -> Result<(), ()> {
        *seen.lock() = requests.len();
        Ok(())
    });
    assert_eq!(logged, Ok(()));
    // The request of the panicked caller is logged as well.
    assert_eq!(*seen.lock(), 2);
}

//! SYNC-QUEUE-1, SYNC-QUEUE-2 and SYNC-QUEUE-3.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use loom::thread;

use crate::check;
use crate::sync::{AtomicU64, Ordering};
use crate::sync_queue::SyncQueue;

/// A volume that callers change and then sync.
#[derive(Default)]
struct Volume {
    queue: SyncQueue<u64>,
    /// A bit for the change of each caller.
    changed: AtomicU64,
    /// The logged changes.
    durable: AtomicU64,
    /// The number of callers that are logging.
    logging: AtomicU64,
    logs: AtomicU64,
}

/// The end of a log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Written,
    Failed,
    Panicked,
}

impl Volume {
    /// Makes a change and syncs it. `ends` returns how the n-th log ends.
    fn change_and_sync(&self, caller: u64, ends: fn(u64) -> End) -> Result<(), ()> {
        let mine = 1 << caller;
        self.changed.fetch_or(mine, Ordering::Relaxed);
        let synced = self
            .queue
            .serve(mine, |requests| self.log(mine, requests, ends));
        if synced.is_ok() {
            // SYNC-QUEUE-2
            assert_ne!(self.durable.load(Ordering::Relaxed) & mine, 0);
        }
        synced
    }

    fn log(&self, mine: u64, requests: &[&u64], ends: fn(u64) -> End) -> Result<(), ()> {
        // SYNC-QUEUE-1
        assert_eq!(self.logging.fetch_add(1, Ordering::Relaxed), 0);
        assert!(requests.contains(&&mine));
        let seen = self.changed.load(Ordering::Relaxed);
        let asked = requests.iter().fold(0, |bits, bit| bits | **bit);
        assert_eq!(seen & asked, asked, "the log has what it is asked for");
        let end = ends(self.logs.fetch_add(1, Ordering::Relaxed));
        if end == End::Written {
            self.durable.fetch_or(seen, Ordering::Relaxed);
        }
        self.logging.fetch_sub(1, Ordering::Relaxed);
        match end {
            End::Written => Ok(()),
            End::Failed => Err(()),
            // Without a panic message, as there are many runs.
            End::Panicked => resume_unwind(Box::new(())),
        }
    }
}

/// Syncs from several threads concurrently. Returns the number of failed syncs.
fn sync_side_by_side(volume: &Arc<Volume>, callers: u64, ends: fn(u64) -> End) -> usize {
    let sync = move |volume: &Volume, caller| {
        let synced = catch_unwind(AssertUnwindSafe(|| volume.change_and_sync(caller, ends)));
        usize::from(!matches!(synced, Ok(Ok(()))))
    };
    let others: Vec<_> = (1..callers)
        .map(|caller| {
            let volume = Arc::clone(volume);
            thread::spawn(move || sync(&volume, caller))
        })
        .collect();
    let first = sync(volume, 0);
    let others = others.into_iter().map(|other| other.join().unwrap());
    first + others.sum::<usize>()
}

/// Runs callers whose first log ends in this way, and a sync after them.
fn first_log_ends(callers: u64, preemptions: usize, ends: fn(u64) -> End, reported: usize) {
    check(preemptions, move || {
        let volume = Arc::new(Volume::default());
        assert_eq!(sync_side_by_side(&volume, callers, ends), reported);
        let logs = volume.logs.load(Ordering::Relaxed);
        assert!(logs <= callers, "{logs} logs of {callers} callers");
        assert_eq!(volume.change_and_sync(callers, |_| End::Written), Ok(()));
        assert_eq!(volume.queue.state.lock().waiting.len(), 0);
    });
}

#[test]
fn a_sync_that_returns_has_a_log_that_began_after_it() {
    first_log_ends(2, 3, |_| End::Written, 0);
    first_log_ends(3, 2, |_| End::Written, 0);
}

/// A later log serves the others.
#[test]
fn failure_of_a_log_is_told_to_one_caller() {
    first_log_ends(
        2,
        3,
        |number| [End::Failed, End::Written][number.min(1) as usize],
        1,
    );
    first_log_ends(
        3,
        2,
        |number| [End::Failed, End::Written][number.min(1) as usize],
        1,
    );
}

#[test]
fn each_failed_log_is_told_to_a_caller_of_its_own() {
    first_log_ends(
        3,
        2,
        |number| [End::Failed, End::Failed, End::Written][number.min(2) as usize],
        2,
    );
}

#[test]
fn panic_of_a_log_leaves_none_waiting() {
    first_log_ends(
        2,
        3,
        |number| [End::Panicked, End::Written][number.min(1) as usize],
        1,
    );
}

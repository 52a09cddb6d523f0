//! Group sync: one caller writes a log for all that wait.
//!
//! Callers served by the same log tend to return together, each slightly later than the one before. A log
//! that began at once would serve only the first of them. So it waits for as many callers as last time, but
//! only for a fraction of the time that a log takes.
//!
//! Callers that arrived during a log are added to those that it served. Otherwise they would form two
//! alternating groups, and each caller would wait for two logs.
//!
//! Invariants
//! - SYNC-QUEUE-1: one caller logs at a time.
//! - SYNC-QUEUE-2: a request is served by a log that began after the request was queued, and by no other.
//! - SYNC-QUEUE-3: the requests of a failed log are queued again, and another caller logs for them.
//!
//! Locks: `state` is not held during a log.

use std::sync::Arc;
use std::time::Duration;

use ubtrfs_device::clock;

use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering};

/// The longest wait for other callers.
const MAX_WAIT: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct SyncQueue<R> {
    pub(super) state: Mutex<State<R>>,
    arrived: Condvar,
    /// Notified when a log has ended.
    ended: Condvar,
}

#[derive(Debug)]
pub(super) struct State<R> {
    pub(super) waiting: Vec<Arc<Waiting<R>>>,
    pub(super) is_led: bool,
    /// The number of callers to wait for.
    pub(super) crowd: usize,
    /// The average time of a log.
    log_time: Duration,
}

#[derive(Debug)]
pub(super) struct Waiting<R> {
    request: R,
    is_served: AtomicBool,
}

impl<R> Default for SyncQueue<R> {
    fn default() -> SyncQueue<R> {
        SyncQueue {
            state: Mutex::new(State {
                waiting: Vec::new(),
                is_led: false,
                crowd: 1,
                log_time: Duration::ZERO,
            }),
            arrived: Condvar::new(),
            ended: Condvar::new(),
        }
    }
}

impl<R> SyncQueue<R> {
    /// Returns when a log has served `request`. Either another caller's log does, or this thread calls `log`
    /// with all waiting requests.
    ///
    /// Errors: the error of `log`.
    pub(super) fn serve<E>(
        &self,
        request: R,
        log: impl FnOnce(&[&R]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mine = Arc::new(Waiting {
            request,
            is_served: AtomicBool::new(false),
        });
        let mut state = self.state.lock();
        state.waiting.push(Arc::clone(&mine));
        self.arrived.notify_one();
        while state.is_led {
            self.ended.wait(&mut state);
            if mine.is_served.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        // SYNC-QUEUE-1
        state.is_led = true;
        let all_came = self.wait_for_others(&mut state);
        // SYNC-QUEUE-2
        let mut led = Led {
            queue: self,
            taken: std::mem::take(&mut state.waiting),
        };
        drop(state);
        let begin = clock::now();
        let requests: Vec<&R> = led.taken.iter().map(|taken| &taken.request).collect();
        let done = log(&requests);
        match done {
            Ok(()) => led.serve(clock::now() - begin, all_came),
            // This caller returns the error. The other requests stay in `taken` and are queued again.
            Err(_) => led.taken.retain(|taken| !Arc::ptr_eq(taken, &mine)),
        }
        done
    }

    /// Returns whether the expected number of callers arrived in time.
    fn wait_for_others(&self, state: &mut MutexGuard<'_, State<R>>) -> bool {
        let end = clock::now() + MAX_WAIT.min(state.log_time / 2);
        while state.waiting.len() < state.crowd {
            if self.arrived.wait_until(state, end).timed_out() {
                return false;
            }
        }
        true
    }
}

/// A log in progress, with its requests.
struct Led<'q, R> {
    queue: &'q SyncQueue<R>,
    taken: Vec<Arc<Waiting<R>>>,
}

impl<R> Led<'_, R> {
    /// Marks the requests as served, and records the log's duration. `all_came` is whether the wait before
    /// the log was long enough.
    fn serve(&mut self, log_time: Duration, all_came: bool) {
        let mut state = self.queue.state.lock();
        let came_during = if all_came { state.waiting.len() } else { 0 };
        state.crowd = (self.taken.len() + came_during).max(state.crowd - 1);
        state.log_time = (state.log_time * 3 + log_time) / 4;
        for served in self.taken.drain(..) {
            served.is_served.store(true, Ordering::Relaxed);
        }
    }
}

/// Also runs after a panic.
impl<R> Drop for Led<'_, R> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        // SYNC-QUEUE-3
        state.waiting.append(&mut self.taken);
        state.is_led = false;
        drop(state);
        self.queue.ended.notify_all();
    }
}

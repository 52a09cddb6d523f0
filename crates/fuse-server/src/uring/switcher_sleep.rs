//! The sleep of the thread that switches policies, and its end. `tests/models` tests both under loom.
//!
//! Invariants
//! - SLEEP-1: after `end`, no sleep and no pause of the thread lasts.
//! - SLEEP-2: a queue that serves `REQUESTS_A_LOOK` requests after the thread fell asleep wakes it.
//!
//! Not here: the work of the thread while it is awake (`sched_switcher`).

use std::time::Duration;

use crate::sync::thread::{self, Thread};
use crate::sync::{AtomicBool, AtomicU64, OnceLock, Ordering};

/// The number of requests after which a queue checks whether the thread sleeps.
pub(super) const REQUESTS_A_LOOK: u64 = 64;

#[derive(Debug, Default)]
pub(super) struct SwitcherSleep {
    thread: OnceLock<Thread>,
    asleep: AtomicBool,
    ended: AtomicBool,
}

impl SwitcherSleep {
    /// Sets the one thread that sleeps here.
    ///
    /// Its starter calls this, before queues serve and before `end`. If the thread did so itself, it could read an old
    /// `ended` while `end` finds no thread, and sleep on.
    pub(super) fn set_thread(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    /// Sleeps until requests arrive.
    pub(super) fn sleep(&self) {
        self.asleep.store(true, Ordering::Release);
        while self.asleep.load(Ordering::Acquire) && !self.is_ended() {
            thread::park();
        }
    }

    /// Waits for `time`. Returns whether the thread must end.
    pub(super) fn pause(&self, time: Duration) -> bool {
        thread::park_timeout(time);
        self.is_ended()
    }

    /// Makes the thread end.
    pub(super) fn end(&self) {
        // SLEEP-1: stored before the unpark, so that the woken thread sees it.
        self.ended.store(true, Ordering::Release);
        self.wake();
    }

    #[inline]
    fn wake_if_asleep(&self) {
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // An unset thread stays asleep until the next check.
        if let Some(thread) = self.thread.get() {
            self.asleep.store(false, Ordering::Release);
            thread.unpark();
        }
    }

    fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    #[cfg(test)]
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Acquire)
    }
}

/// The number of requests that a queue has served. Only its thread adds to it.
#[derive(Debug, Default)]
pub(super) struct ServedRequests(AtomicU64);

impl ServedRequests {
    #[inline]
    pub(super) fn add(&self, requests: u64, switcher: &SwitcherSleep) {
        // No other thread writes.
        let before = self.get();
        let now = before + requests;
        self.0.store(now, Ordering::Relaxed);
        // SLEEP-2
        if before / REQUESTS_A_LOOK != now / REQUESTS_A_LOOK {
            switcher.wake_if_asleep();
        }
    }

    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

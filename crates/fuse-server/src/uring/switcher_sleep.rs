//! The sleep of the thread that switches policies, and its end. `tests/models` tries both under loom.
//!
//! Invariants
//! - SLEEP-1: after `end`, no sleep and no pause of the thread lasts.
//! - SLEEP-2: a queue that serves `REQUESTS_A_LOOK` requests after the thread fell asleep wakes it.
//!
//! Not here: what the thread does while it is awake (`sched_switcher`).

use std::time::Duration;

use crate::sync::thread::{self, Thread};
use crate::sync::{AtomicBool, AtomicU64, OnceLock, Ordering};

/// A queue looks whether the thread sleeps once in so many requests.
pub(super) const REQUESTS_A_LOOK: u64 = 64;

#[derive(Debug, Default)]
pub(super) struct SwitcherSleep {
    thread: OnceLock<Thread>,
    asleep: AtomicBool,
    ended: AtomicBool,
}

impl SwitcherSleep {
    /// Names the thread that sleeps here. There is one.
    ///
    /// Its starter does so, before queues serve and before `end`. A thread that named itself could read an old `ended`
    /// while `end` finds no name, and sleep on.
    pub(super) fn set_thread(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    /// Sleeps until requests come.
    pub(super) fn sleep(&self) {
        self.asleep.store(true, Ordering::Release);
        while self.asleep.load(Ordering::Acquire) && !self.is_ended() {
            thread::park();
        }
    }

    /// Waits for so long. Returns whether the thread is to end.
    pub(super) fn pause(&self, time: Duration) -> bool {
        thread::park_timeout(time);
        self.is_ended()
    }

    /// Has the thread end.
    pub(super) fn end(&self) {
        // SLEEP-1: before the token, by which the thread sees it.
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
        // A thread without a name stays asleep until the next look.
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

/// The requests that a queue has served. Only its thread adds to them.
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

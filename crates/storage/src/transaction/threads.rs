//! The background threads of a volume: starting and stopping, wake-ups, and waiting for a freeze.
//!
//! Locks: `wake` is a leaf, and is held only briefly.
//! Not here: the work of the threads (`volume::background`).

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The threads that commit and write back, and their wake-ups.
#[derive(Debug)]
pub struct Threads {
    pub(super) wake: Mutex<Wake>,
    /// Wakes the thread that commits.
    wanted: Condvar,
    /// Wakes operations that wait for room in the delta.
    delta_freed: Condvar,
    /// Wakes the thread that writes back and evicts orphans.
    evicts: Condvar,
    /// The threads, and whether there are any.
    background: Mutex<Vec<JoinHandle<()>>>,
    has_background: AtomicBool,
    commit_interval_ns: AtomicU64,
}

/// Requests to the threads.
#[derive(Debug, Default)]
pub(super) struct Wake {
    pub(super) commit: bool,
    evict: bool,
    stop: bool,
    /// Number of wake-ups of waiting operations, which then check for room again.
    notices: u64,
    /// The number of threads that wait for more notices than a given count: (count, threads).
    #[cfg(test)]
    waiting: (u64, u64),
}

/// The reason for a wake-up of the background thread.
#[derive(Clone, Copy, Debug)]
pub enum Wakening {
    Stop,
    /// A thread waits for a commit.
    Pressed,
    /// The interval has passed.
    Due,
}

thread_local! {
    /// Whether this thread works in the background of a volume.
    static IS_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as a background thread of a volume, which may end the volume itself.
pub fn begin_background() {
    IS_BACKGROUND.set(true);
}

/// The interval at which the background thread checks for due work.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Default for Threads {
    fn default() -> Threads {
        Threads {
            wake: Mutex::default(),
            wanted: Condvar::new(),
            delta_freed: Condvar::new(),
            evicts: Condvar::new(),
            background: Mutex::default(),
            has_background: AtomicBool::new(false),
            commit_interval_ns: AtomicU64::new(u64::MAX),
        }
    }
}

impl Threads {
    /// Wakes the threads that wait for room.
    pub(crate) fn notify_frozen(&self) {
        self.wake.lock().notices += 1;
        self.delta_freed.notify_all();
    }

    /// Returns the number of notices so far.
    pub(super) fn notices(&self) -> u64 {
        self.wake.lock().notices
    }

    /// Waits until there are more notices than `seen`.
    pub(super) fn wait_beyond(&self, seen: u64) {
        let mut wake = self.wake.lock();
        #[cfg(test)]
        if wake.notices == seen {
            let (since, others) = wake.waiting;
            wake.waiting = (seen, if since == seen { others + 1 } else { 1 });
        }
        while wake.notices == seen {
            self.delta_freed.wait(&mut wake);
        }
    }

    /// Returns the number of threads that have seen all notices so far and wait for another.
    #[cfg(test)]
    pub(super) fn waiting_for_notice(&self) -> u64 {
        let wake = self.wake.lock();
        let (since, waiting) = wake.waiting;
        if since == wake.notices { waiting } else { 0 }
    }

    /// Wakes the background thread for a commit.
    pub fn want_commit(&self) {
        self.wake.lock().commit = true;
        self.wanted.notify_one();
    }

    pub fn has_background(&self) -> bool {
        self.has_background.load(Ordering::Relaxed)
    }

    pub fn add_background(&self, thread: JoinHandle<()>) {
        self.background.lock().push(thread);
        self.has_background.store(true, Ordering::Relaxed);
    }

    /// Stops the background threads, and waits for them, except for the calling thread.
    pub(crate) fn stop(&self) {
        self.has_background.store(false, Ordering::Relaxed);
        let mut wake = self.wake.lock();
        wake.stop = true;
        // Without a background thread, a thread that waits for room commits by itself.
        wake.notices += 1;
        self.delta_freed.notify_all();
        drop(wake);
        self.wanted.notify_one();
        self.evicts.notify_one();
        let threads = std::mem::take(&mut *self.background.lock());
        // `std` would make a handle for a thread of a program in C, and would not free it when the program ends.
        let own = IS_BACKGROUND.get().then(|| thread::current().id());
        for thread in threads {
            if Some(thread.thread().id()) != own && thread.join().is_err() {
                tracing::error!("a background thread has panicked");
            }
        }
    }

    /// Wakes the background thread for the eviction of orphan inodes.
    pub fn want_eviction(&self) {
        self.wake.lock().evict = true;
        self.evicts.notify_one();
    }

    /// Waits for a request, for at most `within`. Returns false if the volume is being closed.
    pub fn next_eviction(&self, within: Duration) -> bool {
        let mut wake = self.wake.lock();
        if !wake.evict && !wake.stop {
            self.evicts.wait_for(&mut wake, within);
        }
        wake.evict = false;
        !wake.stop
    }

    pub fn next_wake(&self) -> Wakening {
        let mut wake = self.wake.lock();
        if !wake.commit && !wake.stop {
            self.wanted
                .wait_for(&mut wake, self.commit_interval().min(LOOK_EVERY));
        }
        match *wake {
            Wake { stop: true, .. } => Wakening::Stop,
            Wake { commit: true, .. } => {
                wake.commit = false;
                Wakening::Pressed
            }
            _ => Wakening::Due,
        }
    }

    /// Returns the maximum time that a change stays uncommitted.
    pub fn commit_interval(&self) -> Duration {
        Duration::from_nanos(self.commit_interval_ns.load(Ordering::Relaxed))
    }

    /// Sets the interval between commits.
    pub fn set_commit_interval(&self, interval: Duration) {
        let ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        self.commit_interval_ns.store(ns, Ordering::Relaxed);
        // A thread that waits with the old interval must check again.
        let _wake = self.wake.lock();
        self.evicts.notify_one();
    }
}

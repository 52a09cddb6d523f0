//! Discards of free space: in the background, in commits, and on request.
//!
//! Each block group tracks its freed space until it is discarded (`space::block_group::trim`), and the group waits in
//! the queue. The background thread discards one region at a time. Neither operations nor commits wait for it.
//!
//! Invariants
//! - ASYNC-DISCARD-1: nothing is discarded before the superblock of the commit that freed it is durable and no reader
//!   of an older state is left (RELEASE-1). Freed extents become free space only in `Space::unpin`. The blocks of logs
//!   are not free.
//! - ASYNC-DISCARD-2: one region at a time is taken out of the free space, under `queue`. No other lock is held during
//!   the discard.
//! - ASYNC-DISCARD-3: a failed discard never fails an operation or a commit.
//! - ASYNC-DISCARD-4: after `stop`, only `finish` begins discards.
//!
//! Locks: `queue` first. It is held during IO, and by no thread that has joined a transaction or holds `committing`.
//! Not here: splitting ranges to the limits of devices (`ubtrfs_device`), the thread (`fs`).

mod finish;
mod options;
mod queue;
mod stats;
mod step;
mod sync;
mod trim;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use ubtrfs_device::{Pool, clock};

use crate::space::Space;
use queue::Queue;
use stats::DiscardCounters;

pub use options::{DiscardDelays, DiscardLimits, DiscardMode, DiscardOptions};
pub use stats::{DISCARD_SIZES, DiscardStats};
pub use step::DiscardStep;
pub use trim::TrimRequest;

/// The discards of one volume.
#[derive(Debug)]
pub struct Discard {
    space: Arc<Space>,
    pool: Arc<Pool>,
    /// A `DiscardMode`.
    mode: AtomicU8,
    iops_limit: AtomicU32,
    kbps_limit: AtomicU32,
    max_discard_size: AtomicU64,
    metadata: bool,
    at_close: Duration,
    queue: Mutex<Queue>,
    clock: Clock,
    counters: DiscardCounters,
    is_stopped: AtomicBool,
    /// Whether the background thread should check the queue again.
    wake: Mutex<bool>,
    woken: Condvar,
    has_warned: AtomicBool,
}

/// Time since the volume was opened.
#[derive(Debug)]
struct Clock {
    opened: Instant,
    /// Replaces the time in tests.
    set: Mutex<Option<Duration>>,
}

impl Clock {
    fn now(&self) -> Duration {
        self.set
            .lock()
            .unwrap_or_else(|| clock::now() - self.opened)
    }
}

impl Discard {
    pub(crate) fn new(space: Arc<Space>, pool: Arc<Pool>, options: &DiscardOptions) -> Discard {
        let discard = Discard {
            space,
            pool,
            mode: AtomicU8::new(DiscardMode::None as u8),
            iops_limit: AtomicU32::new(0),
            kbps_limit: AtomicU32::new(0),
            max_discard_size: AtomicU64::new(0),
            metadata: options.metadata,
            at_close: options.at_close,
            queue: Mutex::new(Queue::new(options.delays)),
            clock: Clock {
                opened: clock::now(),
                set: Mutex::new(None),
            },
            counters: DiscardCounters::default(),
            is_stopped: AtomicBool::new(false),
            wake: Mutex::new(false),
            woken: Condvar::new(),
            has_warned: AtomicBool::new(false),
        };
        discard.set_limits(options.limits);
        discard.set_mode(options.mode);
        discard
    }

    /// Returns the mode in effect: the requested one, or `DiscardMode::None` if no device supports discards.
    pub fn mode(&self) -> DiscardMode {
        match self.mode.load(Ordering::Acquire) {
            mode if mode == DiscardMode::Async as u8 => DiscardMode::Async,
            mode if mode == DiscardMode::Sync as u8 => DiscardMode::Sync,
            _ => DiscardMode::None,
        }
    }

    /// Returns whether a device is known to support discards.
    pub fn is_possible(&self) -> bool {
        self.pool.can_discard()
    }

    /// Changes the mode. None selects async if a device supports discards. Waits for a background discard in progress.
    /// Space that was waiting stays marked as untrimmed, and the background discards it once the mode is async again.
    pub fn set_mode(&self, mode: Option<DiscardMode>) {
        let default = || {
            if self.is_possible() {
                DiscardMode::Async
            } else {
                DiscardMode::None
            }
        };
        let mode = mode.unwrap_or_else(default);
        if mode != DiscardMode::None && !self.is_possible() {
            tracing::warn!("discard has no effect: no device of the volume takes discards");
        }
        let mut queue = self.queue.lock();
        self.mode.store(mode as u8, Ordering::Release);
        let is_async = mode == DiscardMode::Async;
        // The regions stay marked as untrimmed in their groups. A later switch to async queues them again.
        if !is_async {
            queue.clear();
            self.space.forget_listed_untrimmed();
        }
        self.space.track_trims(is_async, self.metadata);
        drop(queue);
        self.poke();
    }

    pub fn limits(&self) -> DiscardLimits {
        DiscardLimits {
            iops_limit: self.iops_limit.load(Ordering::Relaxed),
            kbps_limit: self.kbps_limit.load(Ordering::Relaxed),
            max_discard_size: self.max_discard_size.load(Ordering::Relaxed),
        }
    }

    /// Sets the limits, which apply to the next discard.
    pub fn set_limits(&self, limits: DiscardLimits) {
        self.iops_limit.store(limits.iops_limit, Ordering::Relaxed);
        self.kbps_limit.store(limits.kbps_limit, Ordering::Relaxed);
        self.max_discard_size
            .store(limits.max_discard_size, Ordering::Relaxed);
        // The current pause was computed from the old limits.
        self.queue.lock().pause_until(Duration::ZERO);
        self.poke();
    }

    pub fn stats(&self) -> DiscardStats {
        let untrimmed = self.space.untrimmed();
        DiscardStats {
            discardable_extents: untrimmed.extents,
            discardable_bytes: untrimmed.bytes,
            discard_bytes_saved: untrimmed.saved_bytes,
            ..self.counters.stats()
        }
    }

    /// Wakes the background thread, because a commit has freed space or the settings have changed.
    pub(crate) fn poke(&self) {
        *self.wake.lock() = true;
        self.woken.notify_all();
    }

    /// Waits until `poke` is called, or for at most `at_most`.
    pub fn wait(&self, at_most: Option<Duration>) {
        let mut wake = self.wake.lock();
        match at_most {
            _ if *wake => {}
            Some(at_most) => {
                self.woken.wait_for(&mut wake, at_most);
            }
            None => self.woken.wait(&mut wake),
        }
        *wake = false;
    }

    /// Prevents further discards (ASYNC-DISCARD-4). Does not wait for a discard in progress.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.poke();
    }

    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Waits for a discard in progress.
    pub fn wait_until_idle(&self) {
        drop(self.queue.lock());
    }

    /// Counts a region that was not discarded. Only the first failure is logged.
    fn note_failure(&self, error: &dyn std::fmt::Display) {
        self.counters.errors.fetch_add(1, Ordering::Relaxed);
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "a discard failed; the space stays as it is, later failures are only counted");
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl Discard {
    /// Sets the time since the opening.
    pub fn set_clock(&self, now: Duration) {
        *self.clock.set.lock() = Some(now);
    }
}

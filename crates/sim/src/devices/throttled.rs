//! A device with slow writes: limited to a rate, or blocked until they are released.
//!
//! Reads take no time, as if cached. Discards take no time unless configured, and are never blocked.
//!
//! Locks: the state's, a leaf, not held while a write waits for its turn.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use ubtrfs_device::{BlockDevice, DeviceRead, DiscardGeometry};

use super::discard_time::DiscardTime;

/// The speed of a [`ThrottledDevice`].
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub bytes_per_second: u64,
    pub flush: Duration,
}

#[derive(Debug)]
pub struct ThrottledDevice {
    inner: Arc<dyn BlockDevice>,
    rate: Option<Rate>,
    discards: Option<DiscardTime>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The requests that are blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Nothing,
    All,
    /// The next request only.
    Next,
    /// A single blocked request; later ones pass.
    One,
}

#[derive(Debug)]
struct State {
    held: Held,
    /// Number of blocked writes and flushes.
    waiting: usize,
    /// The time at which all requests so far are complete.
    done_at: Instant,
}

impl ThrottledDevice {
    /// Creates a slow device. Without a rate, a write takes no time unless it is blocked.
    pub fn new(inner: Arc<dyn BlockDevice>, rate: Option<Rate>) -> ThrottledDevice {
        ThrottledDevice {
            inner,
            rate,
            discards: None,
            state: Mutex::new(State {
                held: Held::Nothing,
                waiting: 0,
                done_at: Instant::now(),
            }),
            changed: Condvar::new(),
        }
    }

    /// Enables the latency of discards. Later writes and flushes wait until they are complete.
    pub fn slow_discards(mut self, time: DiscardTime) -> ThrottledDevice {
        self.discards = Some(time);
        self
    }

    /// Holds all writes and flushes until `release`.
    pub fn hold(&self) {
        self.state.lock().held = Held::All;
    }

    /// Holds the next write or flush until `release`, but not later ones.
    pub fn hold_next(&self) {
        self.state.lock().held = Held::Next;
    }

    pub fn release(&self) {
        self.state.lock().held = Held::Nothing;
        self.changed.notify_all();
    }

    /// Waits until a thread is blocked.
    pub fn wait_for_waiter(&self) {
        let mut state = self.state.lock();
        while state.waiting == 0 {
            self.changed.wait(&mut state);
        }
    }

    fn wait(&self, state: &mut MutexGuard<'_, State>, held: Held) {
        state.waiting += 1;
        self.changed.notify_all();
        while state.held == held {
            self.changed.wait(state);
        }
        state.waiting -= 1;
    }

    fn pass(&self, takes: impl FnOnce(Rate) -> Duration) {
        let mut state = self.state.lock();
        if state.held == Held::Next {
            state.held = Held::One;
            self.wait(&mut state, Held::One);
        } else if state.held == Held::All {
            self.wait(&mut state, Held::All);
        }
        match (self.rate, self.discards) {
            (Some(rate), _) => take_turn(state, takes(rate)),
            // Waits for incomplete discards.
            (None, Some(_)) => take_turn(state, Duration::ZERO),
            (None, None) => {}
        }
    }
}

/// Waits until all earlier requests are complete, plus the time of this one.
fn take_turn(mut state: MutexGuard<'_, State>, takes: Duration) {
    let now = Instant::now();
    state.done_at = state.done_at.max(now) + takes;
    let rest = state.done_at - now;
    drop(state);
    thread::sleep(rest);
}

impl BlockDevice for ThrottledDevice {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buf, offset)
    }

    fn read_batch(&self, reads: &mut [DeviceRead<'_>]) {
        self.inner.read_batch(reads);
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.pass(|rate| Duration::from_secs_f64(buf.len() as f64 / rate.bytes_per_second as f64));
        self.inner.write_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.pass(|rate| rate.flush);
        self.inner.flush()
    }

    fn discard_geometry(&self) -> Option<DiscardGeometry> {
        self.inner.discard_geometry()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        if let Some(time) = self.discards {
            take_turn(self.state.lock(), time.of(len));
        }
        self.inner.discard(offset, len)
    }
}

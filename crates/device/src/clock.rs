//! The monotonic clock and sleeping. `clippy.toml` forbids both everywhere else.
//!
//! Not here: the time of day (`ubtrfs_format::item::FileTime`).

use std::thread;
use std::time::{Duration, Instant};

/// Returns the current time, for measurements and timeouts.
#[inline]
#[expect(clippy::disallowed_methods, reason = "the only place")]
pub fn now() -> Instant {
    Instant::now()
}

/// Sleeps before the next poll. Use it only where no wake-up is possible: for files, locks and devices of other
/// processes, and for threads that exit without a lock.
#[expect(clippy::disallowed_methods, reason = "the one place that sleeps")]
pub fn sleep(pause: Duration) {
    thread::sleep(pause);
}

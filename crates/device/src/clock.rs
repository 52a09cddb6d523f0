//! The monotonic clock, and pauses. `clippy.toml` has everything ask it and sleep here.
//!
//! Not here: the time of day (`ubtrfs_format::item::FileTime`).

use std::thread;
use std::time::{Duration, Instant};

/// Returns the present, to measure and to wait by.
#[inline]
#[expect(clippy::disallowed_methods, reason = "the one place that asks")]
pub fn now() -> Instant {
    Instant::now()
}

/// Pauses this thread before it looks again. Only for what can wake nobody: files, locks and devices that others have,
/// and readers and operations that leave without a lock.
#[expect(clippy::disallowed_methods, reason = "the one place that sleeps")]
pub fn sleep(pause: Duration) {
    thread::sleep(pause);
}

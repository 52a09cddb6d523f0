//! The monotonic clock. `clippy.toml` has everything ask it here.
//!
//! Not here: the clock of the layers that know btrfs (`ubtrfs_device::clock`), which this crate does not name.

use std::time::Instant;

/// Returns the present, to measure and to wait by.
#[inline]
#[expect(clippy::disallowed_methods, reason = "the one place that asks")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

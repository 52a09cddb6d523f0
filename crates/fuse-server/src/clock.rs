//! The monotonic clock. `clippy.toml` forbids other uses of the system clock in this crate.
//!
//! Not here: the clock of the btrfs layers (`ubtrfs_device::clock`), on which this crate does not depend.

use std::time::Instant;

/// Returns the current time, for measurements and timeouts.
#[inline]
#[expect(clippy::disallowed_methods, reason = "the only place")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

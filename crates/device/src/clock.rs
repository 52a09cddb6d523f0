//! The monotonic clock. `clippy.toml` has everything ask it here.
//!
//! Not here: the time of day (`ubtrfs_format::item::FileTime`).

use std::time::Instant;

/// Returns the present, to measure and to wait by.
#[inline]
#[expect(clippy::disallowed_methods, reason = "the one place that asks")]
pub fn now() -> Instant {
    Instant::now()
}

//! Whether devices are read now, for work that leaves them to others.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Pool;

/// Reads that have begun and ended since the pool was opened.
#[derive(Debug, Default)]
pub(super) struct ReadCounters {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A read under way.
#[must_use]
pub(super) struct Reading<'p>(&'p ReadCounters);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl ReadCounters {
    pub(super) fn begin(&self) -> Reading<'_> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Reading(self)
    }
}

impl Pool {
    /// Returns how many reads have begun since the pool was opened. A read that is tried again may count twice.
    pub fn reads_begun(&self) -> u64 {
        self.reads.begun.load(Ordering::Relaxed)
    }

    /// Says whether a read is under way.
    pub fn is_reading(&self) -> bool {
        let ended = self.reads.ended.load(Ordering::Relaxed);
        self.reads_begun() > ended
    }
}

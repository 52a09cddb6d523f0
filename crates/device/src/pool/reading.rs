//! Detection of foreground reads, so that background work can yield to them.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Pool;

/// Numbers of reads begun and ended since the pool was opened.
#[derive(Debug, Default)]
pub(super) struct ReadCounters {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A read in progress.
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
    /// Returns how many reads have begun since the pool was opened. A retried read may count twice.
    pub fn reads_begun(&self) -> u64 {
        self.reads.begun.load(Ordering::Relaxed)
    }

    /// Returns whether a read is in progress.
    pub fn is_reading(&self) -> bool {
        let ended = self.reads.ended.load(Ordering::Relaxed);
        self.reads_begun() > ended
    }
}

//! Number and duration of waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ubtrfs_device::clock;

/// Waits of one kind since the volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Including current waits.
    pub count: u64,
    /// Total nanoseconds of completed waits.
    pub ns: u64,
}

#[derive(Debug, Default)]
pub(crate) struct WaitCounter {
    count: AtomicU64,
    ns: AtomicU64,
}

/// A wait in progress. A drop ends it.
#[derive(Debug)]
pub struct Waiting<'c> {
    counter: &'c WaitCounter,
    since: Instant,
}

impl WaitCounter {
    pub(crate) fn begin(&self) -> Waiting<'_> {
        self.count.fetch_add(1, Ordering::Relaxed);
        Waiting {
            counter: self,
            since: clock::now(),
        }
    }

    pub(crate) fn so_far(&self) -> Waits {
        Waits {
            count: self.count.load(Ordering::Relaxed),
            ns: self.ns.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let waited = (clock::now() - self.since).as_nanos() as u64;
        self.counter.ns.fetch_add(waited, Ordering::Relaxed);
    }
}

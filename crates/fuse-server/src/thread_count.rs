//! A count of threads with a limit. `tests/models` tries it under loom.
//!
//! Invariants
//! - THREAD-COUNT-1: the count never exceeds the limit, whichever threads add at the same time.

use crate::sync::{AtomicUsize, Ordering};

pub(crate) struct ThreadCount {
    count: AtomicUsize,
    limit: usize,
}

impl ThreadCount {
    pub(crate) fn new(limit: usize) -> ThreadCount {
        ThreadCount {
            count: AtomicUsize::new(0),
            limit,
        }
    }

    /// Counts one more thread. Returns false if there may be none.
    pub(crate) fn add(&self) -> bool {
        // THREAD-COUNT-1: the limit and the count are looked at in one step.
        self.update(|count| (count < self.limit).then_some(count + 1))
    }

    pub(crate) fn remove(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts one thread less if there are more than `lasting`. Returns false if there are not.
    pub(crate) fn remove_above(&self, lasting: usize) -> bool {
        self.update(|count| (count > lasting).then(|| count - 1))
    }

    fn update(&self, change: impl FnMut(usize) -> Option<usize>) -> bool {
        let updated = self
            .count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        updated.is_ok()
    }
}

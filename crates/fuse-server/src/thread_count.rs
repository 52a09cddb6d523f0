//! The numbers of live and of reading threads. `tests/models` tests them under loom.
//!
//! Both are halves of one number, so that a thread checks both atomically.
//!
//! Invariants
//! - THREAD-COUNT-1: there are never more live threads than the limit, even if several are added concurrently.
//! - THREAD-COUNT-2: while fewer threads serve requests than the limit, one reads or is about to.

use crate::sync::{AtomicUsize, Ordering};

const ONE_READS: usize = 1;
const ONE_LIVES: usize = 1 << (usize::BITS / 2);

pub(crate) struct ThreadCount {
    count: AtomicUsize,
    /// The number of permanent threads.
    lasting: usize,
    limit: usize,
}

impl ThreadCount {
    pub(crate) fn new(lasting: usize, limit: usize) -> ThreadCount {
        assert!(limit < ONE_LIVES, "a limit of {limit} threads");
        ThreadCount {
            count: AtomicUsize::new(0),
            lasting,
            limit,
        }
    }

    /// Counts a new thread. Returns false at the limit.
    pub(crate) fn add(&self) -> bool {
        self.update(|count| self.has_place(count).then_some(count + ONE_LIVES))
    }

    pub(crate) fn remove(&self) {
        self.count.fetch_sub(ONE_LIVES, Ordering::Relaxed);
    }

    /// Counts a thread that begins to read.
    pub(crate) fn begin_read(&self) {
        self.count.fetch_add(ONE_READS, Ordering::Relaxed);
    }

    /// Counts a thread that stops reading without a request.
    pub(crate) fn end_read(&self) {
        self.count.fetch_sub(ONE_READS, Ordering::Relaxed);
    }

    /// Counts a thread that stops reading to serve a request. If it was the last reader, and the limit allows another
    /// thread, that thread is counted as well. Returns true then: the caller must start it.
    pub(crate) fn begin_serving(&self) -> bool {
        // THREAD-COUNT-2
        let adds = |count| reading(count) == 1 && self.has_place(count);
        let change = |count| {
            if adds(count) {
                count - ONE_READS + ONE_LIVES
            } else {
                count - ONE_READS
            }
        };
        let updated = self
            .count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                Some(change(count))
            });
        updated.is_ok_and(adds)
    }

    /// Removes a thread that served, if enough others read and live. Returns false if they do not.
    pub(crate) fn retire(&self) -> bool {
        // THREAD-COUNT-2: both conditions are checked in one step. Otherwise the last reader could take a request in
        // between, and find no room for another thread.
        self.update(|count| {
            let is_one_too_many = reading(count) >= self.lasting && living(count) > self.lasting;
            is_one_too_many.then(|| count - ONE_LIVES)
        })
    }

    /// THREAD-COUNT-1
    fn has_place(&self, count: usize) -> bool {
        living(count) < self.limit
    }

    fn update(&self, change: impl FnMut(usize) -> Option<usize>) -> bool {
        let updated = self
            .count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        updated.is_ok()
    }
}

fn living(count: usize) -> usize {
    count / ONE_LIVES
}

fn reading(count: usize) -> usize {
    count % ONE_LIVES
}

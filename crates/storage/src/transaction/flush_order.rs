//! The order of data writes and flushes. `tests/models` checks it with loom.
//!
//! Invariants
//! - WRITER-4: written data is `unflushed` until the start of a flush that covers it. Only one flush runs at a time. So
//!   if a thread has its turn and nothing is unflushed, a complete flush has begun after its write.
//! - WRITER-5: a failed flush aborts the transaction before the next flush begins, and no flush begins after an abort.
//!   Devices may have dropped written data, and no later flush reports that: the kernel reports an error of a file
//!   once. The pool tolerates a failure on devices whose mirrors have the data. The log cannot tolerate it, and checks
//!   their number (LOG-6).
//! - WRITER-6: no other flush runs between the write of a superblock and the flush that makes it durable.
//!
//! Locks: `flushing`, a leaf but for the abort.

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

#[derive(Debug, Default)]
pub(super) struct FlushOrder {
    unflushed: AtomicBool,
    /// Held during a flush, and from the write of a superblock to the end of its flush.
    pub(super) flushing: Mutex<()>,
}

impl FlushOrder {
    /// Writes data, and marks it as unflushed.
    pub(super) fn write<T>(&self, write: impl FnOnce() -> T) -> T {
        let written = write();
        // WRITER-4: after the write. Always an exchange, so that a flush sees all earlier writes.
        self.unflushed.swap(true, Ordering::AcqRel);
        written
    }

    /// Waits for other flushes, and blocks new ones until the turn ends.
    pub(super) fn begin<E>(
        &self,
        check_alive: impl FnOnce() -> Result<(), E>,
    ) -> Result<FlushTurn<'_>, E> {
        let alone = self.flushing.lock();
        // WRITER-5
        check_alive()?;
        Ok(FlushTurn {
            order: self,
            _alone: alone,
        })
    }
}

/// A thread's exclusive turn to flush.
pub(super) struct FlushTurn<'a> {
    order: &'a FlushOrder,
    _alone: MutexGuard<'a, ()>,
}

impl FlushTurn<'_> {
    /// Returns whether there may be data that no flush covers.
    pub(super) fn is_needed(&self) -> bool {
        self.order.unflushed.load(Ordering::Acquire)
    }

    /// Runs `work`, which must end with a flush. Aborts the transaction if it fails.
    pub(super) fn flush<T, E>(
        self,
        work: impl FnOnce() -> Result<T, E>,
        abort: impl FnOnce(&E),
    ) -> Result<T, E> {
        // WRITER-4: before the flush. Threads that wait for their turn then need no flush of their own.
        self.order.unflushed.swap(false, Ordering::AcqRel);
        // WRITER-5 and WRITER-6: the turn is still held.
        work().inspect_err(abort)
    }
}

//! The order of data writes and flushes. `tests/models` tries it under loom.
//!
//! Invariants
//! - WRITER-4: data that was written is `unflushed` until a flush begins that covers it. Flushes come one at a time. So a
//!   thread that has its turn and finds nothing unflushed had written before a flush began that has ended.
//! - WRITER-5: a flush that fails aborts the transaction before the next one begins, and none begins after an abort.
//!   Devices may have dropped what was written, and no later flush can tell: the kernel reports an error of a file once.
//!   The pool tolerates a failure on devices whose mirrors have the data. The log, which cannot, asks for the number of
//!   those (LOG-6).
//! - WRITER-6: no other flush is between the write of a superblock and the flush that makes it durable.
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
    /// Writes data.
    pub(super) fn write<T>(&self, write: impl FnOnce() -> T) -> T {
        let written = write();
        // WRITER-4: after the write. Always an exchange, so that a flush sees what all before have written.
        self.unflushed.swap(true, Ordering::AcqRel);
        written
    }

    /// Waits for other flushes. None begins as long as the turn lasts.
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

/// The turn of a thread to flush.
pub(super) struct FlushTurn<'a> {
    order: &'a FlushOrder,
    _alone: MutexGuard<'a, ()>,
}

impl FlushTurn<'_> {
    /// Returns whether no flush is known to cover all data.
    pub(super) fn is_needed(&self) -> bool {
        self.order.unflushed.load(Ordering::Acquire)
    }

    /// Does something that ends with a flush, and aborts if that fails.
    pub(super) fn flush<T, E>(
        self,
        work: impl FnOnce() -> Result<T, E>,
        abort: impl FnOnce(&E),
    ) -> Result<T, E> {
        // WRITER-4: before the flush. Threads that wait for their turn then need none of their own.
        self.order.unflushed.swap(false, Ordering::AcqRel);
        // WRITER-5 and WRITER-6: the turn lasts.
        work().inspect_err(abort)
    }
}

//! The order of data writes, flushes and the closing of a volume.
//!
//! Invariants
//! - WRITER-4: data that was written is `unflushed` until a flush begins that covers it. Flushes come one at a time. So a
//!   thread that holds `flushing` and finds nothing unflushed had written before a flush began that has ended.
//! - WRITER-5: a flush that fails aborts the transaction before the next one begins, and none begins after an abort.
//!   Devices may have dropped what was written, and no later flush can tell: the kernel reports an error of a file once.
//! - WRITER-6: no other flush is between the write of a superblock and the flush that makes it durable.
//!
//! Locks: `flushing`, a leaf but for the abort.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockWriteGuard};
use ubtrfs_device::nonblocking;
use ubtrfs_format::ids::Logical;
use ubtrfs_format::superblock::Superblock;

use super::failpoint::{Failpoint, reach};
use super::manager::TransactionManager;
use crate::error::Result;

/// Data on its way to the devices.
#[derive(Debug, Default)]
pub(super) struct DataFlush {
    /// Held shared while data is written, exclusively to close the volume.
    way: RwLock<()>,
    unflushed: AtomicBool,
    /// Held during a flush, and from the write of a superblock to the end of its flush.
    pub(super) flushing: Mutex<()>,
}

impl DataFlush {
    /// Returns whether data is on its way.
    pub(super) fn is_writing(&self) -> bool {
        self.way.is_locked()
    }

    /// Waits for data on its way. None is written as long as the guard lives.
    pub(super) fn stop(&self) -> RwLockWriteGuard<'_, ()> {
        self.way.write()
    }
}

impl TransactionManager {
    /// Puts data on the devices; durable after the next flush.
    pub fn write_data(&self, writes: &[(Logical, &[u8])]) -> Result<()> {
        let _open = self.data_flush.way.read();
        self.check_alive()?;
        let written = self.roots.pool().write(writes);
        // WRITER-4: after the write. Always an exchange, so that a flush sees what all before have written.
        self.data_flush.unflushed.swap(true, Ordering::AcqRel);
        Ok(written?)
    }

    /// Makes durable what was written.
    pub(super) fn flush(&self) -> Result<()> {
        let alone = self.begin_flush()?;
        self.flush_alone(&alone)
    }

    /// Makes durable what was written, if no flush is known to cover it. Waits for no commit.
    pub(super) fn flush_data(&self) -> Result<()> {
        let alone = self.begin_flush()?;
        match self.data_flush.unflushed.load(Ordering::Acquire) {
            true => {
                let flushes = &self.counters.data_flushes;
                flushes.fetch_add(1, Ordering::Relaxed);
                self.flush_alone(&alone)
            }
            false => Ok(()),
        }
    }

    /// Writes the first copy of every device's superblock, of a commit or of a log. Returns when it is durable, with all
    /// data written before.
    ///
    /// Everything that it leads to must have been flushed. The step `between_devices` is reached after each device but
    /// the last.
    pub(super) fn write_superblock(
        &self,
        superblock: &Superblock,
        between_devices: Failpoint,
    ) -> Result<()> {
        // WRITER-6
        let alone = self.begin_flush()?;
        let pool = self.roots.pool();
        self.flush_by(&alone, || {
            pool.write_first_superblocks(superblock, || reach(between_devices))
        })
    }

    /// Waits for other flushes. None begins as long as the guard lives.
    fn begin_flush(&self) -> Result<MutexGuard<'_, ()>> {
        // Before a failure would abort the transaction.
        nonblocking::check()?;
        let alone = self.data_flush.flushing.lock();
        // WRITER-5
        self.check_alive()?;
        Ok(alone)
    }

    fn flush_alone(&self, alone: &MutexGuard<'_, ()>) -> Result<()> {
        self.flush_by(alone, || Ok(self.roots.pool().flush()?))
    }

    /// Does something that ends with a flush.
    fn flush_by(
        &self,
        _alone: &MutexGuard<'_, ()>,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        // WRITER-4: before the flush. Threads that wait for `flushing` then need none of their own.
        self.data_flush.unflushed.swap(false, Ordering::AcqRel);
        // WRITER-5: the caller still holds `flushing`.
        work().inspect_err(|error| self.abort(error))
    }
}

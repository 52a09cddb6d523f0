//! The order of data writes, flushes and the closing of a volume.
//!
//! Invariants
//! - WRITER-4: data that was written is `unflushed` until a flush begins that covers it. Flushes come one at a time. So a
//!   thread that holds `flushing` and finds nothing unflushed had written before a flush began that has ended.
//! - WRITER-5: a flush that fails aborts the transaction before the next one begins. Devices may have dropped what was
//!   written, and no later flush can tell.
//!
//! Locks: `flushing`, a leaf but for the abort.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use ubtrfs_format::ids::Logical;

use super::manager::TransactionManager;
use crate::error::{Error, Result};

/// Data on its way to the devices.
#[derive(Debug, Default)]
pub(super) struct DataFlush {
    /// Held shared while data is written, exclusively to close the volume.
    way: RwLock<()>,
    unflushed: AtomicBool,
    /// Held during a flush.
    flushing: Mutex<()>,
}

impl DataFlush {
    /// Whether data is on its way.
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
        let _alone = self.data_flush.flushing.lock();
        self.flush_alone()
    }

    /// Makes durable what was written, if no flush is known to cover it. Waits for no commit.
    pub(super) fn flush_data(&self) -> Result<()> {
        let _alone = self.data_flush.flushing.lock();
        // WRITER-5
        self.check_alive()?;
        match self.data_flush.unflushed.load(Ordering::Acquire) {
            true => {
                let flushes = &self.counters.data_flushes;
                flushes.fetch_add(1, Ordering::Relaxed);
                self.flush_alone()
            }
            false => Ok(()),
        }
    }

    /// The caller holds `flushing`.
    fn flush_alone(&self) -> Result<()> {
        self.data_flush.unflushed.swap(false, Ordering::AcqRel);
        // WRITER-5
        let flushed = self.roots.pool().flush().map_err(Error::from);
        flushed.inspect_err(|error| self.abort(error))
    }
}

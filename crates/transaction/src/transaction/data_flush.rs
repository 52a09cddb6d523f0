//! Data writes, flushes and the closing of a volume.
//!
//! Not here: which flush covers what, and what none may meet (`flush_order`).

use std::sync::atomic::Ordering;

use parking_lot::{RwLock, RwLockWriteGuard};
use ubtrfs_device::{Reached, nonblocking};
use ubtrfs_format::ids::Logical;
use ubtrfs_format::superblock::Superblock;

use super::failpoint::{Failpoint, reach};
use super::flush_order::{FlushOrder, FlushTurn};
use super::manager::TransactionManager;
use crate::error::Result;

/// Data on its way to the devices.
#[derive(Debug, Default)]
pub(super) struct DataFlush {
    /// Held shared while data is written, exclusively to close the volume.
    way: RwLock<()>,
    pub(super) order: FlushOrder,
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
        let order = &self.data_flush.order;
        Ok(order.write(|| self.roots.pool().write(writes))?)
    }

    /// Puts data that has no checksums on the devices; durable after the next flush. A copy that fails is an error.
    pub fn write_unsummed_data(&self, writes: &[(Logical, &[u8])]) -> Result<()> {
        let _open = self.data_flush.way.read();
        self.check_alive()?;
        let order = &self.data_flush.order;
        Ok(order.write(|| self.roots.pool().write_unsummed(writes))?)
    }

    /// Makes durable what was written.
    pub(super) fn flush(&self) -> Result<Reached> {
        self.flush_in(self.begin_flush()?)
    }

    /// Makes durable what was written, if no flush is known to cover it. Waits for no commit.
    pub(super) fn flush_data(&self) -> Result<()> {
        let turn = self.begin_flush()?;
        if !turn.is_needed() {
            return Ok(());
        }
        let flushes = &self.counters.data_flushes;
        flushes.fetch_add(1, Ordering::Relaxed);
        self.flush_in(turn)?;
        Ok(())
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
    ) -> Result<Reached> {
        let pool = self.roots.pool();
        let write = || pool.write_first_superblocks(superblock, || reach(between_devices));
        self.begin_flush()?.flush(write, |error| self.abort(error))
    }

    /// Waits for other flushes. None begins as long as the turn lasts.
    fn begin_flush(&self) -> Result<FlushTurn<'_>> {
        // Before a failure would abort the transaction.
        nonblocking::check()?;
        self.data_flush.order.begin(|| self.check_alive())
    }

    fn flush_in(&self, turn: FlushTurn<'_>) -> Result<Reached> {
        let flush = || Ok(self.roots.pool().flush()?);
        turn.flush(flush, |error| self.abort(error))
    }
}

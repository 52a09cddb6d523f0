//! Data writes, flushes, and writes of the first copy of the superblock.
//!
//! Not here: which flush covers which write, and the exclusion of flushes (`flush_order`).

use std::sync::atomic::Ordering;

use ubtrfs_device::{Reached, nonblocking};
use ubtrfs_format::ids::Logical;
use ubtrfs_format::superblock::Superblock;

use super::failpoint::{Failpoint, reach};
use super::flush_order::FlushTurn;
use super::manager::TransactionManager;
use crate::error::Result;

impl TransactionManager {
    /// Writes data to the devices. It is durable after the next flush.
    pub fn write_data(&self, writes: &[(Logical, &[u8])]) -> Result<()> {
        let _open = self.data_flush.begin_write();
        self.check_alive()?;
        let order = &self.data_flush.order;
        Ok(order.write(|| self.roots.pool().write(writes))?)
    }

    /// Writes data without checksums. It is durable after the next flush. A failure of any copy is an error.
    pub fn write_unsummed_data(&self, writes: &[(Logical, &[u8])]) -> Result<()> {
        let _open = self.data_flush.begin_write();
        self.check_alive()?;
        let order = &self.data_flush.order;
        Ok(order.write(|| self.roots.pool().write_unsummed(writes))?)
    }

    /// Makes all data written so far durable.
    pub(super) fn flush(&self) -> Result<Reached> {
        self.flush_in(self.begin_flush()?)
    }

    /// Makes all data written so far durable, unless a flush already covers it. Does not wait for a commit.
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

    /// Writes the first copy of the superblock on every device, for a commit or a log. Returns when it is durable,
    /// together with all data written before.
    ///
    /// Everything that the superblock leads to must have been flushed. The step `between_devices` is reached after each
    /// device but the last.
    pub(super) fn write_superblock(
        &self,
        superblock: &Superblock,
        between_devices: Failpoint,
    ) -> Result<Reached> {
        let pool = self.roots.pool();
        let write = || pool.write_first_superblocks(superblock, || reach(between_devices));
        self.begin_flush()?.flush(write, |error| self.abort(error))
    }

    /// Waits for other flushes, and blocks new ones until the turn ends.
    fn begin_flush(&self) -> Result<FlushTurn<'_>> {
        // Must be first: a later failure would abort the transaction.
        nonblocking::check()?;
        self.data_flush.order.begin(|| self.check_alive())
    }

    fn flush_in(&self, turn: FlushTurn<'_>) -> Result<Reached> {
        let flush = || Ok(self.roots.pool().flush()?);
        turn.flush(flush, |error| self.abort(error))
    }
}

//! Groups of operations that become durable together.
//!
//! Not here: what keeps other threads out meanwhile (`transaction::operation_gate`).

use ubtrfs_device::nonblocking;
use ubtrfs_transaction::Entered;

use super::Volume;
use crate::error::{Error, Result};

impl Volume {
    /// Enters the gate of groups, which each change and each sync beside a group has to do. None on a volume that is
    /// only read. Waits while another thread has a group.
    pub fn enter(&self) -> Option<Entered<'_>> {
        let manager = self.inodes.transactions().ok()?;
        Some(manager.gate.enter())
    }

    /// Returns whether this thread does the work of a group.
    pub fn is_in_group(&self) -> bool {
        let manager = self.inodes.transactions();
        manager.is_ok_and(|manager| manager.gate.is_in_group())
    }

    /// Does `work`, and commits all that it did at once: a power cut leaves all of it or nothing. Within another group
    /// it is a part of that one.
    ///
    /// All other changes must come from threads that have entered the gate ([`Volume::enter`]), and wait meanwhile.
    /// Files without copy on write are excepted, as they are overwritten in place.
    ///
    /// Errors:
    /// - those of `work`, and of [`Volume::sync`];
    /// - [`Error::CommitInGroup`] for a group whose changes are more than half of the memory for deltas.
    ///
    /// Operations before an error stay, and become durable as if there were no group. Where data of a group finds no
    /// space for its items, the transaction is aborted: nothing of the group becomes durable.
    pub fn group<T, E: From<Error>>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let manager = self.inodes.transactions()?;
        nonblocking::check().map_err(Error::from)?;
        if manager.gate.is_in_group() {
            return work();
        }
        let inside = Error::Invalid("place for a group: another operation");
        let group = manager.gate.begin_group().ok_or(inside)?;
        // Data that others buffered shall not count as the group's.
        self.files.write_back_all().map_err(E::from)?;
        if !manager.has_memory_for_group() {
            manager.commit_running().map_err(Error::from)?;
        }
        let done = group.run(|| {
            let value = work()?;
            // GATE-1: what is buffered must enter the transaction of the group.
            self.files.write_back_all()?;
            self.inodes.write_times()?;
            Ok::<T, E>(value)
        })?;
        manager.commit_running().map_err(Error::from)?;
        Ok(done)
    }
}

//! Groups of operations that become durable together.
//!
//! Not here: how other threads are kept out (`transaction::operation_gate`).

use ubtrfs_device::nonblocking;
use ubtrfs_storage::Entered;

use super::Volume;
use crate::error::{Error, Result};

impl Volume {
    /// Enters the gate of groups. Required for each change and each sync outside a group. Waits while another
    /// thread runs a group. Returns None on a read-only volume.
    pub fn enter(&self) -> Option<Entered<'_>> {
        let manager = self.inodes.transactions().ok()?;
        Some(manager.gate.enter())
    }

    /// Returns whether this thread is running a group.
    pub fn is_in_group(&self) -> bool {
        let manager = self.inodes.transactions();
        manager.is_ok_and(|manager| manager.gate.is_in_group())
    }

    /// Runs `work`, and commits all its changes atomically: after a power cut, either all or none of them are
    /// there. Within another group it becomes a part of that group.
    ///
    /// All other changes must be made by threads that have entered the gate ([`Volume::enter`]), which makes
    /// them wait. Files without copy on write are excepted, as they are overwritten in place.
    ///
    /// Errors:
    /// - the errors of `work` and of [`Volume::sync`];
    /// - [`Error::CommitInGroup`] if the changes exceed half of the memory for deltas.
    ///
    /// Operations before an error are kept, and become durable as if there were no group. If data of a group
    /// finds no space for its items, the transaction is aborted, and nothing of the group becomes durable.
    pub fn group<T, E: From<Error>>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let manager = self.inodes.transactions()?;
        nonblocking::check().map_err(Error::from)?;
        if manager.gate.is_in_group() {
            return work();
        }
        let inside = Error::Invalid("place for a group: another operation");
        let group = manager.gate.begin_group().ok_or(inside)?;
        // Data that others buffered shall not count as the group's, and its loss is not the group's either.
        self.files.empty_buffers(None)?;
        if !manager.has_memory_for_group() {
            manager.commit_running().map_err(Error::from)?;
        }
        let done = group.run(|| {
            let value = work()?;
            // GATE-1: buffered data must enter the transaction of the group.
            self.files.write_back_all()?;
            self.inodes.write_times()?;
            Ok::<T, E>(value)
        })?;
        manager.commit_running().map_err(Error::from)?;
        Ok(done)
    }
}

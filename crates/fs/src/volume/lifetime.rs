//! The end of a volume: its observation, shutdown, and state.

use std::sync::Arc;

use ubtrfs_storage::Lifetime;

use super::Volume;
use crate::error::Error;

impl Volume {
    /// Returns the lifetime of a writable volume, or None for a read-only one.
    pub fn lifetime(&self) -> Option<Lifetime> {
        self.inodes
            .transactions()
            .ok()
            .map(|manager| manager.lifetime().clone())
    }

    /// Returns whether `close` has been called, or is not needed.
    pub fn is_closed(&self) -> bool {
        self.inodes
            .transactions()
            .is_ok_and(|manager| manager.is_closed())
            || !self.is_writable()
    }

    /// Returns whether a handle is being dropped in a fork of the process that opened the volume. The threads
    /// and locks belong to the parent then. The volume must not be touched, and its memory is not freed.
    pub fn is_drop_in_fork(&self) -> bool {
        self.roots.is_drop_in_fork()
    }

    /// Drops all changes that are not durable. No change is accepted and no commit begins afterwards.
    pub fn shutdown(&self, reason: &Error) {
        if let Ok(manager) = self.inodes.transactions() {
            manager.abort(reason);
        }
    }

    /// Returns the reason if a transaction was aborted, so that the volume accepts no changes.
    pub fn abort_reason(&self) -> Option<Arc<String>> {
        self.inodes.transactions().ok()?.abort_reason()
    }
}

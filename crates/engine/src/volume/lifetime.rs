//! The end of a volume: hearing of it, and bringing it about.

use std::sync::Arc;

use ubtrfs_transaction::Lifetime;

use super::Volume;
use crate::error::Error;

impl Volume {
    /// Returns the lifetime of the volume, or None if it is only read.
    pub fn lifetime(&self) -> Option<Lifetime> {
        self.inodes
            .transactions()
            .ok()
            .map(|manager| manager.lifetime().clone())
    }

    /// Returns whether `close` has been done, or is not needed.
    pub fn is_closed(&self) -> bool {
        self.inodes
            .transactions()
            .is_ok_and(|manager| manager.is_closed())
            || !self.is_writable()
    }

    /// Returns whether a handle is dropped in a fork of the process that opened the volume. The threads and the locks of
    /// the volume are the parent's then. It must be left as it is, and its memory is not freed.
    pub fn is_drop_in_fork(&self) -> bool {
        self.roots.is_drop_in_fork()
    }

    /// Gives up what is not durable: from here on nothing is entered and no commit begins.
    pub fn shutdown(&self, reason: &Error) {
        if let Ok(manager) = self.inodes.transactions() {
            manager.abort(reason);
        }
    }

    /// Returns the reason why it takes no changes any more, if a transaction was aborted.
    pub fn abort_reason(&self) -> Option<Arc<String>> {
        self.inodes.transactions().ok()?.abort_reason()
    }
}

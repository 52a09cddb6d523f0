//! Telling a mount's kernel what was received: another process may look at a subvolume before it is finished.

use std::sync::atomic::{AtomicU64, Ordering};

use ubtrfs_engine::FileId;
use ubtrfs_fuse::Changes;
use ubtrfs_stream::Watcher;

/// Changes that are sent before the kernel is waited for: changes that wait take memory.
const AT_ONCE: u64 = 1024;

#[derive(Debug)]
pub(super) struct MountWatcher {
    changes: Changes,
    sent: AtomicU64,
}

impl MountWatcher {
    pub(super) fn boxed(changes: Changes) -> Box<dyn Watcher> {
        Box::new(MountWatcher {
            changes,
            sent: AtomicU64::new(0),
        })
    }

    fn count(&self) {
        if self.sent.fetch_add(1, Ordering::Relaxed) % AT_ONCE == AT_ONCE - 1 {
            self.changes.wait();
        }
    }
}

impl Watcher for MountWatcher {
    fn entry(&self, dir: FileId, name: &[u8]) {
        self.changes.entry(dir, name);
        // A name that the kernel had not heard of is not in the listing that it keeps, either.
        self.changes.contents(dir);
        self.count();
    }

    fn file(&self, id: FileId) {
        self.changes.contents(id);
        self.count();
    }
}

impl Drop for MountWatcher {
    fn drop(&mut self) {
        self.changes.wait();
    }
}

//! Notifies a mount's kernel of received changes: another process may look at a subvolume before it is
//! complete.

use std::sync::atomic::{AtomicU64, Ordering};

use ubtrfs_fs::FileId;
use ubtrfs_fuse::Changes;
use ubtrfs_stream::Watcher;

/// The number of changes sent before waiting for the kernel, as pending changes take memory.
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
        // A name that the kernel did not know is not in its cached listing either.
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

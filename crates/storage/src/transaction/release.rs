//! Releasing the space that commits have freed, once no reader can use it (RELEASE-1).

use ubtrfs_device::clock;

use super::manager::TransactionManager;
use super::published::{READERS_TAKE, READERS_TRIES};
use crate::space::Pinned;

impl TransactionManager {
    /// Makes freed space available as far as RELEASE-1 allows.
    pub fn release_freed(&self) {
        let mut has_released = false;
        while let Some(pinned) = self.take_unread() {
            self.discard.discard_pinned(&pinned);
            self.space.unpin(pinned);
            self.pinned_by_epoch.lock().note_released();
            has_released = true;
        }
        if has_released {
            self.discard.poke();
        }
    }

    fn take_unread(&self) -> Option<Pinned> {
        self.pinned_by_epoch.lock().take_unread()
    }

    /// Releases the space freed so far. Waits for current readers, but not for slow ones.
    pub fn wait_for_readers(&self) {
        let freed = self.pinned_by_epoch.lock().count();
        for _ in 0..READERS_TRIES {
            self.release_freed();
            if self.pinned_by_epoch.lock().released >= freed {
                return;
            }
            clock::sleep(READERS_TAKE);
        }
    }
}

//! The state of a file system after one of its mounts was unmounted: mounts in other namespaces, and unsaved data.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ubtrfs_device::thread;
use ubtrfs_fs::Volume;

use super::mount_place::MountPlace;
use crate::adapter::KernelPages;

/// Reports of the server to a process that unmounts. They need no mount table, which may not have all mounts.
#[derive(Clone, Debug)]
pub struct Teardown {
    place: Arc<MountPlace>,
    written: Written,
}

impl Teardown {
    pub(super) fn new(place: Arc<MountPlace>, written: Written) -> Teardown {
        Teardown { place, written }
    }

    /// Waits for the end of the connection. Returns false if the file system is still mounted elsewhere, or in use.
    pub fn ends_within(&self, time: Duration) -> bool {
        self.place.ends_within(time)
    }

    /// Commits all data written so far. Returns false if not all of it is durable; the log has the reason.
    pub fn make_durable(&self) -> bool {
        self.written.make_durable()
    }
}

/// The data that users have written to the file system, if it is a volume.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    pub(super) pages: Weak<KernelPages>,
    pub(super) volume: Weak<Volume>,
}

impl Written {
    /// Commits all data, including the kernel's dirty pages.
    pub(super) fn make_durable(&self) -> bool {
        let Some(volume) = self.volume.upgrade().filter(|volume| volume.is_writable()) else {
            return true;
        };
        let pages = self.pages.upgrade().map(|pages| pages.write_back(None));
        if let Some(Err(error)) = &pages {
            tracing::error!(%error, "some data changed through mappings may be lost");
        }
        match volume.sync() {
            Ok(()) => {
                tracing::info!("all writes are durable");
                !matches!(pages, Some(Err(_)))
            }
            Err(error) => {
                tracing::error!(%error, "some written data may be lost");
                false
            }
        }
    }

    /// Makes the data durable on a thread of its own, which then calls `next`.
    pub(super) fn make_durable_then(&self, next: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let written = self.clone();
        let thread = thread::start("ubtrfs-sync", move || {
            written.make_durable();
            next();
        });
        thread.map(drop)
    }
}

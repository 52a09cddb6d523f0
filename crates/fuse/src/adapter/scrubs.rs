//! The scrubs that run on a mount, by device.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use ubtrfs_maintenance::scrub::ScrubControl;

/// The running scrubs.
#[derive(Debug, Default)]
pub(super) struct Scrubs {
    running: Mutex<BTreeMap<u64, Arc<ScrubControl>>>,
    ended: Condvar,
}

/// A running scrub, registered until it is dropped.
#[derive(Debug)]
pub(super) struct RunningScrub<'s> {
    scrubs: &'s Scrubs,
    devid: u64,
    pub(super) control: Arc<ScrubControl>,
}

impl Scrubs {
    /// Registers the scrub of a device. Returns None if one is running already.
    pub(super) fn begin(&self, devid: u64) -> Option<RunningScrub<'_>> {
        let mut running = self.running.lock();
        if running.contains_key(&devid) {
            return None;
        }
        let control = Arc::new(ScrubControl::default());
        running.insert(devid, Arc::clone(&control));
        Some(RunningScrub {
            scrubs: self,
            devid,
            control,
        })
    }

    /// Returns the scrub of a device.
    pub(super) fn find(&self, devid: u64) -> Option<Arc<ScrubControl>> {
        self.running.lock().get(&devid).cloned()
    }

    /// Cancels all scrubs, and waits until they have ended. Returns whether there were any.
    pub(super) fn cancel(&self) -> bool {
        let mut running = self.running.lock();
        let has_any = !running.is_empty();
        while !running.is_empty() {
            running.values().for_each(|control| control.cancel());
            self.ended.wait(&mut running);
        }
        has_any
    }
}

impl Drop for RunningScrub<'_> {
    fn drop(&mut self) {
        self.scrubs.running.lock().remove(&self.devid);
        self.scrubs.ended.notify_all();
    }
}

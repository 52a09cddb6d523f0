//! Control of a running scrub from other threads: its counts, its limits and its end.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use ubtrfs_device::DeviceScrub;

/// A handle on a scrub. It is used for one scrub.
#[derive(Debug, Default)]
pub struct ScrubControl {
    is_cancelled: AtomicBool,
    bytes_per_second: AtomicU64,
    devices: Mutex<Vec<DeviceScrub>>,
    ended: Condvar,
}

impl ScrubControl {
    /// Ends the scrub soon. It can be resumed.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
    }

    /// Returns whether the scrub was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }

    /// Returns the limit of each device in bytes per second, or 0.
    pub fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second.load(Ordering::Relaxed)
    }

    /// Sets the limit of each device in bytes per second; 0 for none.
    pub fn set_bytes_per_second(&self, limit: u64) {
        self.bytes_per_second.store(limit, Ordering::Relaxed);
    }

    /// Returns the devices so far.
    pub fn devices(&self) -> Vec<DeviceScrub> {
        self.devices.lock().clone()
    }

    pub(super) fn begin(&self, devices: Vec<DeviceScrub>) {
        *self.devices.lock() = devices;
    }

    /// Changes the state of a device.
    pub(super) fn update(&self, device_id: u64, change: impl FnOnce(&mut DeviceScrub)) {
        let mut devices = self.devices.lock();
        if let Some(device) = devices.iter_mut().find(|of| of.device_id == device_id) {
            change(device);
        }
    }

    /// Notes that a thread has ended.
    pub(super) fn wake(&self) {
        let _devices = self.devices.lock();
        self.ended.notify_all();
    }

    /// Waits until a thread ends, for at most `patience`. Returns at once if none is running.
    pub(super) fn wait(&self, running: &AtomicUsize, patience: Duration) {
        let mut devices = self.devices.lock();
        if running.load(Ordering::Acquire) > 0 {
            self.ended.wait_for(&mut devices, patience);
        }
    }
}

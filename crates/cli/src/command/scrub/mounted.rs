//! The scrub of a mount, of the kernel's btrfs or of ours, through ioctls.
//!
//! A device is scrubbed by an ioctl that returns at its end, on a separate thread. Other ioctls return its counts.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use ubtrfs::{DeviceScrub, ScrubCounts, ScrubOptions};
use ubtrfs_device::clock;

use super::outcome::Outcome;
use super::summary::Limit;
use crate::presentation::quoting::Escaped;
use crate::volume_access::ioctls::{Asked, text};

/// The time between two questions for counts.
const INTERVAL: Duration = Duration::from_millis(250);

/// The devices of a mount.
#[derive(Debug)]
pub(super) struct MountScrub {
    asked: Asked,
    pub(super) fsid: String,
    /// The ids of the devices to scrub, with their paths.
    pub(super) devices: Vec<(u64, String)>,
    used: Vec<(u64, u64)>,
    is_kernels: bool,
    /// The used bytes of all copies, unless only one device is meant.
    pub(super) total_bytes: Option<u64>,
}

impl MountScrub {
    /// Queries a mount for its devices. With `devid`, the others are left out.
    pub(super) fn new(asked: Asked, devid: Option<u64>) -> Result<MountScrub, Errno> {
        let fsid = ubtrfs::Uuid(asked.volume_info()?.fsid).to_string();
        let found = asked.devices()?.into_iter();
        let found = found.filter(|device| devid.is_none_or(|devid| device.devid.get() == devid));
        let (used_bytes, total_bytes) = space(&asked)?;
        let (mut devices, mut used) = (Vec::new(), Vec::new());
        for device in found {
            let id = device.devid.get();
            devices.push((id, Escaped(text(&device.path)).to_string()));
            // All block groups are taken to be equally full.
            let allocated = u128::from(device.bytes_used.get());
            let share = allocated * u128::from(used_bytes) / u128::from(total_bytes.max(1));
            used.push((id, u64::try_from(share).unwrap_or(u64::MAX)));
        }
        let is_kernels = asked.is_kernels()?;
        Ok(MountScrub {
            asked,
            fsid,
            devices,
            used,
            is_kernels,
            total_bytes: devid.is_none().then_some(used_bytes),
        })
    }

    fn limit_file(&self, devid: u64) -> PathBuf {
        let fsid = &self.fsid;
        format!("/sys/fs/btrfs/{fsid}/devinfo/{devid}/scrub_speed_max").into()
    }

    /// Returns the limit of a device of the kernel's mount in bytes per second; 0 for none.
    pub(super) fn limit(&self, devid: u64) -> u64 {
        let text = std::fs::read_to_string(self.limit_file(devid)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Sets the limit of a device of the kernel's mount.
    pub(super) fn set_limit(&self, devid: u64, limit: u64) -> std::io::Result<()> {
        if !self.is_kernels {
            return Err(std::io::ErrorKind::Unsupported.into());
        }
        std::fs::write(self.limit_file(devid), limit.to_string())
    }

    /// Returns the limit to show for some devices.
    pub(super) fn shown_limit(&self) -> Limit {
        let limits = self.devices.iter().map(|(id, _)| self.limit(*id));
        let limits: Vec<u64> = limits.collect();
        match limits[..] {
            [0] => Limit::Unlimited,
            [one] => Limit::Bytes(one),
            _ if limits.iter().all(|limit| *limit == 0) => Limit::Unlimited,
            _ => Limit::SomeDevices,
        }
    }

    /// Returns an estimate of the bytes on a device.
    pub(super) fn used_bytes(&self, devid: u64) -> u64 {
        let mut used = self.used.iter();
        used.find(|(id, _)| *id == devid)
            .map_or(0, |(_, used)| *used)
    }

    pub(super) fn cancel(&self) -> Result<(), Errno> {
        self.asked.cancel_scrub()
    }

    /// Runs the scrub. A limit holds until its end.
    pub(super) fn run(
        &self,
        options: &ScrubOptions,
        see: &mut dyn FnMut(&[DeviceScrub]) -> ControlFlow<()>,
    ) -> anyhow::Result<Outcome> {
        let limit = options.limit();
        let mut before = Vec::new();
        for (id, _) in self.devices.iter().filter(|_| limit > 0 && self.is_kernels) {
            before.push((*id, self.limit(*id)));
            self.set_limit(*id, limit)?;
        }
        let outcome = self.run_limited(options, see);
        for (id, limit) in before {
            self.set_limit(id, limit)?;
        }
        Ok(outcome)
    }

    fn run_limited(
        &self,
        options: &ScrubOptions,
        see: &mut dyn FnMut(&[DeviceScrub]) -> ControlFlow<()>,
    ) -> Outcome {
        let wanted = self.devices.iter().map(|(id, _)| *id);
        let wanted: Vec<u64> = wanted.filter(|id| options.includes(*id)).collect();
        let running = AtomicUsize::new(wanted.len());
        let mut devices: Vec<DeviceScrub> = Vec::new();
        let mut failed = Vec::new();
        let mut is_cancelled = false;
        thread::scope(|scope| {
            let running = &running;
            let started = wanted.iter().map(|&id| {
                let before = options.resumed_counts(id);
                let mut device = DeviceScrub::new(id, before);
                device.total_bytes = self.used_bytes(id);
                devices.push(device);
                let work = move || {
                    let done = self.asked.scrub(
                        id,
                        before.last_physical,
                        options.is_read_only(),
                        options.limit(),
                    );
                    running.fetch_sub(1, Ordering::AcqRel);
                    done
                };
                scope.spawn(work)
            });
            let started: Vec<_> = started.collect();
            while running.load(Ordering::Acquire) > 0 {
                for device in &mut devices {
                    if let Ok(counts) = self.asked.scrub_progress(device.device_id) {
                        let before = options.resumed_counts(device.device_id);
                        device.counts = joined(&before, &counts);
                    }
                }
                if see(&devices).is_break() && !is_cancelled {
                    is_cancelled = self.cancel().is_ok();
                }
                clock::sleep(INTERVAL);
            }
            for (device, thread) in devices.iter_mut().zip(started) {
                let Ok((result, counts)) = thread.join() else {
                    continue;
                };
                let before = options.resumed_counts(device.device_id);
                device.counts = joined(&before, &counts);
                match result {
                    Ok(()) => device.is_finished = true,
                    Err(Errno::CANCELED) => is_cancelled = true,
                    Err(Errno::NODEV) => device.is_missing = true,
                    Err(error) => failed.push((device.device_id, error.into())),
                }
            }
        });
        let _ = see(&devices);
        Outcome {
            devices,
            is_cancelled,
            report: None,
            failed,
        }
    }
}

/// Returns the used and the allocated bytes of all copies. As in btrfs-progs, the used part of the global reserve counts
/// once more.
fn space(asked: &Asked) -> Result<(u64, u64), Errno> {
    let spaces = asked.spaces()?;
    let (_, reserved) = spaces.reserve;
    let sums = spaces.infos.iter().fold((reserved, 0), |sums, info| {
        let profile = info.group.profile;
        let copies = profile.map_or(1, |profile| profile.copies() as u64);
        (sums.0 + info.used * copies, sums.1 + info.total * copies)
    });
    Ok(sums)
}

/// Adds the counts of a part and of the part before.
fn joined(before: &ScrubCounts, counts: &ScrubCounts) -> ScrubCounts {
    before.plus(counts)
}

//! A scrub as a whole: its threads, its observer, and its report.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use ubtrfs_device::progress::{Event, Progress, Watch};
use ubtrfs_device::{DeviceScrub, ErrorCounts};
use ubtrfs_format::ids::DevId;
use ubtrfs_fs::Volume;
use ubtrfs_storage::roots::Roots;

use super::damaged_files::damaged_files;
use super::device_pass::DevicePass;
use super::options::ScrubOptions;
use super::report::{Damage, DamageKind, DamageList, ScrubReport};
use super::shared::Shared;
use crate::error::ScrubError;

/// The time between two events.
const INTERVAL: Duration = Duration::from_millis(100);

impl Shared<'_> {
    pub(super) fn is_scrubbed(&self, devid: DevId) -> bool {
        let wanted = &self.options.devices;
        wanted.as_ref().is_none_or(|of| of.contains(&devid.0))
    }
}

/// The findings of a scrub of trees, whose error counts are not saved yet.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) report: ScrubReport,
    pub(super) errors: Vec<(DevId, ErrorCounts)>,
}

impl Findings {
    pub(super) fn has_bad_superblocks(&self) -> bool {
        self.report.totals().super_errors > 0
    }

    /// Removes the superblocks from the damage, after all were written.
    pub(super) fn superblocks_were_written(&mut self) {
        let is_left = |damage: &Damage| damage.kind != DamageKind::Superblock;
        self.report.damage.retain(is_left);
    }
}

/// Scrubs an open volume while it is in use. A scrub that repairs commits before it begins, and at its end if there are
/// error counts of devices to save.
///
/// `progress` receives [`Event::Scrub`]. A scrub that it cancels returns its report all the same.
///
/// # Errors
/// There is no such device; a change of the devices is in progress; the volume is read-only, and the scrub is not; the
/// commit failed.
pub fn scrub_volume(
    volume: &Volume,
    options: &ScrubOptions,
    progress: &mut dyn Progress,
) -> Result<ScrubReport, ScrubError> {
    if !options.read_only && !volume.is_writable() {
        return Err(ScrubError::ReadOnly);
    }
    let _turn = volume.begin_scrub()?;
    if !options.read_only {
        // The scrub reads the last commit.
        let _entered = volume.enter();
        volume.sync()?;
    }
    let mut findings = scrub_roots(volume.roots(), options, false, progress)?;
    let has_bad_superblocks = findings.has_bad_superblocks();
    if !options.read_only && (!findings.errors.is_empty() || has_bad_superblocks) {
        let _entered = volume.enter();
        volume.add_device_errors(&findings.errors)?;
        volume.sync()?;
        findings.superblocks_were_written();
    }
    let mut report = findings.report;
    damaged_files(volume, &mut report, options.max_damage);
    Ok(report)
}

/// Scrubs the committed state of trees. `is_exclusive` promises that nothing else writes to the devices.
///
/// # Errors
/// There is no such device, or a thread cannot be started.
pub(super) fn scrub_roots(
    roots: &Arc<Roots>,
    options: &ScrubOptions,
    is_exclusive: bool,
    progress: &mut dyn Progress,
) -> Result<Findings, ScrubError> {
    let shared = Shared {
        roots,
        options,
        is_exclusive,
        damage: Mutex::new(DamageList::new(options.max_damage)),
        errors: Mutex::default(),
    };
    options
        .control
        .set_bytes_per_second(options.bytes_per_second);
    options.control.begin(devices_to_scrub(&shared)?);
    let running = AtomicUsize::new(0);
    thread::scope(|scope| {
        for device in options.control.devices() {
            let devid = DevId(device.device_id);
            let Some(block) = roots.pool().device(devid) else {
                continue;
            };
            let start = device.counts.last_physical;
            let pass = DevicePass::new(&shared, devid, block, start);
            running.fetch_add(1, Ordering::AcqRel);
            let running = &running;
            let work = move || {
                let control = &pass.shared.options.control;
                if pass.run() == ControlFlow::Continue(()) {
                    control.update(devid.0, |device| device.is_finished = true);
                }
                running.fetch_sub(1, Ordering::AcqRel);
                control.wake();
            };
            let name = format!("scrub {}", devid.0);
            let started = thread::Builder::new().name(name).spawn_scoped(scope, work);
            if let Err(error) = started {
                options.control.cancel();
                return Err(ScrubError::Thread(error));
            }
        }
        observe(&shared, &running, progress);
        Ok(())
    })?;
    let errors = shared.errors.into_inner().into_iter().collect();
    let (damage, unlisted) = shared.damage.into_inner().into_parts();
    let devices = options.control.devices();
    let is_whole = devices.iter().all(|of| of.is_finished || of.is_missing);
    let report = ScrubReport {
        uuid: roots.superblock().fsid,
        devices,
        damage,
        unlisted,
        files: Vec::new(),
        are_all_files: true,
        unsaved: None,
        is_cancelled: !is_whole,
    };
    Ok(Findings { report, errors })
}

/// Reports the counts until all threads have ended.
fn observe(shared: &Shared<'_>, running: &AtomicUsize, progress: &mut dyn Progress) {
    let control = &shared.options.control;
    let mut watch = Watch::new(progress);
    loop {
        let is_last = running.load(Ordering::Acquire) == 0;
        if watch.report(&Event::Scrub(&control.devices())).is_err() {
            control.cancel();
        }
        if is_last {
            return;
        }
        control.wait(running, INTERVAL);
    }
}

/// Returns the devices with the counts of the part before, and the bytes that they have to scrub.
fn devices_to_scrub(shared: &Shared<'_>) -> Result<Vec<DeviceScrub>, ScrubError> {
    let totals = bytes_to_scrub(shared.roots);
    let all = shared.pool().devices();
    let wanted = shared.options.devices.iter().flatten();
    let mut unknown = wanted.filter(|id| !all.iter().any(|device| device.devid.0 == **id));
    if let Some(&unknown) = unknown.next() {
        return Err(ScrubError::NoDevice(unknown));
    }
    let devices = all.iter().filter(|of| shared.is_scrubbed(of.devid));
    let devices = devices.map(|device| {
        let id = device.devid.0;
        let resumed = shared.options.resumed.get(&id).copied();
        let mut scrub = DeviceScrub::new(id, resumed.unwrap_or_default());
        scrub.total_bytes = totals.get(&device.devid).copied().unwrap_or(0);
        scrub.is_missing = device.is_missing();
        scrub
    });
    Ok(devices.collect())
}

/// Estimates the bytes of data and tree blocks on each device, by the block groups. An unreadable group counts as empty.
fn bytes_to_scrub(roots: &Roots) -> BTreeMap<DevId, u64> {
    let mut totals: BTreeMap<DevId, u64> = BTreeMap::new();
    let chunks = roots.pool().chunk_map();
    let counted = roots.for_each_block_group(&mut |group| {
        let Some(chunk) = chunks.find(group.start) else {
            return;
        };
        let stripes = chunk.stripes();
        let copies = if chunk.has_parity() {
            1
        } else {
            chunk.mirrors() as u64
        };
        let share = group.used.saturating_mul(copies) / stripes.len() as u64;
        for stripe in stripes {
            *totals.entry(stripe.devid).or_default() += share;
        }
    });
    if let Err(error) = counted {
        tracing::warn!(%error, "cannot estimate the size of the scrub");
    }
    totals
}

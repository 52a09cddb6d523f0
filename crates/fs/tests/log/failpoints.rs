//! Every step of the logs and commits of a workload fails, or is the last one before the devices stop.
//!
//! A walk asserts that it reached each step of `Failpoint::ALL` except those covered by another walk.

mod devices;
mod replay;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use ubtrfs_device::{BlockDevice, DeviceError, MemDevice};
use ubtrfs_fs::{Error, FullCommitReason};
use ubtrfs_sim::{Rng, seed};
use ubtrfs_storage::testing::{Failpoint, at_failpoints};

use crate::failing::count;
use crate::workloads::{Run, Step, base, random_log};

/// Returns whether it is a step of a commit.
fn is_of_commit(point: Failpoint) -> bool {
    (Failpoint::Frozen..=Failpoint::Published).contains(&point)
}

/// Returns whether it is only reached when a volume with a log is opened.
fn is_of_replay(point: Failpoint) -> bool {
    matches!(
        point,
        Failpoint::LogFound | Failpoint::SubvolumeReplayed | Failpoint::LogReplayed
    )
}

/// Returns whether it is only reached on a volume with several devices.
fn is_between_devices(point: Failpoint) -> bool {
    matches!(
        point,
        Failpoint::SuperblockOnSomeDevices | Failpoint::LogSuperblockOnSomeDevices
    )
}

/// Returns all steps for which `is_wanted` is true.
fn those(is_wanted: impl Fn(Failpoint) -> bool) -> BTreeSet<Failpoint> {
    let all = Failpoint::ALL.iter().copied();
    all.filter(|point| is_wanted(*point)).collect()
}

/// Creates a random workload with a log, surrounded by syncs of the whole volume.
fn workload(base: &[MemDevice], rng: &mut Rng) -> Vec<Step> {
    let (mut steps, _) = random_log(base, rng);
    let (more, _) = random_log(base, rng);
    steps.push(Step::SyncAll);
    steps.extend(more);
    steps.push(Step::SyncAll);
    steps
}

fn is_sync(step: Step) -> bool {
    matches!(step, Step::Sync(_) | Step::SyncAll)
}

/// Returns the failpoints that a workload reaches, in order.
fn reached(base: &[MemDevice], steps: &[Step]) -> Vec<Failpoint> {
    let mut run = Run::begin(base, true);
    let reached = Rc::new(RefCell::new(Vec::new()));
    let all = Rc::clone(&reached);
    let hooked = at_failpoints(move |point| {
        all.borrow_mut().push(point);
        Ok(())
    });
    for step in steps {
        run.step(*step);
    }
    drop(hooked);
    run.cut()
        .unwrap_or_else(|wrong| panic!("{steps:?}: {wrong}"));
    reached.take()
}

/// Calls `at` at the `nth` failpoint of this thread, counted from 0.
fn at_nth<T: 'static>(
    nth: usize,
    at: impl Fn() -> Result<(), ubtrfs_storage::Error> + 'static,
    work: impl FnOnce() -> T,
) -> T {
    let left = Cell::new(Some(nth));
    let _hooked = at_failpoints(move |_| {
        let is_it = left.get() == Some(0);
        left.set(left.get().and_then(|left| left.checked_sub(1)));
        if is_it { at() } else { Ok(()) }
    });
    work()
}

fn planted() -> ubtrfs_storage::Error {
    ubtrfs_storage::Error::Device(DeviceError::Flush {
        path: "a failpoint".into(),
        source: io::Error::other("planted"),
    })
}

/// Returns whether a commit replaces a log that fails there.
fn is_committed_instead(point: Failpoint) -> bool {
    matches!(
        point,
        Failpoint::LogBuilt | Failpoint::LogBlocksWritten | Failpoint::LogBlocksDurable
    )
}

/// Fault numbers of superblock copies, or of a device's superblocks, that are one commit old.
pub(crate) const STALE_SUPERBLOCKS: &[u16] = &[104, 105];

fn fails_at(base: &[MemDevice], steps: &[Step], nth: usize, point: Failpoint) {
    let what = format!("{point:?}, failpoint {nth} of {steps:?}");
    let mut run = Run::begin(base, true);
    if (Failpoint::SuperblockOnSomeDevices..=Failpoint::Published).contains(&point) {
        run.excused = STALE_SUPERBLOCKS;
    }
    let refused = at_nth(
        nth,
        || Err(planted()),
        || {
            let done = steps.iter().map(|step| (*step, run.step(*step)));
            done.filter(|(step, is_done)| is_sync(*step) && !is_done)
                .count()
        },
    );
    let stats = run.volume.writer_stats().unwrap();
    let again = run.volume.sync();
    if is_committed_instead(point) {
        assert_eq!(refused, 0, "{what}");
        assert_eq!(
            stats.full_commits[FullCommitReason::Failed as usize],
            1,
            "{what}"
        );
        assert!(again.is_ok(), "{what}");
    } else {
        assert!(refused > 0, "the caller gets the error: {what}");
        assert!(matches!(again, Err(Error::Aborted(_))), "{what}");
    }
    run.cut().unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
}

/// A device that accepts no writes from some moment on, but can be read.
#[derive(Debug)]
struct Stopping {
    landed: Arc<MemDevice>,
    /// The state as of the last flush.
    durable: Mutex<MemDevice>,
    /// Whether there was a write since.
    is_dirty: AtomicBool,
    /// Shared by all devices of the volume.
    is_stopped: Arc<AtomicBool>,
}

impl Stopping {
    fn new(device: &MemDevice, is_stopped: &Arc<AtomicBool>) -> Stopping {
        Stopping {
            landed: Arc::new(device.clone()),
            durable: Mutex::new(device.clone()),
            is_dirty: AtomicBool::new(false),
            is_stopped: Arc::clone(is_stopped),
        }
    }

    fn check(&self) -> io::Result<()> {
        if self.is_stopped.load(Ordering::Relaxed) {
            Err(io::Error::other("stopped"))
        } else {
            Ok(())
        }
    }
}

impl BlockDevice for Stopping {
    fn len_bytes(&self) -> u64 {
        self.landed.len_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.landed.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.check()?;
        self.is_dirty.store(true, Ordering::Relaxed);
        self.landed.write_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.check()?;
        *self.durable.lock() = (*self.landed).clone();
        self.is_dirty.store(false, Ordering::Relaxed);
        Ok(())
    }
}

/// The devices of a volume, which stop at the same moment.
struct StoppingDevices {
    devices: Vec<Arc<Stopping>>,
    is_stopped: Arc<AtomicBool>,
}

impl StoppingDevices {
    fn new(devices: &[MemDevice]) -> StoppingDevices {
        let is_stopped = Arc::default();
        let new = |device| Arc::new(Stopping::new(device, &is_stopped));
        StoppingDevices {
            devices: devices.iter().map(new).collect(),
            is_stopped,
        }
    }

    fn through(&self) -> Vec<Arc<dyn BlockDevice>> {
        let share = |device: &Arc<Stopping>| Arc::clone(device) as Arc<dyn BlockDevice>;
        self.devices.iter().map(share).collect()
    }

    fn landing(&self) -> Vec<Arc<MemDevice>> {
        let share = |device: &Arc<Stopping>| Arc::clone(&device.landed);
        self.devices.iter().map(share).collect()
    }

    /// Returns the contents of the devices if all writes have landed.
    fn landed(&self) -> Vec<MemDevice> {
        let copy = |device: &Arc<Stopping>| (*device.landed).clone();
        self.devices.iter().map(copy).collect()
    }

    /// Returns the contents of the devices if only flushed writes have landed.
    fn durable(&self) -> Vec<MemDevice> {
        let copy = |device: &Arc<Stopping>| device.durable.lock().clone();
        self.devices.iter().map(copy).collect()
    }

    fn is_dirty(&self) -> bool {
        let mut devices = self.devices.iter();
        devices.any(|device| device.is_dirty.load(Ordering::Relaxed))
    }

    /// Returns a function that stops the devices.
    fn stop(&self) -> impl Fn() -> Result<(), ubtrfs_storage::Error> + 'static {
        let is_stopped = Arc::clone(&self.is_stopped);
        move || {
            is_stopped.store(true, Ordering::Relaxed);
            Ok(())
        }
    }
}

/// Returns whether all earlier writes are durable at this step.
fn is_durable(point: Failpoint) -> bool {
    matches!(
        point,
        Failpoint::BlocksDurable
            | Failpoint::SuperblockDurable
            | Failpoint::LogBlocksDurable
            | Failpoint::LogSuperblockDurable
    )
}

fn stops_at(base: &[MemDevice], steps: &[Step], nth: usize, point: Failpoint) {
    let what = format!("{point:?}, failpoint {nth} of {steps:?}");
    let devices = StoppingDevices::new(base);
    let mut run = Run::begin_on(devices.landing(), devices.through(), true);
    // The next flush makes the other copies durable.
    run.excused = STALE_SUPERBLOCKS;
    at_nth(nth, devices.stop(), || {
        for step in steps {
            run.step(*step);
        }
    });
    if is_durable(point) {
        assert!(!devices.is_dirty(), "{what}");
    }
    run.cut()
        .unwrap_or_else(|wrong| panic!("{what}, all landed: {wrong}"));
    run.cut_of(devices.durable())
        .unwrap_or_else(|wrong| panic!("{what}, as flushed: {wrong}"));
}

/// Calls `each` at every failpoint of some workloads on the devices.
fn at_every_failpoint(
    test: &str,
    base: &[MemDevice],
    workloads: usize,
    each: fn(&[MemDevice], &[Step], usize, Failpoint),
) {
    let mut rng = Rng::new(seed(test));
    let mut seen = BTreeSet::new();
    let mut tried = 0;
    for _ in 0..workloads {
        let steps = workload(base, &mut rng);
        for (nth, point) in reached(base, &steps).into_iter().enumerate() {
            each(base, &steps, nth, point);
            seen.insert(point);
            tried += 1;
        }
    }
    println!("{tried} failpoints");
    let is_wanted = |point| !is_of_replay(point) && (base.len() > 1 || !is_between_devices(point));
    assert_eq!(seen, those(is_wanted));
}

/// COMMIT-2, LOG-3
#[test]
fn step_that_fails_is_told_and_loses_nothing_that_was_synced() {
    let test = "step_that_fails_is_told_and_loses_nothing_that_was_synced";
    at_every_failpoint(test, &base(), count(6, 300), fails_at);
}

/// COMMIT-1, LOG-1, LOG-5
#[test]
fn stop_at_a_step_loses_nothing_that_was_synced() {
    let test = "stop_at_a_step_loses_nothing_that_was_synced";
    at_every_failpoint(test, &base(), count(6, 300), stops_at);
}

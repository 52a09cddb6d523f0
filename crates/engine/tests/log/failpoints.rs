//! Each step of the logs and commits of a workload, which fails or is the last before the devices stop.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use ubtrfs_device::{BlockDevice, DeviceError, MemDevice};
use ubtrfs_engine::{Error, Unlogged};
use ubtrfs_sim::{Rng, seed};
use ubtrfs_transaction::testing::{Failpoint, at_failpoints};

use crate::failing::count;
use crate::workloads::{Run, Step, base, random_log};

/// All of them.
const STEPS: usize = 12;

/// Creates a random workload with a log, and syncs of the whole volume around it.
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
    at: impl Fn() -> Result<(), ubtrfs_transaction::Error> + 'static,
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

fn planted() -> ubtrfs_transaction::Error {
    ubtrfs_transaction::Error::Device(DeviceError::Flush {
        path: "a failpoint".into(),
        source: io::Error::other("planted"),
    })
}

/// Returns whether a commit takes the place of the log that fails there.
fn is_committed_instead(point: Failpoint) -> bool {
    matches!(
        point,
        Failpoint::LogBuilt | Failpoint::LogBlocksWritten | Failpoint::LogBlocksDurable
    )
}

/// The number of the fault that other copies of the superblock are behind.
const STALE_SUPERBLOCK: u16 = 104;

fn fails_at(base: &[MemDevice], steps: &[Step], nth: usize, point: Failpoint) {
    let what = format!("{point:?}, failpoint {nth} of {steps:?}");
    let mut run = Run::begin(base, true);
    if (Failpoint::SuperblockDurable..=Failpoint::Published).contains(&point) {
        run.excused = &[STALE_SUPERBLOCK];
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
        assert_eq!(stats.unlogged[Unlogged::Failed as usize], 1, "{what}");
        assert!(again.is_ok(), "{what}");
    } else {
        assert!(refused > 0, "the caller is told: {what}");
        assert!(matches!(again, Err(Error::Aborted(_))), "{what}");
    }
    run.cut().unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
}

/// A device that takes no more requests to change it from some moment on. It can be read.
#[derive(Debug)]
struct Stopping {
    landed: Arc<MemDevice>,
    /// The state that a flush has made durable.
    durable: Mutex<MemDevice>,
    /// A write came since.
    is_dirty: AtomicBool,
    is_stopped: AtomicBool,
}

impl Stopping {
    fn new(device: &MemDevice) -> Stopping {
        Stopping {
            landed: Arc::new(device.clone()),
            durable: Mutex::new(device.clone()),
            is_dirty: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
        }
    }

    fn check(&self) -> io::Result<()> {
        match self.is_stopped.load(Ordering::Relaxed) {
            true => Err(io::Error::other("stopped")),
            false => Ok(()),
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

/// Returns whether all that was written before it is durable.
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
    let device = Arc::new(Stopping::new(&base[0]));
    let through = Arc::clone(&device) as Arc<dyn BlockDevice>;
    let mut run = Run::begin_on(vec![Arc::clone(&device.landed)], vec![through], true);
    // The other copies become durable with the next flush.
    run.excused = &[STALE_SUPERBLOCK];
    let stopping = Arc::clone(&device);
    let stop = move || {
        stopping.is_stopped.store(true, Ordering::Relaxed);
        Ok(())
    };
    at_nth(nth, stop, || {
        for step in steps {
            run.step(*step);
        }
    });
    if is_durable(point) {
        assert!(!device.is_dirty.load(Ordering::Relaxed), "{what}");
    }
    run.cut()
        .unwrap_or_else(|wrong| panic!("{what}, all landed: {wrong}"));
    let durable = device.durable.lock().clone();
    run.cut_of(vec![durable])
        .unwrap_or_else(|wrong| panic!("{what}, as flushed: {wrong}"));
}

/// Does `each` at every failpoint of some workloads.
fn at_every_failpoint(test: &str, each: fn(&[MemDevice], &[Step], usize, Failpoint)) {
    let base = base();
    let mut rng = Rng::new(seed(test));
    let mut seen = BTreeSet::new();
    let mut tried = 0;
    for _ in 0..count(6, 300) {
        let steps = workload(&base, &mut rng);
        for (nth, point) in reached(&base, &steps).into_iter().enumerate() {
            each(&base, &steps, nth, point);
            seen.insert(point);
            tried += 1;
        }
    }
    println!("{tried} failpoints");
    assert_eq!(seen.len(), STEPS, "{seen:?}");
}

/// COMMIT-2, LOG-3
#[test]
fn step_that_fails_is_told_and_loses_nothing_that_was_synced() {
    let test = "step_that_fails_is_told_and_loses_nothing_that_was_synced";
    at_every_failpoint(test, fails_at);
}

/// COMMIT-1, LOG-1, LOG-5
#[test]
fn stop_at_a_step_loses_nothing_that_was_synced() {
    let test = "stop_at_a_step_loses_nothing_that_was_synced";
    at_every_failpoint(test, stops_at);
}

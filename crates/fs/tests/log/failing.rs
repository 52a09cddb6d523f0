//! Logs without space, and logs with a failing request: either a commit replaces the log, or the sync fails.

use std::sync::Arc;

use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_fs::FullCommitReason;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::fault::{Counts, Fault, FaultDevice};
use ubtrfs_sim::kernel::or_skip;
use ubtrfs_sim::{Rng, Scratch, seed};
use ubtrfs_storage::testing::{refuse_log_block, refuses_log_block};

use crate::cut::made_on;
use crate::failpoints::STALE_SUPERBLOCKS;
use crate::workloads::{Run, Step, base, base_of, is_soak, kernel_replays, random_log};

pub(crate) fn count(usual: usize, soak: usize) -> usize {
    if is_soak() { soak } else { usual }
}

/// Damaged blocks, data with a wrong checksum, and an old superblock.
const MIRROR_FAULTS: [u16; 5] = [104, 105, 113, 305, 805];

/// Runs a workload on devices, one of which may fail. Returns the requests of each device, and the number of
/// failed syncs.
fn run_on_faulty(
    base: &[MemDevice],
    steps: &[Step],
    fault: Option<(usize, Fault)>,
) -> (Vec<Counts>, usize) {
    let devices: Vec<Arc<MemDevice>> = base.iter().cloned().map(Arc::new).collect();
    let faulty: Vec<Arc<FaultDevice>> = devices
        .iter()
        .map(|device| Arc::new(FaultDevice::new(Arc::clone(device) as Arc<dyn BlockDevice>)))
        .collect();
    let through = faulty
        .iter()
        .map(|device| Arc::clone(device) as Arc<dyn BlockDevice>);
    let mut run = Run::begin_on(devices, through.collect(), true);
    if let Some((device, fault)) = &fault {
        faulty[*device].add(fault.clone());
        // Copies of the superblock may be one commit old, on one device too.
        run.excused = match base {
            [_] => STALE_SUPERBLOCKS,
            _ => &MIRROR_FAULTS,
        };
    }
    let mut refused = 0;
    for step in steps {
        if !run.step(*step) && matches!(step, Step::Sync(_)) {
            refused += 1;
        }
    }
    let counts = faulty.iter().map(|device| device.counts()).collect();
    if let Err(wrong) = run.cut() {
        panic!("{steps:?}, {fault:?}: {wrong}");
    }
    (counts, refused)
}

/// Fails each write, flush and discard of random logs, on each device.
fn requests_fail(test: &str, base: &[MemDevice], count: usize) {
    let mut rng = Rng::new(seed(test));
    let (mut faults, mut reported) = (0, 0);
    for _ in 0..count {
        let (steps, _) = random_log(base, &mut rng);
        let (before, _) = run_on_faulty(base, &[], None);
        let (after, refused) = run_on_faulty(base, &steps, None);
        assert_eq!(refused, 0, "{steps:?}");
        let is_write = |fault: &Fault| !matches!(fault, Fault::Read { .. });
        for device in 0..base.len() {
            let each = after[device].each_since(before[device]);
            for fault in each.filter(is_write) {
                let (_, refused) = run_on_faulty(base, &steps, Some((device, fault)));
                faults += 1;
                reported += usize::from(refused > 0);
            }
        }
    }
    println!("{faults} faults, {reported} of them reported by a sync");
    assert!(
        faults > reported,
        "a commit takes the place of a log that cannot be written"
    );
}

#[test]
fn requests_of_logs_that_fail_lose_nothing_that_was_synced() {
    let test = "requests_of_logs_that_fail_lose_nothing_that_was_synced";
    requests_fail(test, &base(), count(4, 300));
}

/// LOG-6
#[test]
fn requests_of_mirrored_logs_that_fail_lose_nothing_that_was_synced() {
    let options = MkfsOptions {
        data: Some(Profile::Raid1),
        metadata: Some(Profile::Raid1),
        ..MkfsOptions::default()
    };
    let base = base_of(made_on(2, &options));
    let test = "requests_of_mirrored_logs_that_fail_lose_nothing_that_was_synced";
    requests_fail(test, &base, count(2, 150));
}

/// Fails the allocation of each log block in turn: every sync succeeds with a commit.
#[test]
fn logs_without_room_lose_nothing_that_was_synced() {
    let test = "logs_without_room_lose_nothing_that_was_synced";
    let asks_kernel = or_skip(test);
    let scratch = Scratch::new().unwrap();
    let base = base();
    let mut rng = Rng::new(seed(test));
    let mut refused = 0;
    for number in 0..count(5, 300) {
        let (steps, _) = random_log(&base, &mut rng);
        for nth in 0.. {
            let what = format!("{test}: {number}: block {nth} of {steps:?}");
            let mut run = Run::begin(&base, true);
            refuse_log_block(Some(nth));
            for step in &steps {
                let done = run.step(*step);
                assert!(done || !matches!(step, Step::Sync(_)), "{what}");
            }
            let is_refused = !refuses_log_block();
            refuse_log_block(None);
            let no_room =
                run.volume.writer_stats().unwrap().full_commits[FullCommitReason::NoRoom as usize];
            assert_eq!(no_room, u64::from(is_refused), "{what}");
            let cut = run.cut().unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
            if !is_refused {
                break;
            }
            refused += 1;
            if asks_kernel && nth % 3 == 0 {
                kernel_replays(&what, &cut, scratch.path());
            }
        }
    }
    println!("{refused} blocks without room");
    assert!(refused > count(10, 600));
}

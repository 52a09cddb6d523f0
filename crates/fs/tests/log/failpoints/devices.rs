//! Steps of logs and commits on volumes with several devices, and superblocks that only some devices have.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ubtrfs_device::MemDevice;
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::kernel::or_skip;
use ubtrfs_sim::{Rng, Scratch, seed};
use ubtrfs_storage::testing::{Failpoint, at_failpoints};

use super::{
    STALE_SUPERBLOCKS, at_every_failpoint, fails_at, is_between_devices, planted, reached,
    stops_at, workload,
};
use crate::cut::made_on;
use crate::failing::count;
use crate::workloads::{Run, Step, base_of, kernel_replays, shared};

/// Returns empty volumes with several devices, and their names.
pub(super) fn empty_volumes() -> [(&'static str, Vec<MemDevice>); 2] {
    let make = |devices, data| {
        let options = MkfsOptions {
            data: Some(data),
            metadata: Some(Profile::Raid1),
            ..MkfsOptions::default()
        };
        made_on(devices, &options)
    };
    [
        ("2 devices, RAID1", make(2, Profile::Raid1)),
        ("3 devices, RAID0", make(3, Profile::Raid0)),
    ]
}

/// COMMIT-2, LOG-3
#[test]
fn step_that_fails_on_several_devices_is_told_and_loses_nothing_that_was_synced() {
    let test = "step_that_fails_on_several_devices_is_told_and_loses_nothing_that_was_synced";
    for (name, devices) in empty_volumes() {
        println!("{name}");
        at_every_failpoint(test, &base_of(devices), count(2, 100), fails_at);
    }
}

/// COMMIT-1, LOG-1, LOG-5
#[test]
fn stop_at_a_step_on_several_devices_loses_nothing_that_was_synced() {
    let test = "stop_at_a_step_on_several_devices_loses_nothing_that_was_synced";
    for (name, devices) in empty_volumes() {
        println!("{name}");
        at_every_failpoint(test, &base_of(devices), count(2, 100), stops_at);
    }
}

/// The devices before and after a superblock is written to all of them. Nothing is synced with it.
struct Write {
    run: Run,
    before: Vec<MemDevice>,
    after: Vec<MemDevice>,
}

/// Runs the steps up to the superblock write that ends at failpoint `nth`, and then makes the write fail.
fn written_up_to(base: &[MemDevice], steps: &[Step], nth: usize) -> Write {
    let devices: Vec<Arc<MemDevice>> = base.iter().cloned().map(Arc::new).collect();
    let mut run = Run::begin_on(devices.clone(), shared(&devices), true);
    let copies = Rc::new(RefCell::new((0, Vec::new(), Vec::new())));
    let taken = Rc::clone(&copies);
    let hooked = at_failpoints(move |point| {
        let copy = || devices.iter().map(|device| (**device).clone()).collect();
        let (count, before, after) = &mut *taken.borrow_mut();
        *count += 1;
        if *count == nth + 1 {
            *after = copy();
            return Err(planted());
        }
        if *count <= nth
            && matches!(
                point,
                Failpoint::BlocksDurable | Failpoint::LogBlocksDurable
            )
        {
            *before = copy();
        }
        Ok(())
    });
    for step in steps {
        run.step(*step);
    }
    drop(hooked);
    let (_, before, after) = copies.take();
    Write { run, before, after }
}

/// Checks states after cuts with the superblock on only some devices, whose caches are written in any order.
/// Calls `each` with each state.
fn superblock_on_some(
    base: &[MemDevice],
    steps: &[Step],
    nth: usize,
    mut each: impl FnMut(&str, &[MemDevice]),
) {
    let mut write = written_up_to(base, steps, nth);
    write.run.excused = STALE_SUPERBLOCKS;
    for new in 1..(1_usize << base.len()) - 1 {
        let what = format!("devices {new:#b} have superblock {nth} of {steps:?}");
        let choose = |number: usize| match new >> number & 1 {
            0 => write.before[number].clone(),
            _ => write.after[number].clone(),
        };
        let cut = (0..base.len()).map(choose).collect();
        let cut = write.run.cut_of(cut);
        each(
            &what,
            &cut.unwrap_or_else(|wrong| panic!("{what}: {wrong}")),
        );
    }
}

/// COMMIT-1, LOG-1: as in the kernel, the newest superblock is used, and among equal ones the first device's.
#[test]
fn superblock_on_any_of_the_devices_loses_nothing_that_was_synced() {
    let test = "superblock_on_any_of_the_devices_loses_nothing_that_was_synced";
    let asks_kernel = or_skip(test);
    let scratch = Scratch::new().unwrap();
    let mut rng = Rng::new(seed(test));
    for (name, devices) in empty_volumes() {
        let base = base_of(devices);
        let (mut commits, mut logs, mut asked) = (0, 0, 0);
        for _ in 0..count(2, 100) {
            let steps = workload(&base, &mut rng);
            for (nth, point) in reached(&base, &steps).into_iter().enumerate() {
                match point {
                    Failpoint::SuperblockDurable => commits += 1,
                    Failpoint::LogSuperblockDurable => logs += 1,
                    _ => continue,
                }
                superblock_on_some(&base, &steps, nth, |what, cut| {
                    if asks_kernel && rng.one_in(4) {
                        asked += 1;
                        kernel_replays(&format!("{name}: {what}"), cut, scratch.path());
                    }
                });
            }
        }
        println!("{name}: {commits} commits, {logs} logs, {asked} states for the kernel");
        assert!(commits > 1 && logs > 1);
    }
}

/// After a stop between the superblocks of two devices, the kernel mounts the volume and shows the same as
/// the engine.
#[test]
fn kernel_shows_the_same_after_a_stop_between_superblocks() {
    let test = "kernel_shows_the_same_after_a_stop_between_superblocks";
    if !or_skip(test) {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let mut rng = Rng::new(seed(test));
    for (name, devices) in empty_volumes() {
        let base = base_of(devices);
        let steps = workload(&base, &mut rng);
        let points = reached(&base, &steps).into_iter().enumerate();
        for (nth, point) in points.filter(|(_, point)| is_between_devices(*point)) {
            let what = format!("{name}: {point:?}, failpoint {nth} of {steps:?}");
            let write = written_up_to(&base, &steps, nth);
            kernel_replays(&what, &write.after, scratch.path());
        }
    }
}

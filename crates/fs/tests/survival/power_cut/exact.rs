//! Single-threaded scripts over profiles, features and shapes.

use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::compress::Compression;
use ubtrfs_fs::{Compress, OpenOptions};
use ubtrfs_sim::oracle::Rules;
use ubtrfs_sim::record::{CrashPlan, Recorder};
use ubtrfs_sim::script::{At, Data, Op, Shape, generate, path};
use ubtrfs_sim::seed;

use super::{Survivor, each_cut, history, legal, recorded};
use crate::devices::{Layout, MIB, check, discarding, quiet};
use crate::engine::Engine;
use crate::scripts::copied_on_write;
use crate::soak::count;

/// Runs a random script and cuts the power at many moments.
fn survives(name: &str, layout: &Layout, options: &OpenOptions, shape: Shape) {
    let seed = seed(name);
    let ops = generate(shape, seed, count(120, 700));
    script_survives((name, seed), layout, options, ops, count(12, 1000));
}

/// Returns the number of states that had a log.
fn script_survives(
    (name, seed): (&str, u64),
    layout: &Layout,
    options: &OpenOptions,
    ops: Vec<Op>,
    wanted: usize,
) -> usize {
    let recorder = Recorder::new();
    let devices = recorded(layout, &recorder);
    let ops = copied_on_write(ops);
    let mut engine = Engine::open(&devices, options).unwrap().exact();
    let history = history(&mut engine, &ops, &recorder);
    drop(engine);
    check(&devices).unwrap_or_else(|issues| panic!("uncut: {issues}"));

    let recording = recorder.recording();
    let flushes = recording.flushes() + 1;
    let random_states = wanted.saturating_sub(flushes).max(wanted / 2);
    let plan = CrashPlan::new(seed).random_states(random_states);
    let step = (flushes + plan.random_states).div_ceil(wanted);
    let mut logs = 0;
    let cuts = each_cut(&recording, &plan, step, |state| {
        let survivor = Survivor::open(state, options)?;
        logs += usize::from(survivor.had_log);
        legal(&history, &survivor.shown(), state, &Rules::default())?;
        survivor.stays_usable()
    });
    println!("{name}: {cuts} states, {logs} with a log, {flushes} flushes");
    logs
}

/// LOG-3 and LOG-5
#[test]
fn files_that_are_synced_between_all_operations() {
    synced_files_survive("cuts, logs", &quiet());
}

/// ASYNC-DISCARD-1: neither a block of a valid log nor data that it refers to is discarded.
#[test]
fn files_that_are_synced_on_a_volume_that_discards_in_commits() {
    synced_files_survive("cuts, logs, discards", &discarding());
}

fn synced_files_survive(name: &str, options: &OpenOptions) {
    let seed = seed(name);
    let layout = Layout::new(1, 256 * MIB);
    let at = At::Path(path("logged"));
    let logged = Op::Create {
        path: path("logged"),
        mode: 0o600,
    };
    let mut ops = vec![logged];
    let others = generate(Shape::Mixed, seed, count(120, 700));
    for (number, op) in others.into_iter().enumerate() {
        ops.push(op);
        ops.push(Op::Append {
            at: at.clone(),
            data: Data::Bytes(vec![number as u8; 100]),
        });
        ops.push(Op::Fsync { at: at.clone() });
    }
    let logs = script_survives((name, seed), &layout, options, ops, count(60, 14_000));
    assert!(logs >= count(30, 10_000), "{logs} states with a log");
}

/// COMMIT-2 and DIRTY-1
#[test]
fn mixed_work_on_one_device() {
    let layout = Layout::new(1, 256 * MIB);
    survives("cuts, mixed", &layout, &quiet(), Shape::Mixed);
}

#[test]
fn snapshots_and_their_deletion() {
    let layout = Layout::new(1, 256 * MIB);
    survives("cuts, snapshots", &layout, &quiet(), Shape::Snapshots);
}

/// ASYNC-DISCARD-1
#[test]
fn snapshots_and_their_deletion_with_discards_in_commits() {
    let layout = Layout::new(1, 256 * MIB);
    survives("cuts, discards", &layout, &discarding(), Shape::Snapshots);
}

#[test]
fn overwritten_and_shared_extents() {
    let layout = Layout::new(1, 512 * MIB).profiles(Profile::Single, Profile::Single);
    survives("cuts, big file", &layout, &quiet(), Shape::BigFile);
}

#[test]
fn many_small_files_in_small_nodes() {
    let layout = Layout::new(1, 256 * MIB).nodesize(4096);
    survives(
        "cuts, small files",
        &layout,
        &quiet(),
        Shape::ManySmallFiles,
    );
}

#[test]
fn colliding_names_and_attributes_on_raid1() {
    let layout = Layout::new(2, 256 * MIB).profiles(Profile::Raid1, Profile::Raid1);
    survives("cuts, raid1", &layout, &quiet(), Shape::CollidingNames);
}

#[test]
fn mixed_work_on_raid10() {
    let layout = Layout::new(4, 256 * MIB).profiles(Profile::Raid10, Profile::Raid10);
    survives("cuts, raid10", &layout, &quiet(), Shape::Mixed);
}

#[test]
fn snapshots_on_raid1c3_of_old_features() {
    let layout = Layout::new(3, 256 * MIB)
        .profiles(Profile::Raid0, Profile::Raid1c3)
        .features("^bgt,^no-holes,^skinny-metadata");
    survives("cuts, raid1c3", &layout, &quiet(), Shape::Snapshots);
}

#[test]
fn mixed_groups() {
    let layout = Layout::new(1, 128 * MIB).mixed();
    survives("cuts, mixed groups", &layout, &quiet(), Shape::Mixed);
}

/// COMMIT-1 and RELEASE-1
#[test]
fn chunks_that_come_and_go_on_a_full_disk() {
    let layout = Layout::new(1, 160 * MIB);
    survives("cuts, full disk", &layout, &quiet(), Shape::FullDisk);
}

/// UNALLOCATED-1
#[test]
fn chunks_that_come_and_go_with_discards_in_commits() {
    let layout = Layout::new(1, 160 * MIB);
    let options = discarding();
    survives("cuts, full, discards", &layout, &options, Shape::FullDisk);
}

#[test]
fn no_free_space_tree() {
    let layout = Layout::new(1, 256 * MIB).features("^bgt,^free-space-tree");
    survives("cuts, no free-space tree", &layout, &quiet(), Shape::Mixed);
}

#[test]
fn compressed_files() {
    let options = quiet().compress(Compress {
        algorithm: Compression::Zstd,
        level: 1,
        force: true,
    });
    let layout = Layout::new(1, 256 * MIB);
    survives("cuts, compressed", &layout, &options, Shape::BigFile);
}

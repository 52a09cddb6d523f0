//! Several threads with commits at any time. The state of each thread's files is a prefix of its own script,
//! except that unsynced data may be older.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::compress::Compression;
use ubtrfs_fs::{
    Compress, DiscardDelays, DiscardLimits, DiscardMode, DiscardStats, OpenOptions, Volume,
};
use ubtrfs_sim::oracle::{DataRule, Mark, Promise, Rules, every_sync, judge_crash, record_threads};
use ubtrfs_sim::record::{CrashPlan, CrashState, Recorder};
use ubtrfs_sim::script::{RunOptions, Shape, ThreadPlan};
use ubtrfs_sim::seed;

use super::{Survivor, each_cut, recorded};
use crate::devices::{Layout, MIB, check, quiet};
use crate::engine::Engine;
use crate::scripts::copied_on_write;
use crate::soak::count;

const THREADS: u8 = 3;

fn threads_survive(name: &str, layout: &Layout, options: &OpenOptions, shape: Shape) {
    threads_survive_beside(name, layout, options, shape, None);
}

/// Asserts that threads survive power cuts while `beside` is called repeatedly. Returns the discard counts.
fn threads_survive_beside(
    name: &str,
    layout: &Layout,
    options: &OpenOptions,
    shape: Shape,
    beside: Option<fn(&Volume)>,
) -> DiscardStats {
    let seed = seed(name);
    let recorder = Recorder::new();
    let devices = recorded(layout, &recorder);
    let in_subvolumes = shape == Shape::Snapshots;
    let mut plan = ThreadPlan::apart(shape, seed, THREADS, count(80, 500), in_subvolumes);
    for ops in &mut plan.threads {
        *ops = copied_on_write(std::mem::take(ops));
    }
    let first = Engine::open(&devices, options).unwrap();
    let mut targets: Vec<Engine> = (1..THREADS).map(|_| first.another()).collect();
    targets.push(first);
    let run = RunOptions {
        limits: layout.limits(),
        ..RunOptions::default()
    };
    let volume = Arc::clone(targets[0].volume());
    let is_done = AtomicBool::new(false);
    let histories = thread::scope(|scope| {
        scope.spawn(|| {
            while let Some(beside) = beside
                && !is_done.load(Ordering::Relaxed)
            {
                beside(&volume);
            }
        });
        let histories = record_threads(&plan, &mut targets, &recorder, &run, every_sync);
        is_done.store(true, Ordering::Relaxed);
        histories
    });
    let histories = histories.unwrap_or_else(|failure| panic!("{failure}"));
    drop(targets);
    // Otherwise a thread of the volume may commit again during the check.
    volume.close().unwrap();
    check(&devices).unwrap_or_else(|issues| panic!("uncut: {issues}"));

    let rules = Rules {
        data: DataRule::Lagging,
        ..Rules::default()
    };
    let plan = CrashPlan::new(seed)
        .random_states(count(12, 1000))
        .since(Mark::Durable { thread: 0, ops: 0 });
    let recording = recorder.recording();
    let step = (recording.flushes() + plan.random_states) / count(14, 1000);
    let judge = |state: &CrashState| {
        let survivor = Survivor::open(state, &quiet())?;
        let shown = survivor.shown();
        for (thread, history) in histories.iter().enumerate() {
            let promise = Promise::of_thread(state.marks(), thread as u8);
            judge_crash(history, &shown, promise, &rules)
                .map_err(|fault| format!("thread {thread}: {fault}"))?;
        }
        survivor.stays_usable()
    };
    let cuts = each_cut(&recording, &plan, step, judge);
    println!("{name}: {cuts} states, {} flushes", recording.flushes());
    volume.discard_stats()
}

/// COMMIT-3, RUN-2 and WRITER-1
#[test]
fn threads_and_commits_at_intervals() {
    let options = OpenOptions::new()
        .writable(true)
        .commit_interval(Some(Duration::from_millis(1)));
    let layout = Layout::new(1, 512 * MIB);
    threads_survive("cuts, threads", &layout, &options, Shape::Mixed);
}

/// WRITEBACK-1 and WRITEBACK-2
#[test]
fn threads_and_commits_under_pressure_on_raid1() {
    let options = OpenOptions::new()
        .writable(true)
        .commit_interval(Some(Duration::from_secs(3600)))
        .buffer_bytes(1 << 20)
        .delta_bytes(256 << 10);
    let layout = Layout::new(2, 512 * MIB).profiles(Profile::Raid1, Profile::Raid1);
    threads_survive("cuts, pressure", &layout, &options, Shape::Mixed);
}

#[test]
fn threads_with_compressed_and_shared_data_on_dup() {
    let options = OpenOptions::new()
        .writable(true)
        .commit_interval(Some(Duration::from_millis(3)))
        .compress(Compress {
            algorithm: Compression::Zstd,
            level: 1,
            force: true,
        });
    let layout = Layout::new(1, 1024 * MIB).profiles(Profile::Dup, Profile::Dup);
    threads_survive("cuts, threads, dup", &layout, &options, Shape::BigFile);
}

#[test]
fn threads_with_snapshots_deleted_in_steps() {
    let options = OpenOptions::new()
        .writable(true)
        .commit_interval(Some(Duration::from_millis(5)))
        .delta_bytes(64 << 10);
    let layout = Layout::new(1, 512 * MIB).nodesize(4096);
    threads_survive(
        "cuts, threads, snapshots",
        &layout,
        &options,
        Shape::Snapshots,
    );
}

/// Returns options with immediate discards, including metadata.
fn discarding(mode: DiscardMode) -> OpenOptions {
    OpenOptions::new()
        .writable(true)
        .commit_interval(Some(Duration::from_millis(5)))
        .discard(Some(mode))
        .discard_metadata(true)
        .discard_delays(DiscardDelays {
            empty: Duration::ZERO,
            used: Duration::ZERO,
        })
        .discard_limits(DiscardLimits {
            iops_limit: u32::MAX,
            kbps_limit: 0,
            max_discard_size: 1 << 20,
        })
}

/// ASYNC-DISCARD-1: discarded space reads as garbage.
#[test]
fn threads_and_discards_right_behind_commits() {
    let layout = Layout::new(1, 512 * MIB);
    let options = discarding(DiscardMode::Async);
    let stats = threads_survive_beside("cuts, discards", &layout, &options, Shape::Mixed, None);
    let bytes = stats.discard_extent_bytes + stats.discard_bitmap_bytes;
    assert!(bytes > 0 && stats.errors == 0, "{stats:?}");
}

/// ASYNC-DISCARD-1
#[test]
fn threads_with_snapshots_and_discards_in_commits_on_dup() {
    let layout = Layout::new(1, 512 * MIB).profiles(Profile::Dup, Profile::Dup);
    let options = discarding(DiscardMode::Sync);
    let stats = threads_survive_beside("cuts, sync", &layout, &options, Shape::Snapshots, None);
    assert!(stats.sync_bytes > 0 && stats.errors == 0, "{stats:?}");
}

/// TRIM-2
#[test]
fn threads_and_trims_of_the_whole_volume() {
    let layout = Layout::new(2, 512 * MIB).profiles(Profile::Raid1, Profile::Raid1);
    let options = discarding(DiscardMode::Async);
    let trim = |volume: &Volume| {
        volume.trim(0, u64::MAX, 0, &mut || true).unwrap();
    };
    let shape = Shape::BigFile;
    let stats = threads_survive_beside("cuts, trims", &layout, &options, shape, Some(trim));
    assert!(stats.trim_bytes > 0 && stats.errors == 0, "{stats:?}");
}

//! Contents of files whose form on disk changes: inline data, extents, compressed extents, preallocated
//! space, holes.
//!
//! Commits happen at any time and leave buffered data behind. After a cut each block of a file is from some
//! version of the file. That version is no older than the file's last sync, and no newer than the cut.

mod script;
mod versions;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{Compress, OpenOptions};
use ubtrfs_sim::oracle::{Mark, Promise};
use ubtrfs_sim::record::{CrashPlan, CrashState, Recorder};
use ubtrfs_sim::seed;

use self::script::{IN_PLACE, NAMES, Script, commit_without_data};
use self::versions::Overwrite;
use super::{Survivor, each_cut, recorded};
use crate::devices::{Layout, MIB, check, open, quiet};
use crate::soak::count;

/// The times of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Commits {
    BetweenOperations,
    /// Continuously, also between the steps of an operation.
    Always,
}

fn blocks_survive(name: &str, layout: &Layout, options: &OpenOptions, commits: Commits) {
    let seed = seed(name);
    let recorder = Recorder::new();
    let devices = recorded(layout, &recorder);
    let volume = open(&devices, options).unwrap();
    let mut script = Script::begin(&volume, &recorder, seed);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while commits == Commits::Always && !is_done.load(Ordering::Relaxed) {
                commit_without_data(&volume, b"beside");
            }
        });
        (0..count(120, 500)).for_each(|_| script.step());
        is_done.store(true, Ordering::Relaxed);
    });
    let versions = script.versions;
    drop(volume);
    check(&devices).unwrap_or_else(|issues| panic!("uncut: {issues}"));

    let recording = recorder.recording();
    let wanted = count(200, 2700);
    let plan = CrashPlan::new(seed)
        .random_states(wanted)
        .since(Mark::Durable { thread: 0, ops: 0 });
    let step = (recording.flushes() + 1 + plan.random_states) / wanted;
    let judge = |state: &CrashState| {
        let survivor = Survivor::open(state, &quiet())?;
        for (file, versions) in versions.iter().enumerate() {
            let promise = Promise::of_thread(state.marks(), file as u8);
            let found = read(&survivor, NAMES[file])?;
            let overwrite = match file {
                IN_PLACE => Overwrite::InPlace,
                _ => Overwrite::Copied,
            };
            versions
                .judge(&found, overwrite, (promise.at_least, promise.at_most))
                .map_err(|fault| format!("file {file}: {fault}"))?;
        }
        survivor.stays_usable()
    };
    let cuts = each_cut(&recording, &plan, step, judge);
    println!("{name}: {cuts} states, {} flushes", recording.flushes());
}

fn read(survivor: &Survivor, name: &[u8]) -> Result<Vec<u8>, String> {
    let volume = survivor.engine.volume();
    let all = || {
        let top = volume.root_dir(RootId::FS_TREE)?;
        let file = volume.resolve(top, name)?;
        let mut bytes = vec![0; volume.attr(file)?.size as usize];
        volume.read(file, 0, &mut bytes)?;
        Ok(bytes)
    };
    all().map_err(|error: ubtrfs_fs::Error| error.to_string())
}

fn compressing(algorithm: Compression, force: bool) -> OpenOptions {
    quiet().compress(Compress {
        algorithm,
        level: 1,
        force,
    })
}

#[test]
fn blocks_of_plain_files_are_old_or_new() {
    let layout = Layout::new(1, 256 * MIB);
    let commits = Commits::BetweenOperations;
    blocks_survive("blocks, plain", &layout, &quiet(), commits);
}

#[test]
fn blocks_of_files_with_zlib_are_old_or_new() {
    let layout = Layout::new(1, 256 * MIB);
    let options = compressing(Compression::Zlib, false);
    let commits = Commits::BetweenOperations;
    blocks_survive("blocks, zlib", &layout, &options, commits);
}

#[test]
fn blocks_of_files_with_forced_zstd_are_old_or_new() {
    let layout = Layout::new(1, 256 * MIB);
    let options = compressing(Compression::Zstd, true);
    let commits = Commits::BetweenOperations;
    blocks_survive("blocks, zstd", &layout, &options, commits);
}

#[test]
fn blocks_of_files_with_lzo_in_small_nodes_are_old_or_new() {
    let layout = Layout::new(1, 256 * MIB).nodesize(4096);
    let options = compressing(Compression::Lzo, true);
    let commits = Commits::BetweenOperations;
    blocks_survive("blocks, lzo", &layout, &options, commits);
}

#[test]
fn blocks_of_long_inline_files_are_old_or_new() {
    let layout = Layout::new(1, 256 * MIB);
    let options = compressing(Compression::Zlib, true).max_inline_bytes(4096);
    let commits = Commits::BetweenOperations;
    blocks_survive("blocks, inline", &layout, &options, commits);
}

#[test]
fn blocks_beside_holes_that_have_items_are_old_or_new() {
    let layout = Layout::new(1, 256 * MIB).features("^no-holes,^bgt");
    let commits = Commits::BetweenOperations;
    blocks_survive("blocks, holes", &layout, &quiet(), commits);
}

/// WRITEBACK-2
#[test]
fn blocks_are_old_or_new_whenever_commits_come() {
    let layout = Layout::new(1, 256 * MIB);
    let options = compressing(Compression::Zstd, true);
    let commits = Commits::Always;
    blocks_survive("blocks, commits", &layout, &options, commits);
}

/// WRITEBACK-2
#[test]
fn blocks_that_enter_in_parts_are_old_or_new() {
    let layout = Layout::new(1, 256 * MIB);
    let options = quiet().buffer_bytes(64 << 10).delta_bytes(64 << 10);
    let commits = Commits::Always;
    blocks_survive("blocks, parts", &layout, &options, commits);
}

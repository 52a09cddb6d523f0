//! The cost of discards for waiters of a commit, and their effect on the image.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::fs::statvfs;

use super::slow_discards::{DiscardTime, SlowDiscards};
use super::{GIB, MOUNTED, Outcome, Workload};
use crate::discards::Discards;
use crate::figures::{Round, Side, Unit};
use crate::kit::Kit;
use crate::latency::Latencies;
use crate::stage::Stage;

pub(super) const WORKLOAD: Workload = Workload {
    name: "s3-discard",
    title: "S3: discards during commits",
    text: "Files of 1 MiB are written without a pause; of the last 500 one at random is deleted for each that \
           is made. Every second everything is made durable, and the time of that is taken: with discard=sync, \
           with discard=async, and with nodiscard. At the end the blocks of the image are counted, next to what is \
           used and what waits for the background. Then all files are deleted, and with discard=async 15 s pass.",
    sides: MOUNTED,
    most_rounds: 2,
    run: |kit, side| run(kit, side, &FAST),
};

pub(super) const ON_SLOW_DISCARDS: Workload = Workload {
    name: "s3-discard-slow",
    title: "S3: discards during commits, where discards are slow",
    text: "200 files of 64 KiB are written each second, and of the last 4,000 one at random is deleted for each. The \
           image takes 2 ms for a discard and 50 us for each MiB of it, one after another: it is a file of FUSE, for \
           both sides. Each way takes 150 s, so that discards of the background come due. Block groups of metadata are \
           discarded on request only: their two copies of 256 MiB are in the image as far as they were ever written.",
    sides: MOUNTED,
    most_rounds: 1,
    run: |kit, side| run(kit, side, &SLOW),
};

/// Parameters of the files that are written and deleted, and of the image.
#[derive(Debug)]
struct Shape {
    file_bytes: usize,
    kept_files: usize,
    /// Without it, there is no pause between files.
    files_per_second: Option<u32>,
    seconds: u64,
    takes: Option<DiscardTime>,
}

const FAST: Shape = Shape {
    file_bytes: 1 << 20,
    kept_files: 500,
    files_per_second: None,
    seconds: 20,
    takes: None,
};

const SLOW: Shape = Shape {
    file_bytes: 64 << 10,
    kept_files: 4000,
    files_per_second: Some(200),
    seconds: 150,
    takes: Some(DiscardTime {
        request: Duration::from_millis(2),
        per_mib: Duration::from_micros(50),
    }),
};

const MIB: f64 = (1 << 20) as f64;
/// The kernel sends FORGET for a deleted file only after the call.
const FILES_ARE_FORGOTTEN: Duration = Duration::from_secs(1);
/// The wait until empty groups are discarded, on either side.
const EMPTY_GROUPS_WAIT: Duration = Duration::from_secs(15);

fn run(kit: &Kit, side: Side, shape: &Shape) -> Result<Outcome> {
    let mut round = Round::default();
    let modes = [
        ("discard=sync", "sync"),
        ("discard=async", "async"),
        ("nodiscard", "none"),
    ];
    for (options, name) in modes {
        let image = kit.image(8 * GIB)?;
        let slow = shape
            .takes
            .map(|takes| SlowDiscards::new(&image, kit.fresh("slow"), takes))
            .transpose()?;
        let disk = slow.as_ref().map_or(image.as_path(), SlowDiscards::path);
        let stage = Stage::mount(kit, side, disk, options)?;
        let before = stage.discards()?;
        let lasts = Duration::from_secs(kit.scaled(shape.seconds));
        let (commits, kept) = write_and_delete(&stage, shape, lasts)?;
        let done = stage.discards()? - before;
        add_latencies(name, &commits, &mut round);
        add_discards(name, &done, &mut round);
        stage.sync()?;
        add_image(name, &image, &stage, &mut round)?;
        for path in kept {
            std::fs::remove_file(path)?;
        }
        std::thread::sleep(FILES_ARE_FORGOTTEN);
        stage.sync()?;
        if name == "async" {
            std::thread::sleep(EMPTY_GROUPS_WAIT);
        }
        let what = format!("{name}: image without files");
        round.add(what, Unit::Mib, image_bytes(&image)? / MIB);
        stage.end()?;
        slow.map(SlowDiscards::end).transpose()?;
        std::fs::remove_file(image)?;
    }
    Ok(Outcome::Figures(round))
}

fn add_latencies(name: &str, commits: &Latencies, round: &mut Round) {
    for (what, part) in [("p50", 0.5), ("p99", 0.99)] {
        let us = commits.quantile(part).as_secs_f64() * 1e6;
        round.add(format!("{name}: commit {what}"), Unit::Microseconds, us);
    }
    let us = commits.longest().as_secs_f64() * 1e6;
    round.add(format!("{name}: longest commit"), Unit::Microseconds, us);
}

fn add_discards(name: &str, done: &Discards, round: &mut Round) {
    round.add(format!("{name}: discards"), Unit::Count, done.requests);
    let what = format!("{name}: discarded");
    round.add(what, Unit::Mib, done.bytes / MIB);
    if done.requests > 0.0 {
        let mean = done.bytes / done.requests / MIB;
        round.add(format!("{name}: each discard"), Unit::Mib, mean);
    }
    let what = format!("{name}: spared by reuse");
    round.add(what, Unit::Mib, done.saved_bytes / MIB);
}

/// Adds the blocks of the image, and the space that it needs: used and waiting.
fn add_image(name: &str, image: &Path, stage: &Stage, round: &mut Round) -> Result<()> {
    let what = format!("{name}: image at the end");
    round.add(what, Unit::Mib, image_bytes(image)? / MIB);
    let shown = statvfs(&stage.dir)?;
    let used = (shown.f_blocks - shown.f_bfree) * shown.f_frsize;
    let waiting = stage.discards()?.waiting_bytes;
    let what = format!("{name}: used and waiting");
    round.add(what, Unit::Mib, (used as f64 + waiting) / MIB);
    Ok(())
}

fn image_bytes(image: &Path) -> Result<f64> {
    let metadata = std::fs::metadata(image).context("the image is there")?;
    Ok(metadata.blocks() as f64 * 512.0)
}

/// Returns the latencies of commits, and the remaining files.
fn write_and_delete(
    stage: &Stage,
    shape: &Shape,
    lasts: Duration,
) -> Result<(Latencies, Vec<PathBuf>)> {
    let mut commits = Latencies::default();
    let bytes = vec![0x5a; shape.file_bytes];
    let mut kept: Vec<PathBuf> = Vec::new();
    let mut chance = 1u64;
    let (begin, mut synced) = (Instant::now(), Instant::now());
    for number in 0u64.. {
        let path = stage.dir.join(format!("file{number}"));
        std::fs::write(&path, &bytes)?;
        kept.push(path);
        if kept.len() > shape.kept_files {
            // A fixed sequence: the same files on every side.
            chance = chance.wrapping_mul(6364136223846793005).wrapping_add(1);
            let at = (chance >> 33) as usize % kept.len();
            std::fs::remove_file(kept.swap_remove(at))?;
        }
        if synced.elapsed() >= Duration::from_secs(1) {
            let call = Instant::now();
            stage.sync()?;
            commits.add(call.elapsed());
            synced = Instant::now();
        }
        if begin.elapsed() >= lasts {
            break;
        }
        if let Some(rate) = shape.files_per_second {
            let due = Duration::from_secs(number) / rate;
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
        }
    }
    Ok((commits, kept))
}

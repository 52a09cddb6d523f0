//! What discards cost those who wait for a commit.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{GIB, MOUNTED, Outcome, Workload};
use crate::figures::{Round, Side, Unit};
use crate::kit::Kit;
use crate::latency::Latencies;
use crate::stage::Stage;

pub(super) const WORKLOAD: Workload = Workload {
    name: "s3-discard",
    title: "S3: discard beside the commit",
    text: "Files of 1 MiB are written without a pause; of the last 500 one at random is deleted for each that \
           is made. Every second everything is made durable, and the time of that is taken: with discard=sync \
           and with discard=async.",
    sides: MOUNTED,
    most_rounds: 2,
    run,
};

const FILE_BYTES: usize = 1 << 20;
const KEPT_FILES: usize = 500;
const MIB: f64 = (1 << 20) as f64;

fn run(kit: &Kit, side: Side) -> Result<Outcome> {
    if side == Side::Mount {
        return Ok(Outcome::Absent("there is no discard yet"));
    }
    let mut round = Round::default();
    for (options, name) in [("discard=sync", "sync"), ("discard=async", "async")] {
        let image = kit.image(8 * GIB)?;
        let stage = Stage::mount(kit, side, &image, options)?;
        let before = stage.device_counts()?;
        let lasts = Duration::from_secs(kit.scaled(20));
        let commits = write_and_delete(&stage, lasts)?;
        let counts = stage.device_counts()? - before;
        for (what, part) in [("p50", 0.5), ("p99", 0.99)] {
            let us = commits.quantile(part).as_secs_f64() * 1e6;
            round.add(format!("{name}: commit {what}"), Unit::Microseconds, us);
        }
        let us = commits.longest().as_secs_f64() * 1e6;
        round.add(format!("{name}: longest commit"), Unit::Microseconds, us);
        round.add(
            format!("{name}: discards"),
            Unit::Count,
            counts.discards as f64,
        );
        let discarded = counts.discarded_bytes as f64 / MIB;
        round.add(format!("{name}: discarded"), Unit::Mib, discarded);
        if let Some(saved) = saved_bytes(&stage.dir) {
            round.add(format!("{name}: spared by reuse"), Unit::Mib, saved / MIB);
        }
        stage.end()?;
        std::fs::remove_file(image)?;
    }
    Ok(Outcome::Figures(round))
}

fn write_and_delete(stage: &Stage, lasts: Duration) -> Result<Latencies> {
    let mut commits = Latencies::default();
    let bytes = vec![0x5a; FILE_BYTES];
    let mut kept: Vec<PathBuf> = Vec::new();
    let mut chance = 1u64;
    let (begin, mut synced) = (Instant::now(), Instant::now());
    for number in 0u64.. {
        let path = stage.dir.join(format!("file{number}"));
        std::fs::write(&path, &bytes)?;
        kept.push(path);
        if kept.len() > KEPT_FILES {
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
    }
    Ok(commits)
}

/// What the kernel says that reuse made unnecessary.
fn saved_bytes(dir: &Path) -> Option<f64> {
    let uuid = crate::run::first_line("findmnt", &["-no", "UUID", dir.to_str()?])?;
    let path = format!("/sys/fs/btrfs/{uuid}/discard/discard_bytes_saved");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

//! Latency of a create and an unlink during heavy writes by another process.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, syncfs, unlinkat};

use super::meter::Meter;
use super::slow_disk::SlowDisk;
use super::{GIB, MOUNTED, Outcome, Workload};
use crate::figures::{Round, Side, Unit};
use crate::kit::Kit;
use crate::latency::Latencies;
use crate::stage::Stage;

pub(super) const WORKLOAD: Workload = Workload {
    name: "s4-latency",
    title: "S4: latency during writes",
    text: "Empty files are made and deleted, a thousand at a time, while another thread overwrites a file of \
           1 GiB without a pause and makes everything durable every second.",
    sides: MOUNTED,
    most_rounds: 2,
    run: |kit, side| measure(kit, side, None),
};

pub(super) const ON_SLOW_DISK: Workload = Workload {
    name: "s4-latency-slow",
    title: "S4: latency during writes, on a slow disk",
    text: "The same on a disk that takes no more than 20 MiB/s.",
    sides: MOUNTED,
    most_rounds: 1,
    run: |kit, side| {
        if SlowDisk::is_possible() {
            measure(kit, side, Some(20 << 20))
        } else {
            Ok(Outcome::Absent(
                "no way to slow a disk down: there is no blkio controller of version 1",
            ))
        }
    },
};

const FILES: u64 = 1000;
const CHUNK_BYTES: usize = 1 << 20;
const WRITTEN_BYTES: u64 = GIB;

fn measure(kit: &Kit, side: Side, limit: Option<u64>) -> Result<Outcome> {
    let mut round = Round::default();
    let image = kit.image(8 * GIB)?;
    let mut slow = limit
        .map(|limit| SlowDisk::new(&image, limit))
        .transpose()?;
    let disk = slow.as_ref().map_or(image.as_path(), SlowDisk::path);
    let stage = Stage::mount(kit, side, disk, "")?;
    let lasts = Duration::from_secs(kit.scaled(20));
    let meter = Meter::start(&stage)?;
    let worked = during_writes(&stage.dir, lasts)?;
    for (what, latencies) in [("create", &worked.creates), ("unlink", &worked.unlinks)] {
        for (name, part) in [("p50", 0.5), ("p99", 0.99), ("p99.99", 0.9999)] {
            let us = latencies.quantile(part).as_secs_f64() * 1e6;
            round.add(format!("{what}: {name}"), Unit::Microseconds, us);
        }
        let us = latencies.longest().as_secs_f64() * 1e6;
        round.add(format!("{what}: longest"), Unit::Microseconds, us);
        let rate = latencies.count() as f64 / lasts.as_secs_f64();
        round.add(format!("{what}: calls"), Unit::PerSecond, rate);
    }
    let mib = worked.written_bytes as f64 / (1 << 20) as f64 / lasts.as_secs_f64();
    round.add("the other writer", Unit::MibPerSecond, mib);
    meter.add_costs("all", &stage, &mut round)?;
    if let Some(slow) = &mut slow {
        slow.lift_limit();
    }
    stage.end()?;
    if let Some(slow) = slow {
        slow.end()?;
    }
    std::fs::remove_file(image)?;
    Ok(Outcome::Figures(round))
}

#[derive(Default)]
struct Worked {
    creates: Latencies,
    unlinks: Latencies,
    written_bytes: u64,
}

fn during_writes(top: &Path, lasts: Duration) -> Result<Worked> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_hard(top, &stop));
        let timed = make_and_delete(top, lasts);
        stop.store(true, Ordering::Relaxed);
        let written = writer.join().map_err(|_| anyhow!("the writer panicked"))?;
        let (creates, unlinks) = timed?;
        Ok(Worked {
            creates,
            unlinks,
            written_bytes: written?,
        })
    })
}

/// Returns the bytes written.
fn write_hard(top: &Path, stop: &AtomicBool) -> Result<u64> {
    let mut file = File::create(top.join("written"))?;
    let chunk = vec![0x5a; CHUNK_BYTES];
    let mut written = 0;
    let mut synced = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if written % WRITTEN_BYTES == 0 {
            file.seek(SeekFrom::Start(0))?;
        }
        file.write_all(&chunk)?;
        written += CHUNK_BYTES as u64;
        if synced.elapsed() >= Duration::from_secs(1) {
            file.sync_all()?;
            syncfs(&file)?;
            synced = Instant::now();
        }
    }
    Ok(written)
}

fn make_and_delete(top: &Path, lasts: Duration) -> Result<(Latencies, Latencies)> {
    let path = top.join("names");
    std::fs::create_dir(&path)?;
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat(CWD, &path, flags, Mode::empty())?;
    let (mut creates, mut unlinks) = (Latencies::default(), Latencies::default());
    let begin = Instant::now();
    while begin.elapsed() < lasts {
        for number in 0..FILES {
            let name = format!("file{number}");
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let call = Instant::now();
            let file = openat(&dir, &name, flags, Mode::from(0o644))?;
            creates.add(call.elapsed());
            drop(file);
        }
        for number in 0..FILES {
            let name = format!("file{number}");
            let call = Instant::now();
            unlinkat(&dir, &name, AtFlags::empty())?;
            unlinks.add(call.elapsed());
        }
    }
    Ok((creates, unlinks))
}

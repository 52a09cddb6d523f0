//! Small changes with an fsync each: an append, an overwrite, the save of an editor.
//!
//! Each thread has its own files, in one directory. The bytes are counted when the last call returns. They do not
//! include writes of a later commit, unless commits run concurrently.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::meter::Meter;
use super::{GIB, MOUNTED, Outcome, Workload};
use crate::figures::{Round, Side, Unit};
use crate::kit::Kit;
use crate::latency::Latencies;
use crate::stage::Stage;

pub(super) const WORKLOAD: Workload = Workload {
    name: "s0-sync-calls",
    title: "S0: small changes, each made durable",
    text: "A call makes one change and makes it durable. It appends 4 KiB, or overwrites 4 KiB in the middle of a file of \
           4 MiB, with fsync. Or it saves as editors do: a file of 4 KiB is made, made durable and renamed over the one \
           before. 1, 2 and 8 threads call without a pause, each with files of its own; then they do so while \
           everything is made durable (syncfs) every second. Written per call are the bytes that went to the device \
           until the last call returned.",
    sides: MOUNTED,
    most_rounds: 2,
    run: measure,
};

const BLOCK_BYTES: usize = 4096;
const FILE_BLOCKS: u64 = 1024;
const THREADS: [u64; 3] = [1, 2, 8];
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// The interval at which the committing thread checks whether it should end.
const LOOK_EVERY: Duration = Duration::from_millis(20);

fn measure(kit: &Kit, side: Side) -> Result<Outcome> {
    let mut round = Round::default();
    for call in [Call::Append, Call::Overwrite, Call::Save] {
        for threads in THREADS {
            for has_commits in [false, true] {
                measure_one(kit, side, call, threads, has_commits, &mut round)?;
            }
        }
    }
    Ok(Outcome::Figures(round))
}

/// Measures on a new volume, so that settings do not affect each other.
fn measure_one(
    kit: &Kit,
    side: Side,
    call: Call,
    threads: u64,
    has_commits: bool,
    round: &mut Round,
) -> Result<()> {
    let image = kit.image(8 * GIB)?;
    let stage = Stage::mount(kit, side, &image, "")?;
    let dir = stage.dir.join("dir");
    fs::create_dir(&dir)?;
    let callers = (0..threads)
        .map(|number| Caller::new(call, &dir, number))
        .collect::<Result<Vec<_>>>()?;
    stage.sync()?;
    // Long enough for a commit even in a quick run.
    let lasts = if has_commits {
        Duration::from_millis(kit.scaled(4000).max(1300))
    } else {
        Duration::from_millis(kit.scaled(2000))
    };
    let meter = Meter::start(&stage)?;
    let latencies = all_call(callers, lasts, has_commits.then_some(&stage))?;
    let written = meter.written(&stage)?.written_bytes as f64;
    let during = if has_commits { " during commits" } else { "" };
    let plural = if threads == 1 { "" } else { "s" };
    let name = format!("{}, {threads} thread{plural}{during}", call.name());
    for (part_name, part) in [("p50", 0.5), ("p99", 0.99)] {
        let us = latencies.quantile(part).as_secs_f64() * 1e6;
        round.add(format!("{name}: {part_name}"), Unit::Microseconds, us);
    }
    let per_call = written / latencies.count() as f64;
    round.add(format!("{name}: written per call"), Unit::Bytes, per_call);
    stage.end()?;
    fs::remove_file(image)?;
    Ok(())
}

/// Returns the latencies of all calls.
fn all_call(callers: Vec<Caller>, lasts: Duration, commits: Option<&Stage>) -> Result<Latencies> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let committer = commits.map(|stage| scope.spawn(|| commit_every_second(stage, &stop)));
        let threads: Vec<_> = callers
            .into_iter()
            .map(|caller| scope.spawn(move || caller.call_for(lasts)))
            .collect();
        let mut all = Latencies::default();
        let mut outcome = Ok(());
        for thread in threads {
            match thread.join().map_err(|_| anyhow!("a caller panicked")) {
                Ok(Ok(latencies)) => all.merge(&latencies),
                Ok(Err(error)) | Err(error) => outcome = Err(error),
            }
        }
        stop.store(true, Ordering::Relaxed);
        if let Some(committer) = committer {
            committer
                .join()
                .map_err(|_| anyhow!("the committer panicked"))??;
        }
        outcome.map(|()| all)
    })
}

fn commit_every_second(stage: &Stage, stop: &AtomicBool) -> Result<()> {
    let mut committed = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if committed.elapsed() >= COMMIT_EVERY {
            committed = Instant::now();
            stage.sync()?;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// The change that is made durable.
#[derive(Clone, Copy, Debug)]
enum Call {
    Append,
    Overwrite,
    Save,
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Call::Append => "append and fsync",
            Call::Overwrite => "overwrite and fsync",
            Call::Save => "save and rename",
        }
    }
}

/// One thread's files.
#[derive(Debug)]
struct Caller {
    call: Call,
    path: PathBuf,
    file: File,
    /// A fixed sequence: the same blocks on every side.
    chance: u64,
}

impl Caller {
    fn new(call: Call, dir: &Path, number: u64) -> Result<Caller> {
        let path = dir.join(format!("file{number}"));
        let mut file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .open(&path)?;
        if let Call::Overwrite = call {
            let block = [0xa5; BLOCK_BYTES];
            for _ in 0..FILE_BLOCKS {
                file.write_all(&block)?;
            }
        }
        Ok(Caller {
            call,
            path,
            file,
            chance: number,
        })
    }

    fn call_for(mut self, lasts: Duration) -> Result<Latencies> {
        let mut latencies = Latencies::default();
        let block = [0x5a; BLOCK_BYTES];
        let begin = Instant::now();
        while begin.elapsed() < lasts {
            let call = Instant::now();
            match self.call {
                Call::Append => {
                    self.file.write_all(&block)?;
                    self.file.sync_all()?;
                }
                Call::Overwrite => {
                    let at = self.next_block() * BLOCK_BYTES as u64;
                    self.file.write_all_at(&block, at)?;
                    self.file.sync_all()?;
                }
                Call::Save => self.save(&block)?,
            }
            latencies.add(call.elapsed());
        }
        Ok(latencies)
    }

    fn save(&self, block: &[u8]) -> Result<()> {
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(block)?;
        file.sync_all()?;
        Ok(fs::rename(&new, &self.path)?)
    }

    fn next_block(&mut self) -> u64 {
        self.chance = self
            .chance
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.chance >> 33) % FILE_BLOCKS
    }
}

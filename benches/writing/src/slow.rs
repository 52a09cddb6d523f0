//! The latency of calls that write no data on slow storage, during heavy writes by other threads.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{FileId, NewInode, OpenOptions, RenameMode, Volume};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::{Rate, ThrottledDevice, new_volume};

use crate::report::quantile;
use crate::{Outcome, Settings};

const DEVICE_BYTES: u64 = 4 << 30;
const RATE: Rate = Rate {
    bytes_per_second: 20 << 20,
    flush: Duration::from_millis(30),
};
const CHUNK_BYTES: usize = 128 << 10;
const FILE_BYTES: u64 = 256 << 20;
const FILES: usize = 200;
const SMALL_BYTES: usize = 20_000;

/// Calls by kind.
const KINDS: [&str; 6] = [
    "create",
    "rename",
    "stat",
    "stat of what is written",
    "unlink",
    "unlink of what is written",
];

pub(crate) fn run(settings: &Settings) -> Outcome {
    let volume = open()?;
    let lasts = Duration::from_secs(settings.scaled(20).max(5));
    let stop = AtomicBool::new(false);
    let mut times: Vec<Vec<Duration>> = KINDS.iter().map(|_| Vec::new()).collect();
    let mut written = 0;
    std::thread::scope(|scope| -> Outcome {
        let writer = scope.spawn(|| write_hard(&volume, &stop));
        let syncer = scope.spawn(|| -> Outcome {
            while !stop.load(Ordering::Relaxed) {
                volume.sync()?;
                std::thread::sleep(Duration::from_secs(1));
            }
            Ok(())
        });
        let begin = Instant::now();
        let mut outcome = Ok(());
        let mut round = 0;
        while outcome.is_ok() && begin.elapsed() < lasts {
            outcome = call(&volume, round, &mut times);
            round += 1;
        }
        stop.store(true, Ordering::Relaxed);
        written = writer.join().map_err(|_| "the writer panicked")??;
        syncer.join().map_err(|_| "the syncer panicked")??;
        outcome
    })?;
    for (kind, times) in KINDS.iter().zip(&mut times) {
        times.sort_unstable();
        let at = |part| quantile(times, part);
        println!(
            "{kind:<26} p50 {:?} p99 {:?} p99.9 {:?} p99.99 {:?} max {:?} of {}",
            at(0.5),
            at(0.99),
            at(0.999),
            at(0.9999),
            at(1.0),
            times.len()
        );
    }
    let mib = written as f64 / (1 << 20) as f64 / lasts.as_secs_f64();
    println!(
        "written {mib:.1} MiB/s, load {}, {:?}",
        crate::load(),
        volume.writer_stats()
    );
    Ok(())
}

fn open() -> Outcome<Arc<Volume>> {
    let memory = new_volume(&MkfsOptions::default(), DEVICE_BYTES);
    let device: Arc<dyn BlockDevice> = Arc::new(ThrottledDevice::new(Arc::new(memory), Some(RATE)));
    let options = OpenOptions::new().writable(true);
    Ok(Volume::from_devices(
        vec![(PathBuf::from("memory"), device)],
        &options,
    )?)
}

fn write_hard(volume: &Volume, stop: &AtomicBool) -> Outcome<u64> {
    let top = volume.root_dir(RootId::FS_TREE)?;
    let file = volume.create(top, b"written", &NewInode::file(0o644))?;
    let chunk = vec![0x5a; CHUNK_BYTES];
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        volume.write(file, written % FILE_BYTES, &chunk)?;
        written += CHUNK_BYTES as u64;
    }
    Ok(written)
}

fn call(volume: &Volume, round: usize, times: &mut [Vec<Duration>]) -> Outcome {
    let top = volume.root_dir(RootId::FS_TREE)?;
    let dir = volume.create(
        top,
        format!("dir{round}").as_bytes(),
        &NewInode::directory(0o755),
    )?;
    let mut time = |kind: usize, call: &mut dyn FnMut() -> Outcome| -> Outcome {
        let begin = Instant::now();
        let outcome = call();
        times[kind].push(begin.elapsed());
        outcome
    };
    let name = |kind: &str, number: usize| format!("{kind}{number}").into_bytes();
    let written = volume.lookup(top, b"written")?;
    let mut files: Vec<FileId> = Vec::new();
    for number in 0..FILES {
        time(0, &mut || {
            files.push(volume.create(dir, &name("new", number), &NewInode::file(0o644))?);
            Ok(())
        })?;
        if let Some(written) = written {
            time(3, &mut || Ok(volume.attr(written).map(drop)?))?;
        }
    }
    for (number, file) in files.iter().enumerate() {
        time(1, &mut || {
            let to = (dir, &name("moved", number)[..]);
            Ok(volume.rename(dir, &name("new", number), to, RenameMode::NoReplace)?)
        })?;
        time(2, &mut || Ok(volume.attr(*file).map(drop)?))?;
    }
    // One in ten has contents, which may be in flight to the device.
    for number in (0..FILES).step_by(10) {
        volume.write(files[number], 0, &[7; SMALL_BYTES])?;
    }
    for number in 0..FILES {
        let kind = if number.is_multiple_of(10) { 5 } else { 4 };
        time(
            kind,
            &mut || Ok(volume.unlink(dir, &name("moved", number))?),
        )?;
    }
    Ok(())
}

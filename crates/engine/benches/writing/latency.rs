//! How long a create takes while commits run without a pause; for the kernel, one every second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ubtrfs_engine::OpenOptions;

use crate::kernel::{Kernel, make_image};
use crate::library::Library;
use crate::report::quantile;
use crate::side::{Name, Side};
use crate::{Outcome, Settings};

const IMAGE_BYTES: u64 = 20 << 30;
const FILES: u64 = 200_000;
const FILES_PER_DIR: u64 = 5_000;

pub(crate) fn run(settings: &Settings) -> Outcome {
    let images = [
        settings.image("latency.kernel"),
        settings.image("latency.ours"),
    ];
    for image in &images {
        make_image(image, IMAGE_BYTES)?;
    }
    let kernel = Kernel::mount(&images[0])?;
    let ours = Library::open(&images[1], &OpenOptions::new())?;
    let (mut theirs, mut own, mut nothing) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..settings.rounds as u64 {
        let second = Duration::from_secs(1);
        theirs.extend(measure(&kernel, settings, round, second)?);
        own.extend(measure(&ours, settings, round, Duration::ZERO)?);
        nothing.extend(spins(settings.scaled(FILES)));
    }
    for (who, mut latencies) in [("kernel", theirs), ("ours", own), ("spin", nothing)] {
        latencies.sort_unstable();
        let at = |part| quantile(&latencies, part);
        println!(
            "create, {who:<6} p50 {:?} p99 {:?} p99.9 {:?} p99.99 {:?} max {:?} of {}",
            at(0.5),
            at(0.99),
            at(0.999),
            at(0.9999),
            at(1.0),
            latencies.len()
        );
    }
    println!("load {}, {:?}", crate::load(), ours.stats());
    Ok(())
}

/// What the machine alone does to 2 us of computing: other programs have their turns.
fn spins(count: u64) -> Vec<Duration> {
    let spin = |_| {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(2) {}
        begin.elapsed()
    };
    (0..count).map(spin).collect()
}

/// `pause` is what lies between commits.
fn measure<S: Side>(
    side: &S,
    settings: &Settings,
    round: u64,
    pause: Duration,
) -> Outcome<Vec<Duration>> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let committer = scope.spawn(|| -> Outcome {
            while !stop.load(Ordering::Relaxed) {
                side.sync()?;
                std::thread::sleep(pause);
            }
            Ok(())
        });
        let latencies = creates(side, settings.scaled(FILES), round);
        stop.store(true, Ordering::Relaxed);
        committer.join().map_err(|_| "the committer panicked")??;
        latencies
    })
}

fn creates<S: Side>(side: &S, files: u64, round: u64) -> Outcome<Vec<Duration>> {
    let mut name = Name::new();
    let mut latencies = Vec::with_capacity(files as usize);
    for start in (0..files).step_by(FILES_PER_DIR as usize) {
        let dir = side.make_dir(name.set("dir", round * FILES + start))?;
        for number in start..files.min(start + FILES_PER_DIR) {
            name.set("file", number);
            let begin = Instant::now();
            side.create(&dir, &name)?;
            latencies.push(begin.elapsed());
        }
    }
    Ok(latencies)
}

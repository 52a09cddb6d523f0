//! The latency of creates during continuous commits; for the kernel, with one commit per second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ubtrfs_fs::OpenOptions;

use crate::kernel::{Kernel, make_image};
use crate::library::Library;
use crate::report::quantile;
use crate::side::{Name, Side};
use crate::{Outcome, Settings, thread_time};

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
    for (who, mut calls) in [("kernel", theirs), ("ours", own), ("spin", nothing)] {
        describe(who, "clock", &mut calls, |call| call.took);
        describe(who, "computing", &mut calls, |call| call.computed);
        let slow = calls.iter().filter(|call| call.took > SLOW);
        let waited = slow.clone().filter(|call| call.waited);
        let longest = waited.clone().map(|call| call.took).max();
        println!(
            "{who:<6} above {SLOW:?}: {}, of which waited for a lock or a device: {}, the longest {:?}",
            slow.count(),
            waited.count(),
            longest.unwrap_or_default()
        );
    }
    println!("load {}, {:?}", crate::load(), ours.stats());
    Ok(())
}

/// Slower calls are checked for waiting.
const SLOW: Duration = Duration::from_micros(200);

struct Call {
    took: Duration,
    /// Processor time of the calling thread, including page faults and system calls. Excludes other programs.
    computed: Duration,
    /// Whether the thread gave up the processor voluntarily.
    waited: bool,
}

fn describe(who: &str, by: &str, calls: &mut [Call], part: fn(&Call) -> Duration) {
    let mut times: Vec<Duration> = calls.iter().map(part).collect();
    times.sort_unstable();
    let at = |part| quantile(&times, part);
    println!(
        "create, {who:<6} {by:<9} p50 {:?} p99 {:?} p99.9 {:?} p99.99 {:?} max {:?} of {}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(0.9999),
        at(1.0),
        times.len()
    );
}

/// Times calls of one thread.
struct Watch {
    switches: u64,
}

impl Watch {
    fn time<T>(&mut self, call: impl FnOnce() -> T) -> (T, Call) {
        let (begin, computed) = (Instant::now(), thread_time());
        let outcome = call();
        let (took, computed) = (begin.elapsed(), thread_time() - computed);
        let mut waited = false;
        if took > SLOW {
            let switches = voluntary_switches();
            waited = switches > self.switches;
            self.switches = switches;
        }
        let call = Call {
            took,
            computed,
            waited,
        };
        (outcome, call)
    }
}

fn watch() -> Watch {
    Watch {
        switches: voluntary_switches(),
    }
}

fn voluntary_switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let count = |line: &str| {
        line.strip_prefix("voluntary_ctxt_switches:")?
            .trim()
            .parse()
            .ok()
    };
    status.lines().find_map(count).unwrap_or_default()
}

/// Measures `count` times 2 us of computing, for the noise of other programs on the machine.
fn spins(count: u64) -> Vec<Call> {
    let mut watch = watch();
    let spin = |_| {
        let spun = watch.time(|| {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_micros(2) {}
        });
        spun.1
    };
    (0..count).map(spin).collect()
}

/// Measures calls during commits. `pause` is the time between two commits.
fn measure<S: Side>(
    side: &S,
    settings: &Settings,
    round: u64,
    pause: Duration,
) -> Outcome<Vec<Call>> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let committer = scope.spawn(|| -> Outcome {
            while !stop.load(Ordering::Relaxed) {
                side.sync()?;
                std::thread::sleep(pause);
            }
            Ok(())
        });
        let calls = creates(side, settings.scaled(FILES), round);
        stop.store(true, Ordering::Relaxed);
        committer.join().map_err(|_| "the committer panicked")??;
        calls
    })
}

fn creates<S: Side>(side: &S, files: u64, round: u64) -> Outcome<Vec<Call>> {
    let mut name = Name::new();
    let mut calls = Vec::with_capacity(files as usize);
    let mut watch = watch();
    for start in (0..files).step_by(FILES_PER_DIR as usize) {
        let dir = side.mkdir(name.set("dir", round * FILES + start))?;
        for number in start..files.min(start + FILES_PER_DIR) {
            name.set("file", number);
            let (outcome, call) = watch.time(|| side.create(&dir, &name));
            outcome?;
            calls.push(call);
        }
    }
    Ok(calls)
}

//! Write benchmarks against the kernel's btrfs, in one process and on the same storage; `run` starts
//! them.
//!
//! Both sides use volumes of `mkfs.btrfs` in files of one folder: the kernel through a loop device and system
//! calls, ubtrfs through its library. They alternate round by round, so that other load affects both. The
//! result is the ratio of the medians.
//!
//! Not here: reading (`benches/reading/run`).

mod costs;
mod discards;
mod durable;
mod eager;
mod groups;
mod kernel;
mod latency;
mod library;
mod million;
mod ops;
mod phases;
mod report;
mod side;
mod slow;

use std::path::PathBuf;
use std::time::Duration;

use ubtrfs_sim::Scratch;

/// Mimalloc, as in the `ubtrfs` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The size and the place of the benchmarks.
pub(crate) struct Settings {
    pub(crate) rounds: usize,
    /// The divisor of all sizes.
    scale: u64,
    dir: PathBuf,
}

impl Settings {
    pub(crate) fn scaled(&self, count: u64) -> u64 {
        (count / self.scale).max(1)
    }

    pub(crate) fn image(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

type Mode = (&'static str, fn(&Settings) -> Outcome);

/// The modes that run by default, and then the long one.
const MODES: &[Mode] = &[
    ("ops", ops::run),
    ("costs", costs::run),
    ("durable", durable::run),
    ("million", million::run),
    ("latency", latency::run),
    ("eager", eager::run),
    ("phases", phases::run),
    ("groups", groups::run),
    ("slow", slow::run),
    ("discards", discards::run),
];
const LONG: Mode = ("ten-million", million::run_long);

fn main() -> Outcome {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let setting = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    // As a mount does.
    rustix::thread::disable_transparent_huge_pages(true)?;
    let scratch = Scratch::new()?;
    let settings = Settings {
        rounds: setting("ROUNDS").unwrap_or(3) as usize,
        scale: if std::env::var_os("QUICK").is_some() {
            20
        } else {
            1
        },
        dir: scratch.path().to_owned(),
    };
    if let Some(unknown) = names
        .iter()
        .find(|name| !MODES.iter().chain([&LONG]).any(|(mode, _)| mode == name))
    {
        return Err(format!("no mode {unknown}").into());
    }
    for (name, run) in MODES.iter().chain([&LONG]) {
        let asked = names.iter().any(|asked| asked == name);
        if asked || (names.is_empty() && *name != LONG.0) {
            println!("## {name}");
            run(&settings)?;
        }
    }
    Ok(())
}

/// Returns the processor time of the calling thread, including system time.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

//! Writing beside the kernel's btrfs, in one process and on the same storage; `benches/writing` runs it.
//!
//! Both sides have volumes of `mkfs.btrfs` in files of one folder: the kernel behind a loop device and its
//! system calls, ubtrfs behind its library. They take turns, round by round, so that what else the machine
//! does meets both; what counts is the ratio of the medians.
//!
//! Not here: reading (`benches/reading`).

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

/// Mimalloc, which the `ubtrfs` command uses as well.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How much is done, and where.
pub(crate) struct Settings {
    pub(crate) rounds: usize,
    /// Everything is this many times smaller.
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

/// Those that run if none is named, and then the long one.
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
    // `cargo bench` adds an option of its own harness.
    let names: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
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

/// Returns the processor time of the calling thread, in the kernel or not.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

//! The mount against the kernel's btrfs and a server that answers at once, phase by phase in turn.
//!
//! A mount's time is spent in the kernel, the transport and the engine. The floor has no engine, so it is the lower
//! limit. The time in verbs is the engine's share, as the mount itself counts it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use ubtrfs_fuse::mount::TransportChoice;

use crate::clients::{Crew, Times, Work};
use crate::instant::Manners;
use crate::phases::{LISTED, Phase};
use crate::places;

/// The time that the kernel needs to send its FORGETs.
const FORGETTING: Duration = Duration::from_millis(500);
const SIDES: usize = 3;

/// The plan of a measurement.
pub(crate) struct Plan {
    pub(crate) ubtrfs: PathBuf,
    pub(crate) clients: Vec<usize>,
    pub(crate) rounds: usize,
    /// Files in the listed directory.
    pub(crate) listed: u32,
    pub(crate) work: Work,
}

/// The measurement of one phase in one round.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    ours: f64,
    kernel: f64,
    floor: f64,
    /// The share of `ours` in verbs.
    verbs: f64,
    requests: f64,
    /// The ratio of typical operations, without the few that overlap a commit.
    usual: f64,
}

/// Returns the goal for a phase, as a ratio to the kernel's time.
fn goal(phase: Phase, clients: usize) -> Option<f64> {
    let (one, more) = match phase {
        Phase::Create => (2.0, 1.6),
        Phase::Rename | Phase::Write | Phase::Unlink => (1.0, 0.6),
        Phase::Stat | Phase::Reread | Phase::RereadLarge | Phase::List | Phase::ListAgain => {
            (1.1, 1.1)
        }
        Phase::Statx | Phase::WriteLarge => return None,
    };
    Some(if clients == 1 { one } else { more })
}

pub(crate) fn measure(plan: &Plan) -> Result<()> {
    // As a mount of a volume: without open requests, and with immediate writes.
    let manners = Manners {
        writeback_cache: false,
        create: false,
    };
    places::with_kernel_btrfs(|kernel| {
        places::with_ubtrfs(&plan.ubtrfs, |ours| {
            places::with_instant(TransportChoice::Uring, manners, 1, |floor| {
                tables(plan, [ours, kernel, floor])
            })
        })
    })
}

fn tables(plan: &Plan, sides: [&Path; SIDES]) -> Result<()> {
    if plan.work.phases.iter().any(|phase| phase.lists()) {
        for side in sides {
            fill(&side.join(LISTED), plan.listed)?;
        }
    }
    println!(
        "{:<22}{:>8}{:>10}{:>10}{:>10}{:>10}{:>10}{:>8}{:>8}{:>8}",
        "us per operation",
        "clients",
        "ours",
        "in verbs",
        "requests",
        "floor",
        "kernel",
        "usual",
        "ratio",
        "goal"
    );
    for &clients in &plan.clients {
        let rounds: Vec<_> = (0..plan.rounds)
            .map(|number| round(plan, sides, clients, number))
            .collect::<Result<_>>()?;
        for (at, &phase) in plan.work.phases.iter().enumerate() {
            let samples: Vec<_> = rounds.iter().map(|round| round[at]).collect();
            print_line(phase, clients, &samples);
        }
    }
    Ok(())
}

fn print_line(phase: Phase, clients: usize, samples: &[Sample]) {
    let of = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure).collect());
    let ratio = of(|sample| sample.ours / sample.kernel);
    print!(
        "{:<22}{clients:>8}{:>10.2}{:>10.2}{:>10.2}{:>10.2}{:>10.2}{:>8.2}{ratio:>8.2}",
        phase.title(),
        of(|sample| sample.ours),
        of(|sample| sample.verbs),
        of(|sample| sample.requests),
        of(|sample| sample.floor),
        of(|sample| sample.kernel),
        of(|sample| sample.usual),
    );
    match goal(phase, clients) {
        Some(goal) if ratio > goal => println!("{goal:>8.1}  missed"),
        Some(goal) => println!("{goal:>8.1}"),
        None => println!(),
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() % 2 {
        0 => (figures[middle - 1] + figures[middle]) / 2.0,
        _ => figures[middle],
    }
}

/// Runs all phases once on each side. Each round begins with another side.
fn round(plan: &Plan, sides: [&Path; SIDES], clients: usize, number: usize) -> Result<Vec<Sample>> {
    let mut crews = sides
        .iter()
        .map(|side| Crew::start(side, clients, &plan.work))
        .collect::<Result<Vec<_>>>()?;
    let mut samples = Vec::new();
    for &phase in &plan.work.phases {
        if phase == Phase::List {
            fs::write("/proc/sys/vm/drop_caches", "2")?;
            thread::sleep(FORGETTING);
        }
        let mut times = [Times::default(); SIDES];
        let mut asked = Asked::default();
        for turn in 0..SIDES {
            let side = (number + turn) % SIDES;
            let before = Asked::of(plan, sides[0])?;
            times[side] = crews[side].phase()?;
            if side == 0 {
                asked = Asked::of(plan, sides[0])?.since(&before);
            }
        }
        let [ours, kernel, floor] = times;
        let operations = phase.times(plan.work.files, plan.listed);
        let operations = clients as f64 * f64::from(operations);
        samples.push(Sample {
            ours: ours.mean,
            kernel: kernel.mean,
            floor: floor.mean,
            usual: ours.median / kernel.median,
            verbs: asked.ns / 1e3 / operations,
            requests: asked.requests / operations,
        });
    }
    for crew in crews {
        crew.end()?;
    }
    Ok(samples)
}

fn fill(dir: &Path, files: u32) -> Result<()> {
    fs::create_dir(dir)?;
    for number in 0..files {
        File::create_new(dir.join(format!("listed-{number}")))?;
    }
    Ok(())
}

/// Requests to a mount since its start, and the time in its verbs.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    requests: f64,
    ns: f64,
}

impl Asked {
    fn of(plan: &Plan, dir: &Path) -> Result<Self> {
        let mut command = Command::new(&plan.ubtrfs);
        command.args(["filesystem", "stats", "--format", "json"]);
        let ran = command.arg(dir).output()?;
        let report: Value = serde_json::from_slice(&ran.stdout).context("figures of the mount")?;
        let verbs = report["filesystem-stats"]["requests"]
            .as_object()
            .context("requests")?;
        let mut asked = Self::default();
        // No client waits for a FORGET.
        for (_, counted) in verbs.iter().filter(|(verb, _)| *verb != "forget") {
            asked.requests += counted["count"].as_f64().unwrap_or_default();
            asked.ns += counted["sum_ns"].as_f64().unwrap_or_default();
        }
        Ok(asked)
    }

    fn since(self, before: &Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            ns: self.ns - before.ns,
        }
    }
}

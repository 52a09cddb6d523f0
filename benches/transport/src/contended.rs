//! Latency of answers while other processes use the CPUs.

use std::path::Path;
use std::process::{Child, Command};

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use ubtrfs_fuse::mount::TransportChoice;

use crate::clients::{self, Times, Work};
use crate::instant::Manners;
use crate::phases::Phase;
use crate::places;

/// Processes that compete with the clients for CPUs.
struct Others {
    name: &'static str,
    /// On all CPUs.
    hogs: usize,
    /// On the first CPU.
    hogs_pinned: usize,
    /// Clients are on the first CPU.
    clients_pinned: bool,
}

pub(crate) fn measure(files: u32, counts: &[usize]) -> Result<()> {
    let cpus = std::thread::available_parallelism()?.get();
    let none = Others {
        name: "none",
        hogs: 0,
        hogs_pinned: 0,
        clients_pinned: false,
    };
    let others = [
        Others {
            name: "none, pinned client",
            clients_pinned: true,
            ..none
        },
        Others {
            name: "a hog on the first CPU",
            hogs_pinned: 1,
            ..none
        },
        Others {
            name: "and pinned client",
            hogs_pinned: 1,
            clients_pinned: true,
            ..none
        },
        Others {
            name: "a hog for each CPU",
            hogs: cpus,
            ..none
        },
        none,
    ];
    println!(
        "{:<24}{:>8}  {:<20}{:>10}{:>10}{:>10}{:>10}",
        "with clients", "clients", "us", "mean", "median", "p99", "longest"
    );
    for others in &others {
        for &count in counts {
            table(others, count, files)?;
        }
    }
    Ok(())
}

fn table(others: &Others, count: usize, files: u32) -> Result<()> {
    let manners = Manners {
        writeback_cache: false,
        create: true,
    };
    let work = Work {
        phases: Phase::FEW.to_vec(),
        files,
        pinned: others.clients_pinned,
        shared: false,
    };
    let hogs = Hogs::start(others)?;
    let mut measured = Vec::new();
    places::with_instant(TransportChoice::Uring, manners, 1, |dir: &Path| {
        measured = clients::measure(dir, count, &work)?;
        Ok(())
    })?;
    drop(hogs);
    for (phase, times) in work.phases.iter().zip(measured) {
        let operation = phase.title();
        let Times {
            mean,
            median,
            p99,
            longest,
        } = times;
        println!(
            "{:<24}{count:>8}  {operation:<20}{mean:>10.1}{median:>10.1}{p99:>10.1}{longest:>10.1}",
            others.name
        );
    }
    Ok(())
}

/// Processes that only use a CPU.
struct Hogs(Vec<Child>);

impl Hogs {
    fn start(others: &Others) -> Result<Self> {
        let program = std::env::current_exe()?;
        let mut hogs = Self(Vec::new());
        for number in 0..others.hogs + others.hogs_pinned {
            let pinned = number < others.hogs_pinned;
            let hog = Command::new(&program)
                .arg("hog")
                .args(pinned.then_some("--pinned"))
                .spawn()?;
            hogs.0.push(hog);
        }
        Ok(hogs)
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

/// Runs a hog, which never ends.
pub(crate) fn hog() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

pub(crate) fn pin_to_first_cpu() -> Result<()> {
    let all = sched_getaffinity(None)?;
    let first = (0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu));
    let mut one = CpuSet::new();
    one.set(first.context("no CPU")?);
    Ok(sched_setaffinity(None, &one)?)
}

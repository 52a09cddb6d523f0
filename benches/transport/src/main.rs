//! The costs of a mount against the kernel's btrfs on a loop device, and the share of its transport.
//!
//! A server that answers at once is the floor. All are measured in one run.
//!
//! Clients are processes, each in its own directory or all in one. Times are per operation and client. Needs root;
//! enables FUSE over io_uring while it mounts.

mod clients;
mod contended;
mod goals;
mod instant;
mod phases;
mod places;
mod switch;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use ubtrfs_fuse::mount::TransportChoice;

use self::clients::{Times, Work};
use self::goals::Plan;
use self::instant::Manners;
use self::phases::Phase;

/// Measures the costs of a mount.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// A mount against the kernel's btrfs and the floor, with its limits
    Goals {
        /// The program that is measured [default: the one next to this]
        #[arg(long)]
        ubtrfs: Option<PathBuf>,
        /// Turns; figures are the medians of all
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Files in the directory that is listed
        #[arg(long, default_value_t = 100_000)]
        listed: u32,
        /// Only these phases
        #[arg(long, value_enum, value_delimiter = ',')]
        phases: Option<Vec<Phase>>,
        #[command(flatten)]
        crowd: Crowd,
    },
    /// The floor of each transport, and the kernel's btrfs
    Transports {
        /// Readers of /dev/fuse
        #[arg(long, value_delimiter = ',', default_value = "4")]
        threads: Vec<usize>,
        /// Only places whose name contains this
        #[arg(long, default_value = "")]
        only: String,
        /// Without the kernel's page cache for written data
        #[arg(long)]
        write_through: bool,
        #[command(flatten)]
        crowd: Crowd,
    },
    /// Latency of answers while other threads compete for the CPUs
    Contended {
        #[command(flatten)]
        crowd: Crowd,
    },
    #[command(hide = true)]
    Client {
        #[arg(long)]
        pinned: bool,
        #[arg(long)]
        files: u32,
        #[arg(long, value_enum, value_delimiter = ',')]
        phases: Vec<Phase>,
        #[arg(long, default_value = "")]
        prefix: String,
        dir: PathBuf,
    },
    #[command(hide = true)]
    Hog {
        #[arg(long)]
        pinned: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Crowd {
    /// Files of each client
    #[arg(long, default_value_t = 3000)]
    files: u32,
    /// Numbers of clients at once
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    clients: Vec<usize>,
    /// All clients in one directory
    #[arg(long)]
    shared: bool,
    /// With each client on the first CPU only
    #[arg(long)]
    pinned: bool,
}

fn main() -> Result<()> {
    match Arguments::parse().what {
        What::Goals {
            ubtrfs,
            rounds,
            listed,
            phases,
            crowd,
        } => {
            let sibling = std::env::current_exe()?.with_file_name("ubtrfs");
            goals::measure(&Plan {
                ubtrfs: ubtrfs.unwrap_or(sibling),
                clients: crowd.clients,
                rounds: rounds.max(1),
                listed: listed.max(1),
                work: Work {
                    phases: needed(phases),
                    files: crowd.files,
                    pinned: crowd.pinned,
                    shared: crowd.shared,
                },
            })
        }
        What::Transports {
            threads,
            only,
            write_through,
            crowd,
        } => {
            let work = Work {
                phases: Phase::FEW.to_vec(),
                files: crowd.files,
                pinned: crowd.pinned,
                shared: crowd.shared,
            };
            let tables = Tables {
                counts: crowd.clients,
                work,
                writeback_cache: !write_through,
            };
            tables.print(&threads, &only)
        }
        What::Contended { crowd } => contended::measure(crowd.files, &crowd.clients),
        What::Client {
            pinned,
            files,
            phases,
            prefix,
            dir,
        } => {
            if pinned {
                contended::pin_to_first_cpu()?;
            }
            let work = Work {
                phases,
                files,
                pinned,
                shared: false,
            };
            clients::live(&dir, &prefix, &work)
        }
        What::Hog { pinned } => {
            if pinned {
                contended::pin_to_first_cpu()?;
            }
            contended::hog()
        }
    }
}

/// Returns the requested phases, with the phases that create and remove their files.
fn needed(asked: Option<Vec<Phase>>) -> Vec<Phase> {
    let Some(asked) = asked else {
        return Phase::ALL.to_vec();
    };
    let needs = |phase| match phase {
        Phase::Create | Phase::Rename | Phase::Unlink => true,
        Phase::Write => asked.contains(&Phase::Reread),
        Phase::WriteLarge => asked.contains(&Phase::RereadLarge),
        _ => false,
    };
    let is_wanted = |phase: &Phase| asked.contains(phase) || needs(*phase);
    Phase::ALL.into_iter().filter(is_wanted).collect()
}

/// The tables of each mount.
struct Tables {
    counts: Vec<usize>,
    work: Work,
    writeback_cache: bool,
}

impl Tables {
    fn print(&self, threads: &[usize], only: &str) -> Result<()> {
        print!("{:<28}{:>8}", "us per operation", "clients");
        for phase in &self.work.phases {
            print!("{:>21}", phase.title());
        }
        println!();
        let manners = |create| Manners {
            writeback_cache: self.writeback_cache,
            create,
        };
        let wanted = |name: &str| name.contains(only);
        for (name, choice, create) in [
            ("io_uring", TransportChoice::Uring, true),
            ("io_uring, mknod", TransportChoice::Uring, false),
        ] {
            if wanted(name) {
                places::with_instant(choice, manners(create), 1, |dir| self.lines(name, dir))?;
            }
        }
        for &threads in threads {
            for (create, how) in [(true, ""), (false, ", mknod")] {
                let name = format!("/dev/fuse, {threads} threads{how}");
                if wanted(&name) {
                    let choice = TransportChoice::Classic;
                    places::with_instant(choice, manners(create), threads, |dir| {
                        self.lines(&name, dir)
                    })?;
                }
            }
        }
        if wanted("kernel btrfs") {
            places::with_kernel_btrfs(|dir| self.lines("kernel btrfs", dir))?;
        }
        Ok(())
    }

    /// Measures one mount with each number of clients, and prints a line for each.
    fn lines(&self, name: &str, dir: &Path) -> Result<()> {
        for &count in &self.counts {
            let times = clients::measure(dir, count, &self.work).context("clients")?;
            print!("{name:<28}{count:>8}");
            for Times { mean, .. } in times {
                print!("{mean:>21.1}");
            }
            println!();
        }
        Ok(())
    }
}

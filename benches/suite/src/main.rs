//! `make bench`: published workloads on the kernel's btrfs and on ubtrfs, in turn.
//!
//! Each workload runs on every side in each round; the order of the sides changes from round to round. All workloads
//! have their first round before any has its second. The run continues after failures, and reports them by messages
//! and by its exit code. All files, mounts and loop devices are below one directory, and are removed at the end, also
//! after a signal.

mod cleanup;
mod commits;
mod counters;
mod discards;
mod figures;
mod kit;
mod latency;
mod machine;
mod report;
mod rounds;
mod run;
mod stage;
mod workload;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;

use self::cleanup::Undo;
use self::kit::Kit;
use self::machine::Machine;
use self::report::{Report, chart, page, text};
use self::workload::{WORKLOADS, Workload};

/// FUSE over io_uring is off until root turns it on.
pub(crate) const URING_SETTING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Runs the benchmarks; needs root, kernel btrfs, btrfs-progs, fio, fs_mark and dbench; python3 and PostgreSQL for
/// databases
#[derive(Debug, Parser)]
#[command(name = "ubtrfs-bench")]
struct Args {
    /// The program to be measured
    #[arg(long, default_value = "target/release/ubtrfs")]
    ubtrfs: PathBuf,
    /// Works in a new directory below this one; needs about 20 GiB
    #[arg(long, default_value = "/var/tmp")]
    tmp: PathBuf,
    /// The page of tables to write; charts go to the folder next to it
    #[arg(long, default_value = "target/benchmarks.md")]
    page: PathBuf,
    /// Where the figures are written
    #[arg(long, default_value = "target/bench.json")]
    json: PathBuf,
    /// A tenth of the work, in one round
    #[arg(long)]
    quick: bool,
    /// Rounds at most, as far as there is time
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// After the first, a round is begun only if it should end this many minutes after the start
    #[arg(long, default_value_t = 27)]
    minutes: u64,
    /// Sends a snapshot of an image to no receiver, perhaps with a parent, and prints seconds, bytes and the peak of
    /// memory
    #[arg(long, hide = true, num_args = 2..=3)]
    send: Option<Vec<PathBuf>>,
    /// Only these workloads
    only: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match &args.send {
        Some(sent) => workload::send_alone(sent).map(|()| true),
        None => bench(&args),
    };
    drop(cleanup::everything());
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ubtrfs-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all workloads succeeded.
fn bench(args: &Args) -> Result<bool> {
    check_machine()?;
    cleanup::on_signals()?;
    let begin = Instant::now();
    let ubtrfs = args
        .ubtrfs
        .canonicalize()
        .with_context(|| format!("no program '{}'", args.ubtrfs.display()))?;
    let dir = args
        .tmp
        .join(format!("ubtrfs-bench.{}", std::process::id()));
    std::fs::create_dir(&dir).with_context(|| format!("cannot make '{}'", dir.display()))?;
    // As the kernel names the files of loop devices.
    let dir = dir.canonicalize()?;
    cleanup::push(Undo::Directory(dir.clone()));
    enable_uring();
    let machine = Machine::look(&dir, &ubtrfs);
    let rounds = if args.quick { 1 } else { args.rounds.max(1) };
    let kit = Kit::new(dir, ubtrfs, args.quick, rounds);
    let until = begin + Duration::from_secs(args.minutes * 60);
    let (tables, all_well) = rounds::run(&kit, &chosen(&args.only)?, until);
    for table in &tables {
        print!("{}", text::table(table));
    }
    let report = Report {
        machine,
        is_quick: args.quick,
        rounds,
        seconds: begin.elapsed().as_secs_f64(),
        tables,
    };
    write(args, &report)?;
    Ok(all_well)
}

fn check_machine() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("must run as root: it mounts with the kernel");
    }
    let known = std::fs::read_to_string("/proc/filesystems")?;
    if !known.split_whitespace().any(|word| word == "btrfs") {
        bail!("this kernel has no btrfs to compare with");
    }
    Ok(())
}

fn enable_uring() {
    if let Ok(before) = std::fs::read_to_string(URING_SETTING)
        && before.trim() == "N"
        && std::fs::write(URING_SETTING, "Y").is_ok()
    {
        let path = URING_SETTING.into();
        cleanup::push(Undo::Setting { path, before });
    }
}

fn chosen(only: &[String]) -> Result<Vec<&'static Workload>> {
    let known = |name: &String| WORKLOADS.iter().any(|workload| workload.name == name);
    if let Some(name) = only.iter().find(|name| !known(name)) {
        let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
        bail!("no workload '{name}'; there are {}", names.join(", "));
    }
    let wanted =
        |workload: &&Workload| only.is_empty() || only.iter().any(|name| name == workload.name);
    Ok(WORKLOADS.iter().filter(wanted).collect())
}

fn write(args: &Args, report: &Report) -> Result<()> {
    let make_parent = |path: &Path| match path.parent() {
        Some(parent) => std::fs::create_dir_all(parent),
        None => Ok(()),
    };
    make_parent(&args.json)?;
    std::fs::write(&args.json, serde_json::to_string_pretty(report)? + "\n")?;
    let charts = args.page.with_extension("");
    std::fs::create_dir_all(&charts)?;
    let folder = charts
        .file_name()
        .context("the page has no name")?
        .to_string_lossy()
        .into_owned();
    let mut drawn = Vec::new();
    for table in &report.tables {
        if let Some(svg) = chart::chart(table) {
            std::fs::write(charts.join(format!("{}.svg", table.name)), svg)?;
            drawn.push(table.name);
        }
    }
    std::fs::write(&args.page, page::page(report, &folder, &drawn))?;
    println!("\n{} and {}", args.page.display(), args.json.display());
    Ok(())
}

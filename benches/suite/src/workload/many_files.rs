//! A million empty files, made by fs_mark and deleted by rm.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::meter::Meter;
use super::{GIB, MOUNTED, Outcome, Workload};
use crate::figures::{Round, Side, Unit};
use crate::kit::Kit;
use crate::run::{run, run_command};
use crate::stage::Stage;

pub(super) const WORKLOAD: Workload = Workload {
    name: "s4-many-files",
    title: "S4: a million empty files",
    text: "fs_mark makes empty files without sync, 1,000,000 in all, with 1 thread and with 4; then rm -rf.",
    sides: MOUNTED,
    most_rounds: 1,
    run: measure,
};

const FOLDER: &str = "files";

fn measure(kit: &Kit, side: Side) -> Result<Outcome> {
    let files = kit.scaled(1_000_000);
    let mut round = Round::default();
    for threads in [1, 4] {
        let image = kit.image(32 * GIB)?;
        let stage = Stage::mount(kit, side, &image, "")?;
        let dir = stage.dir.join(FOLDER);
        let name = format!("{threads} thread(s)");
        let meter = Meter::start(&stage)?;
        let rate = make(&stage.dir, FOLDER, threads, files / threads)?;
        round.add(format!("{name}: made"), Unit::PerSecond, rate);
        stage.sync()?;
        let made = format!("{name}: make and sync");
        round.add(&made, Unit::Seconds, meter.seconds());
        let counts = meter.written(&stage)?;
        let per_file = counts.written_bytes as f64 / files as f64;
        round.add(format!("{name}: metadata per file"), Unit::Bytes, per_file);
        if counts.writes > 0 {
            round.add(format!("{name}: writes"), Unit::Count, counts.writes as f64);
        }
        meter.add_costs(&made, &stage, &mut round)?;
        if threads == 1 {
            meter.add_commits(&made, &stage, &mut round)?;
        }
        let meter = Meter::start(&stage)?;
        run("rm", &[Path::new("-rf"), &dir])?;
        stage.sync()?;
        let deleted = format!("{name}: rm -rf and sync");
        round.add(&deleted, Unit::Seconds, meter.seconds());
        meter.add_costs(&deleted, &stage, &mut round)?;
        if threads == 1 {
            meter.add_commits(&deleted, &stage, &mut round)?;
        }
        stage.end()?;
        std::fs::remove_file(image)?;
    }
    Ok(Outcome::Figures(round))
}

/// Runs fs_mark, and returns its files per second.
fn make(top: &Path, name: &str, threads: u64, files_each: u64) -> Result<f64> {
    let words = [
        "-t",
        &threads.to_string(),
        "-n",
        &files_each.to_string(),
        "-s",
        "0",
        "-S",
        "0",
        "-k",
        "-D",
        "100",
        "-d",
    ]
    .map(str::to_owned);
    // It takes no path of more than 40 bytes.
    let mut command = Command::new("fs_mark");
    command.args(words).arg(name).current_dir(top);
    let ran = run_command(command)?;
    parse(&ran.output).context("fs_mark printed no rate")
}

/// Parses the fourth column of the last line: use of the disk, count, size, files per second, overhead.
fn parse(output: &str) -> Option<f64> {
    let line = output.lines().rfind(|line| {
        let mut words = line.split_whitespace();
        words.clone().count() >= 5 && words.all(|word| word.parse::<f64>().is_ok())
    })?;
    line.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_line_of_numbers_is_understood() {
        let text = "#  fs_mark  -t  4\n\nFSUse%        Count         Size    Files/sec     App Overhead\n     \
                    3         4000            0      31234.5            45678\n";
        assert_eq!(parse(text), Some(31234.5));
        assert_eq!(parse("fs_mark: no such directory"), None);
    }
}

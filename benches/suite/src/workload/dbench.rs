//! dbench: a file server's day.

use std::path::Path;

use anyhow::{Context, Result};

use super::meter::Meter;
use super::{GIB, MOUNTED, Outcome, Workload};
use crate::figures::{Round, Side, Unit};
use crate::kit::Kit;
use crate::run::run;
use crate::stage::Stage;

pub(super) const WORKLOAD: Workload = Workload {
    name: "s0-dbench",
    title: "S0: dbench -S",
    text: "dbench with synchronous directory operations, as many clients as CPUs, 30 seconds.",
    sides: MOUNTED,
    most_rounds: 2,
    run: measure,
};

fn measure(kit: &Kit, side: Side) -> Result<Outcome> {
    let image = kit.image(16 * GIB)?;
    let stage = Stage::mount(kit, side, &image, "")?;
    let clients = std::thread::available_parallelism().map_or(1, usize::from);
    let seconds = kit.scaled(30).to_string();
    let meter = Meter::start(&stage)?;
    let ran = run(
        "dbench",
        &[
            Path::new("-S"),
            Path::new("-t"),
            Path::new(&seconds),
            Path::new("-D"),
            &stage.dir,
            Path::new(&clients.to_string()),
        ],
    )?;
    let (rate, longest) = parse(&ran.output).context("dbench printed no throughput")?;
    let mut round = Round::default();
    round.add("throughput", Unit::MibPerSecond, rate);
    round.add("longest call", Unit::Microseconds, longest * 1e3);
    meter.add_costs("all", &stage, &mut round)?;
    meter.add_commits("all", &stage, &mut round)?;
    stage.end()?;
    std::fs::remove_file(image)?;
    Ok(Outcome::Figures(round))
}

/// MB/s and milliseconds of the last line:
/// `Throughput 869.867 MB/sec (sync dirs)  12 clients  12 procs  max_latency=269.741 ms`.
fn parse(output: &str) -> Option<(f64, f64)> {
    let line = output
        .lines()
        .rfind(|line| line.starts_with("Throughput"))?;
    let rate = line.split_whitespace().nth(1)?.parse().ok()?;
    let longest = line.split_once("max_latency=")?.1;
    let longest = longest.split_whitespace().next()?.parse().ok()?;
    Some((rate, longest))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_last_line_is_understood() {
        let text = "   2  100 1.0 MB/sec\n\
                    Throughput 869.867 MB/sec (sync dirs)  12 clients  12 procs  max_latency=269.741 ms\n";
        assert_eq!(parse(text), Some((869.867, 269.741)));
        assert_eq!(parse("cannot open"), None);
    }
}

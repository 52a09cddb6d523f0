//! dbench: the load of a file server.

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
    text: "dbench with synchronous directory operations, as many clients as CPUs, 30 seconds. Its work is \
           counted in bytes that its clients read and write, warm-up included; the faster side does more of it.",
    sides: MOUNTED,
    most_rounds: 2,
    run: measure,
};

const MIB: f64 = (1 << 20) as f64;
/// Its "MB" are powers of ten.
const MB: f64 = 1e6;

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
    let work = work_bytes(&ran.output, rate, kit.scaled(30)) / MIB;
    let mut round = Round::default();
    round.add("throughput", Unit::MibPerSecond, rate * MB / MIB);
    round.add("longest call", Unit::Microseconds, longest * 1e3);
    meter.add_costs("all", &stage, &mut round)?;
    let written = meter.written(&stage)?.written_bytes as f64 / MIB;
    let what = "bytes written for 1 MiB of dbench's work";
    round.add(what, Unit::Mib, written / work);
    meter.add_commits("all", &stage, &mut round)?;
    stage.end()?;
    std::fs::remove_file(image)?;
    Ok(Outcome::Figures(round))
}

/// Parses MB/s and milliseconds of the last line: `Throughput 869.867 MB/sec (sync dirs)  12 clients  12 procs
/// max_latency=269.741 ms`.
fn parse(output: &str) -> Option<(f64, f64)> {
    let line = output
        .lines()
        .rfind(|line| line.starts_with("Throughput"))?;
    let rate = line.split_whitespace().nth(1)?.parse().ok()?;
    let longest = line.split_once("max_latency=")?.1;
    let longest = longest.split_whitespace().next()?.parse().ok()?;
    Some((rate, longest))
}

/// Computes the bytes that the clients read and wrote: in `seconds` at `rate`, and in the warm-up before that.
///
/// The first line ends in `and minimum warmup 6 secs`, and the last one of the warm-up is
/// `   2       837   421.50 MB/sec  warmup   5 sec  latency 311.997 ms`. A short one has no such line.
fn work_bytes(output: &str, rate: f64, seconds: u64) -> f64 {
    let warm_up_seconds = output.lines().find_map(|line| {
        let (_, after) = line.split_once("minimum warmup ")?;
        after.split_whitespace().next()?.parse::<f64>().ok()
    });
    let warm_up_rate = output.lines().rev().find_map(|line| {
        let (before, _) = line.split_once("MB/sec  warmup")?;
        before.split_whitespace().last()?.parse::<f64>().ok()
    });
    let warmed_up = warm_up_seconds.unwrap_or(0.0) * warm_up_rate.unwrap_or(rate);
    (rate * seconds as f64 + warmed_up) * MB
}

#[cfg(test)]
mod tests {
    use super::{parse, work_bytes};

    #[test]
    fn the_last_line_is_understood() {
        let text = "   2  100 1.0 MB/sec\n\
                    Throughput 869.867 MB/sec (sync dirs)  12 clients  12 procs  max_latency=269.741 ms\n";
        assert_eq!(parse(text), Some((869.867, 269.741)));
        assert_eq!(parse("cannot open"), None);
    }

    #[test]
    fn the_warm_up_counts_as_work() {
        let first = "Running for 10 seconds with load 'client.txt' and minimum warmup 2 secs\n";
        let text = format!(
            "{first}   2  12   40.00 MB/sec  warmup   1 sec  latency 1.0 ms\n   \
             2  56   99.00 MB/sec  execute   1 sec  latency 1.0 ms\n"
        );
        assert_eq!(work_bytes(&text, 100.0, 10), 1080e6);
        assert_eq!(work_bytes(first, 100.0, 10), 1200e6);
        assert_eq!(work_bytes("", 100.0, 10), 1000e6);
    }
}

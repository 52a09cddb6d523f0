//! fio: streams and random blocks of one file; also runs fio for other workloads.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::meter::Meter;
use super::{GIB, MOUNTED, Outcome, Workload};
use crate::figures::{Round, Side, Unit};
use crate::kit::Kit;
use crate::run::run;
use crate::stage::Stage;

pub(super) const WORKLOAD: Workload = Workload {
    name: "fio",
    title: "Contents: streams and random blocks",
    text: "fio on one file of 4 GiB: written from end to end in blocks of 1 MiB and made durable, then read \
           after a new mount. Then blocks of 4 KiB at random, past the cache at depth 32.",
    sides: MOUNTED,
    most_rounds: 2,
    run: measure,
};

fn measure(kit: &Kit, side: Side) -> Result<Outcome> {
    let bytes = kit.scaled(4 * GIB);
    let image = kit.image(16 * GIB)?;
    let mut round = Round::default();
    let names = ["file".to_owned()];
    let job = |stage: &Stage, pattern, block_bytes, is_direct, seconds| {
        Job {
            name: "contents",
            dir: &stage.dir,
            files: &names,
            file_bytes: bytes,
            pattern,
            block_bytes,
            depth: if is_direct { 32 } else { 1 },
            jobs: 1,
            is_direct,
            seconds,
            ends_with_fsync: pattern == "write",
        }
        .run()
    };
    let seconds = kit.scaled(10).max(2);
    let stage = Stage::mount(kit, side, &image, "")?;
    let meter = Meter::start(&stage)?;
    let rate = |round: &mut Round, what: &str, report: &Report| {
        let mib = report.bytes_per_second / (1 << 20) as f64;
        round.add(what, Unit::MibPerSecond, mib);
    };
    rate(
        &mut round,
        "stream written",
        &job(&stage, "write", 1 << 20, false, 0)?,
    );
    meter.add_costs("stream written", &stage, &mut round)?;
    stage.end()?;
    drop_caches(kit)?;
    let stage = Stage::mount(kit, side, &image, "")?;
    let meter = Meter::start(&stage)?;
    rate(
        &mut round,
        "stream read, cold",
        &job(&stage, "read", 1 << 20, false, 0)?,
    );
    rate(
        &mut round,
        "stream read again",
        &job(&stage, "read", 1 << 20, false, 0)?,
    );
    meter.add_costs("streams read", &stage, &mut round)?;
    for (pattern, what) in [("randread", "4 KiB read"), ("randwrite", "4 KiB written")] {
        let report = job(&stage, pattern, 4096, true, seconds)?;
        round.add(
            format!("{what} at random"),
            Unit::PerSecond,
            report.calls_per_second,
        );
        round.add(
            format!("{what} at random: p99"),
            Unit::Microseconds,
            report.p99_us,
        );
    }
    stage.end()?;
    std::fs::remove_file(image)?;
    Ok(Outcome::Figures(round))
}

/// Drops this machine's caches, so that the next read is from storage.
pub(super) fn drop_caches(kit: &Kit) -> Result<()> {
    rustix::fs::syncfs(std::fs::File::open(&kit.dir)?)?;
    Ok(std::fs::write("/proc/sys/vm/drop_caches", "3")?)
}

/// One run of fio.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub(super) name: &'static str,
    pub(super) dir: &'a Path,
    pub(super) files: &'a [String],
    pub(super) file_bytes: u64,
    pub(super) pattern: &'static str,
    pub(super) block_bytes: u64,
    pub(super) depth: u32,
    pub(super) jobs: u32,
    pub(super) is_direct: bool,
    /// 0: until all data was processed once.
    pub(super) seconds: u64,
    pub(super) ends_with_fsync: bool,
}

/// The report of fio on all jobs together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Report {
    pub(super) bytes_per_second: f64,
    pub(super) calls_per_second: f64,
    pub(super) p99_us: f64,
}

impl Job<'_> {
    pub(super) fn run(&self) -> Result<Report> {
        let mut args = vec![
            format!("--name={}", self.name),
            format!("--directory={}", self.dir.display()),
            format!("--filename={}", self.files.join(":")),
            format!("--filesize={}", self.file_bytes),
            format!("--rw={}", self.pattern),
            format!("--bs={}", self.block_bytes),
            format!("--iodepth={}", self.depth),
            format!("--numjobs={}", self.jobs),
            format!("--direct={}", u8::from(self.is_direct)),
            "--ioengine=io_uring".into(),
            "--group_reporting".into(),
            "--norandommap".into(),
            "--file_service_type=random".into(),
            "--fallocate=none".into(),
            "--invalidate=0".into(),
            "--output-format=json".into(),
        ];
        if self.seconds > 0 {
            args.push("--time_based".into());
            args.push(format!("--runtime={}", self.seconds));
        }
        if self.ends_with_fsync {
            args.push("--end_fsync=1".into());
        }
        let ran = run("fio", &args)?;
        let begin = ran.output.find('{').context("fio printed no JSON")?;
        let report: Value = serde_json::from_str(&ran.output[begin..])?;
        let kind = if self.pattern.ends_with("read") {
            "read"
        } else {
            "write"
        };
        parse(&report["jobs"][0][kind]).context("fio's report has another form")
    }
}

fn parse(side: &Value) -> Option<Report> {
    let p99_ns = side["clat_ns"]["percentile"]["99.000000"].as_f64();
    Some(Report {
        bytes_per_second: side["bw_bytes"].as_f64()?,
        calls_per_second: side["iops"].as_f64()?,
        p99_us: p99_ns.unwrap_or_default() / 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_understood() {
        let text = r#"{"bw_bytes": 1048576, "iops": 16.5,
                       "clat_ns": {"percentile": {"99.000000": 2500}}}"#;
        let report = parse(&serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(report.bytes_per_second, 1048576.0);
        assert_eq!(report.p99_us, 2.5);
        assert_eq!(parse(&Value::Null), None);
    }
}

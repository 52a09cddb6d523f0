//! Random writes in place, on volumes with few and with very many block groups.

use std::fs::File;
use std::path::Path;

use anyhow::Result;
use rustix::fs::{FallocateFlags, fallocate};

use super::fio::{Job, Report};
use super::meter::Meter;
use super::{GIB, MOUNTED, Outcome, Workload};
use crate::figures::{Round, Side, Unit};
use crate::kit::Kit;
use crate::stage::Stage;

pub(super) const WORKLOAD: Workload = Workload {
    name: "s1-nocow",
    title: "S1: writes in place, 3,500 block groups",
    text: "A volume of 4 TiB on a sparse file, mounted with nodatacow; 3,500 GiB are preallocated, so that \
           about 3,500 block groups exist. fio writes at random into the preallocated files: io_uring, direct, \
           depth 64, 2 jobs. The same on a volume with about 10 block groups shows whether their number matters.",
    sides: MOUNTED,
    most_rounds: 2,
    run,
};

/// The size of a volume, and of its preallocated part, in GiB.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    volume_gib: u64,
    files: u64,
    file_gib: u64,
}

const SHAPES: [Shape; 2] = [
    Shape {
        name: "3,500 groups",
        volume_gib: 4096,
        files: 35,
        file_gib: 100,
    },
    Shape {
        name: "10 groups",
        volume_gib: 16,
        files: 5,
        file_gib: 2,
    },
];

fn run(kit: &Kit, side: Side) -> Result<Outcome> {
    let mut round = Round::default();
    for shape in SHAPES {
        let image = kit.image(shape.volume_gib * GIB)?;
        let stage = Stage::mount(kit, side, &image, "nodatacow")?;
        let meter = Meter::start(&stage)?;
        let names: Vec<String> = (0..shape.files).map(|file| format!("file{file}")).collect();
        for name in &names {
            reserve(&stage.dir.join(name), shape.file_gib * GIB)?;
        }
        stage.sync()?;
        let what = format!("preallocate, {}", shape.name);
        round.add(what, Unit::Seconds, meter.seconds());
        for (block, name) in [(64 << 10, "64 KiB"), (4 << 10, "4 KiB")] {
            let report = write_at_random(kit, &stage, &names, block, shape)?;
            let what = format!("{name}, {}", shape.name);
            let mib = report.bytes_per_second / (1 << 20) as f64;
            round.add(format!("{what}: rate"), Unit::MibPerSecond, mib);
            round.add(
                format!("{what}: writes"),
                Unit::PerSecond,
                report.calls_per_second,
            );
            round.add(format!("{what}: p99"), Unit::Microseconds, report.p99_us);
        }
        meter.add_costs(shape.name, &stage, &mut round)?;
        stage.end()?;
        std::fs::remove_file(image)?;
    }
    Ok(Outcome::Figures(round))
}

fn reserve(path: &Path, bytes: u64) -> Result<()> {
    let file = File::create(path)?;
    Ok(fallocate(&file, FallocateFlags::empty(), 0, bytes)?)
}

fn write_at_random(
    kit: &Kit,
    stage: &Stage,
    names: &[String],
    block_bytes: u64,
    shape: Shape,
) -> Result<Report> {
    Job {
        name: "nocow",
        dir: &stage.dir,
        files: names,
        file_bytes: shape.file_gib * GIB,
        pattern: "randwrite",
        block_bytes,
        depth: 64,
        jobs: 2,
        is_direct: true,
        seconds: kit.scaled(10),
        ends_with_fsync: false,
    }
    .run()
}

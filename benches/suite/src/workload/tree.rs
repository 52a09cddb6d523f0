//! Common work on a source tree.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::fio::drop_caches;
use super::meter::Meter;
use super::{GIB, MOUNTED, Outcome, Workload};
use crate::figures::{Round, Side, Unit};
use crate::kit::Kit;
use crate::run::run;
use crate::stage::Stage;

pub(super) const WORKLOAD: Workload = Workload {
    name: "tree",
    title: "A source tree",
    text: "A tar archive of /usr/include, /usr/share and /usr/lib/python3 of this machine, as far as it has them, \
           is unpacked; the tree is searched after a new mount and again, copied with cp -a, and deleted.",
    sides: MOUNTED,
    most_rounds: 3,
    run: measure,
};

const SOURCES: [&str; 3] = ["usr/include", "usr/lib/python3", "usr/share"];
/// The number of sources in a quick run.
const QUICK_SOURCES: usize = 1;

fn measure(kit: &Kit, side: Side) -> Result<Outcome> {
    let archive = archive(kit)?;
    let image = kit.image(16 * GIB)?;
    let mut round = Round::default();
    let stage = Stage::mount(kit, side, &image, "")?;
    let tree = stage.dir.join("tree");
    std::fs::create_dir(&tree)?;
    let args = [Path::new("-xf"), &archive, Path::new("-C"), &tree];
    step(&stage, &mut round, "tar -x and sync", "tar", &args)?;
    stage.end()?;
    drop_caches(kit)?;
    let stage = Stage::mount(kit, side, &image, "")?;
    let tree = stage.dir.join("tree");
    let find = [
        &tree,
        Path::new("-newer"),
        Path::new("/"),
        Path::new("-size"),
        Path::new("+1000G"),
    ];
    for what in ["find, cold", "find, warm"] {
        let ran = run("find", &find)?;
        round.add(what, Unit::Seconds, ran.took.as_secs_f64());
    }
    let args = [
        Path::new("-cf"),
        Path::new("/dev/null"),
        Path::new("-C"),
        &tree,
        Path::new("."),
    ];
    // GNU tar does not read files for an archive on the null device, so it writes to a pipe.
    let args = [&[Path::new("--use-compress-program=cat")], args.as_slice()].concat();
    let ran = run("tar", &args)?;
    round.add("tar -c", Unit::Seconds, ran.took.as_secs_f64());
    let copy = stage.dir.join("copy");
    let args = [Path::new("-a"), &tree, &copy];
    step(&stage, &mut round, "cp -a and sync", "cp", &args)?;
    let args = [Path::new("-rf"), &copy];
    step(&stage, &mut round, "rm -rf and sync", "rm", &args)?;
    stage.end()?;
    std::fs::remove_file(image)?;
    Ok(Outcome::Figures(round))
}

fn step(stage: &Stage, round: &mut Round, what: &str, program: &str, args: &[&Path]) -> Result<()> {
    let meter = Meter::start(stage)?;
    run(program, args)?;
    stage.sync()?;
    round.add(what, Unit::Seconds, meter.seconds());
    meter.add_costs(what, stage, round)
}

/// Returns an archive, made once for a run.
pub(super) fn archive(kit: &Kit) -> Result<PathBuf> {
    let path = kit.dir.join("tree.tar");
    if !path.exists() {
        let count = if kit.is_quick {
            QUICK_SOURCES
        } else {
            SOURCES.len()
        };
        let there = SOURCES[..count]
            .iter()
            .map(Path::new)
            .filter(|source| Path::new("/").join(source).is_dir());
        let begin = [Path::new("--sort=name"), Path::new("-cf"), &path];
        let args: Vec<&Path> = begin
            .into_iter()
            .chain([Path::new("-C"), Path::new("/")])
            .chain(there)
            .collect();
        run("tar", &args)?;
    }
    Ok(path)
}

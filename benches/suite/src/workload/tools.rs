//! Programs that work on images; btrfs-progs count as the kernel's side.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::fio::drop_caches;
use super::{GIB, MOUNTED, Outcome, Workload};
use crate::figures::{Round, Side, Unit};
use crate::kit::Kit;
use crate::run::{run, run_command};
use crate::stage::Stage;

pub(super) const WORKLOAD: Workload = Workload {
    name: "tools",
    title: "Tools on images: btrfs-progs and ubtrfs",
    text: "mkfs --rootdir of 50,000 small files that are in the cache, a check of the result, and mounting it from a \
           cold cache.",
    sides: MOUNTED,
    most_rounds: 3,
    run: measure,
};

const FILES: u64 = 50_000;
const FILES_PER_DIR: u64 = 500;

fn measure(kit: &Kit, side: Side) -> Result<Outcome> {
    let source = source(kit)?;
    let image = kit.fresh("image");
    std::fs::File::create(&image)?.set_len(4 * GIB)?;
    let mut round = Round::default();
    let (mut mkfs, mut check) = match side {
        Side::Kernel => {
            let mut check = Command::new("btrfs");
            check.arg("check");
            (Command::new("mkfs.btrfs"), check)
        }
        _ => {
            let (mut mkfs, mut check) = (Command::new(&kit.ubtrfs), Command::new(&kit.ubtrfs));
            mkfs.arg("mkfs");
            check.arg("check");
            (mkfs, check)
        }
    };
    mkfs.args(["-q", "--rootdir"]).arg(&source).arg(&image);
    let ran = run_command(mkfs)?;
    round.add("mkfs --rootdir", Unit::Seconds, ran.took.as_secs_f64());
    check.arg(&image);
    let ran = run_command(check)?;
    round.add("check", Unit::Seconds, ran.took.as_secs_f64());
    drop_caches(kit)?;
    let begin = std::time::Instant::now();
    let stage = Stage::mount(kit, side, &image, "")?;
    round.add("mount, cold", Unit::Seconds, begin.elapsed().as_secs_f64());
    stage.end()?;
    std::fs::remove_file(image)?;
    Ok(Outcome::Figures(round))
}

/// Returns files that are made once for a run, and reads them each time, because the previous side may have dropped
/// the caches.
fn source(kit: &Kit) -> Result<PathBuf> {
    let top = kit.dir.join("small-files");
    let is_new = !top.exists();
    for number in 0..kit.scaled(FILES) {
        let dir = top.join(format!("dir{}", number / FILES_PER_DIR));
        let file = dir.join(format!("file{number}"));
        if !is_new {
            std::fs::read(file)?;
            continue;
        }
        if number % FILES_PER_DIR == 0 {
            std::fs::create_dir_all(&dir)?;
        }
        let text = format!("{number} ").repeat(1 + number as usize % 300);
        std::fs::write(file, text)?;
    }
    run("sync", &[Path::new("-f"), &top])?;
    Ok(top)
}

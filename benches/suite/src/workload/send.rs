//! Incremental send of many moved files.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::{GIB, MOUNTED, Outcome, Workload};
use crate::cleanup;
use crate::figures::{Round, Side, Unit};
use crate::kit::Kit;
use crate::run::run;
use crate::stage::Stage;

pub(super) const WORKLOAD: Workload = Workload {
    name: "s2-send",
    title: "S2: incremental send after many moves",
    text: "Of a snapshot with N files in one directory, all are moved to another directory where N new ones \
           are made; then an incremental send to nobody. N is 10,000, 20,000 and 30,000.",
    sides: MOUNTED,
    most_rounds: 2,
    run: measure,
};

fn measure(kit: &Kit, side: Side) -> Result<Outcome> {
    if side == Side::Mount {
        return Ok(Outcome::Absent("there is no send yet"));
    }
    let mut round = Round::default();
    let sizes: &[u64] = if kit.is_quick {
        &[10_000]
    } else {
        &[10_000, 20_000, 30_000]
    };
    for &files in sizes {
        let image = kit.image(8 * GIB)?;
        let stage = Stage::mount(kit, side, &image, "")?;
        prepare(&stage.dir, files)?;
        let (seconds, bytes) = send(&stage.dir.join("snap1"), &stage.dir.join("snap2"))?;
        let what = format!("{},000 files", files * 2 / 1000);
        round.add(&what, Unit::Seconds, seconds);
        round.add(
            format!("{what}: stream"),
            Unit::Mib,
            bytes as f64 / (1 << 20) as f64,
        );
        stage.end()?;
        std::fs::remove_file(image)?;
    }
    Ok(Outcome::Figures(round))
}

fn prepare(top: &Path, files: u64) -> Result<()> {
    let (old, new) = (top.join("old"), top.join("new"));
    std::fs::create_dir(&old)?;
    for number in 0..files {
        std::fs::write(old.join(format!("file{number}")), b"1234567890")?;
    }
    snapshot(top, "snap1")?;
    std::fs::create_dir(&new)?;
    for number in 0..files {
        let name = format!("file{number}");
        std::fs::rename(old.join(&name), new.join(&name))?;
        std::fs::write(new.join(format!("more{number}")), b"1234567890")?;
    }
    snapshot(top, "snap2")
}

fn snapshot(top: &Path, name: &str) -> Result<()> {
    let words = ["subvolume", "snapshot", "-r"].map(Path::new);
    let args: Vec<&Path> = words.into_iter().chain([top]).collect();
    let to = top.join(name);
    run("btrfs", &[args.as_slice(), &[to.as_path()]].concat())?;
    Ok(())
}

/// Seconds and bytes of the stream.
fn send(parent: &Path, snapshot: &Path) -> Result<(f64, u64)> {
    let begin = Instant::now();
    let mut command = Command::new("btrfs");
    command
        .args(["-q", "send", "-p"])
        .arg(parent)
        .arg(snapshot)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let (mut child, undo) = cleanup::spawn(&mut command)?;
    let mut stream = child.stdout.take().context("a pipe was asked for")?;
    let bytes = std::io::copy(&mut stream, &mut std::io::sink())?;
    let status = child.wait()?;
    cleanup::done(&undo);
    if !status.success() {
        bail!("btrfs send: {status}");
    }
    Ok((begin.elapsed().as_secs_f64(), bytes))
}

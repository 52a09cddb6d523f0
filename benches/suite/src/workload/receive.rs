//! Receiving a stream of many files.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{OpenOptions, Volume};
use ubtrfs_stream::{ReceiveOptions, Receiver, StreamReader, VolumeTarget};

use super::fio::drop_caches;
use super::meter::Meter;
use super::send::small_files;
use super::snapshots::{self, path_of};
use super::{GIB, Outcome, Workload};
use crate::figures::{Round, Side, Unit};
use crate::kit::Kit;
use crate::run::{run, run_command};
use crate::stage::Stage;

pub(super) const WORKLOAD: Workload = Workload {
    name: "s2-receive",
    title: "S2: receive of many files",
    text: "The kernel's stream of a snapshot with 1,000,000 files of 500 bytes is received into an empty volume and made \
           durable. btrfs receive does it in a mount of the kernel's, ubtrfs receive in a mount of ubtrfs, and the library in \
           the image.",
    sides: &Side::ALL,
    most_rounds: 2,
    run: measure,
};

const VOLUME_BYTES: u64 = 64 * GIB;
const BUFFER_BYTES: usize = 1 << 20;
const NAME: &str = "many";
const MIB: f64 = (1 << 20) as f64;

fn measure(kit: &Kit, side: Side) -> Result<Outcome> {
    let files = small_files(kit);
    let stream = stream(kit, files)?;
    let image = kit.image(VOLUME_BYTES)?;
    drop_caches(kit)?;
    let mut round = Round::default();
    match side {
        Side::Library => by_library(&image, &stream, &mut round)?,
        Side::Kernel | Side::Mount => {
            let stage = Stage::mount(kit, side, &image, "")?;
            let meter = Meter::start(&stage)?;
            let mut command = snapshots::command(kit, side);
            command.args(["receive", "-f"]).arg(&stream).arg(&stage.dir);
            run_command(command)?;
            stage.sync()?;
            round.add("all", Unit::Seconds, meter.seconds());
            meter.add_costs("all", &stage, &mut round)?;
            let last = path_of(&stage.dir.join(NAME), files - 1);
            fs::metadata(&last).with_context(|| format!("missing: {}", last.display()))?;
            stage.end()?;
        }
    }
    fs::remove_file(image)?;
    Ok(Outcome::Figures(round))
}

fn by_library(image: &Path, stream: &Path, round: &mut Round) -> Result<()> {
    let volume = Volume::open(&[image.to_owned()], &OpenOptions::new().writable(true))?;
    let top = volume.root_dir(RootId::FS_TREE)?;
    snapshots::forget_peak()?;
    let begin = Instant::now();
    let source = BufReader::with_capacity(BUFFER_BYTES, File::open(stream)?);
    let mut target = VolumeTarget::new(&volume, top);
    let mut observer = ();
    let mut receiver = Receiver::new(&mut target, &mut observer, ReceiveOptions::default());
    receiver.receive(&mut StreamReader::open(source)?)?;
    volume.sync()?;
    round.add("all", Unit::Seconds, begin.elapsed().as_secs_f64());
    if let Some(bytes) = snapshots::peak_bytes() {
        round.add("process: memory", Unit::Mib, bytes as f64 / MIB);
    }
    let found = volume.subvolumes()?.len();
    ensure!(found == 2, "{found} subvolumes after receiving one");
    volume.close()?;
    Ok(())
}

/// Returns a stream of the kernel, made once for a run.
fn stream(kit: &Kit, files: u64) -> Result<PathBuf> {
    let stream = kit.dir.join("many.stream");
    if !stream.exists() {
        let image = snapshots::many_files(kit, files)?;
        let stage = Stage::mount(kit, Side::Kernel, &image, "ro")?;
        let snapshot = stage.dir.join(NAME);
        let words = ["-q", "send", "-f"].map(Path::new);
        run("btrfs", &[words[0], words[1], words[2], &stream, &snapshot])?;
        stage.end()?;
    }
    Ok(stream)
}

//! Volumes with snapshots, and sends of them. The kernel makes them once for a run, for all sides.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{OpenOptions, Snapshot, Volume};
use ubtrfs_stream::{
    Command as StreamCommand, SendError, SendOptions, Sender, StreamVersion, StreamWriter,
    write_behind,
};

use super::GIB;
use super::fio::drop_caches;
use crate::cleanup;
use crate::counters;
use crate::figures::{Round, Side, Unit};
use crate::kit::Kit;
use crate::run::run;
use crate::stage::Stage;

const VOLUME_BYTES: u64 = 64 * GIB;
const FILES_PER_DIR: u64 = 1000;
const MIB: f64 = (1 << 20) as f64;

/// The snapshots to send from a volume.
pub(super) struct Sent<'a> {
    pub(super) image: &'a Path,
    pub(super) parent: Option<&'a str>,
    pub(super) snapshot: &'a str,
}

/// Returns the image `name`, which the first call fills.
pub(super) fn image(kit: &Kit, name: &str, fill: impl Fn(&Path) -> Result<()>) -> Result<PathBuf> {
    let made = kit.dir.join(format!("snapshots-{name}"));
    if !made.exists() {
        let image = kit.image(VOLUME_BYTES)?;
        let stage = Stage::mount(kit, Side::Kernel, &image, "")?;
        fill(&stage.dir)?;
        stage.end()?;
        fs::rename(image, &made)?;
    }
    Ok(made)
}

/// Creates a snapshot `many` of `files` small files, and `later` after 100 changes.
pub(super) fn many_files(kit: &Kit, files: u64) -> Result<PathBuf> {
    image(kit, "many", |top| {
        let live = top.join("live");
        run(
            "btrfs",
            &[Path::new("subvolume"), Path::new("create"), &live],
        )?;
        for number in 0..files {
            let path = path_of(&live, number);
            if number.is_multiple_of(FILES_PER_DIR) {
                fs::create_dir(path.parent().context("files are in directories")?)?;
            }
            fs::write(path, content(number))?;
        }
        take(&live, &top.join("many"))?;
        for number in (0..files).step_by((files / 100) as usize) {
            let path = path_of(&live, number);
            match number / (files / 100) % 4 {
                0 => File::options()
                    .append(true)
                    .open(path)?
                    .write_all(b"more")?,
                1 => fs::rename(&path, path.with_extension("moved"))?,
                2 => fs::remove_file(path)?,
                _ => fs::write(path.with_extension("new"), content(number))?,
            }
        }
        take(&live, &top.join("later"))
    })
}

/// Returns the path of a file of [`many_files`].
pub(super) fn path_of(top: &Path, number: u64) -> PathBuf {
    top.join(format!("dir{}", number / FILES_PER_DIR))
        .join(format!("file{number}"))
}

fn content(number: u64) -> String {
    format!("{number:>500}")
}

/// Creates a read-only snapshot.
pub(super) fn take(of: &Path, to: &Path) -> Result<()> {
    let words = ["subvolume", "snapshot", "-r"].map(Path::new);
    run("btrfs", &[words[0], words[1], words[2], of, to])?;
    Ok(())
}

/// Sends without a receiver, from a cold cache, and adds time, length and memory under the name `what`.
pub(super) fn measure(
    kit: &Kit,
    side: Side,
    what: &str,
    sent: &Sent<'_>,
    round: &mut Round,
) -> Result<()> {
    drop_caches(kit)?;
    let mut bytes = Counter::default();
    let seconds = match side {
        Side::Library => {
            let alone = send_in_process(sent)?;
            bytes.0 = alone.bytes;
            let what = format!("{what}: process' memory");
            round.add(what, Unit::Mib, alone.memory_bytes as f64 / MIB);
            alone.seconds
        }
        Side::Kernel | Side::Mount => {
            let stage = Stage::mount(kit, side, sent.image, "ro")?;
            let seconds = send_by_command(kit, side, &stage.dir, sent, &mut bytes)?;
            if let Some(memory) = stage.peak_memory_bytes() {
                round.add(
                    format!("{what}: server's memory"),
                    Unit::Mib,
                    memory as f64 / MIB,
                );
            }
            stage.end()?;
            seconds
        }
    };
    round.add(what, Unit::Seconds, seconds);
    round.add(format!("{what}: stream"), Unit::Mib, bytes.0 as f64 / MIB);
    Ok(())
}

/// A sink that counts its bytes.
#[derive(Debug, Default)]
pub(super) struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The report of a process that only sends by the library.
struct Alone {
    seconds: f64,
    bytes: u64,
    memory_bytes: u64,
}

fn send_in_process(sent: &Sent<'_>) -> Result<Alone> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("--send").arg(sent.image).arg(sent.snapshot);
    command.args(sent.parent);
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    let printed = String::from_utf8(output.stdout)?;
    let mut words = printed.split_whitespace();
    let mut next = || words.next().context("three numbers were asked for");
    Ok(Alone {
        seconds: next()?.parse()?,
        bytes: next()?.parse()?,
        memory_bytes: next()?.parse()?,
    })
}

/// Runs the process that only sends. Arguments: image, snapshot, and optionally a parent.
pub(crate) fn send_alone(words: &[PathBuf]) -> Result<()> {
    let name = |at: usize| words.get(at).and_then(|word| word.to_str());
    let sent = Sent {
        image: words.first().context("an image was asked for")?,
        snapshot: name(1).context("a snapshot was asked for")?,
        parent: name(2),
    };
    let mut bytes = Counter::default();
    let seconds = send_by_library(&sent, &mut bytes)?;
    let memory = peak_bytes().context("no peak of memory is known")?;
    println!("{seconds} {} {memory}", bytes.0);
    Ok(())
}

fn send_by_library(sent: &Sent<'_>, out: &mut (dyn Write + Send)) -> Result<f64> {
    let volume = Volume::open(&[sent.image.to_owned()], &OpenOptions::new())?;
    let top = volume.root_dir(RootId::FS_TREE)?;
    let open = |name: &str| -> Result<Snapshot> {
        let dir = volume.resolve(top, name.as_bytes())?;
        Ok(Snapshot::open(&volume, dir.root)?)
    };
    let begin = Instant::now();
    let snapshot = open(sent.snapshot)?;
    let parent = sent.parent.map(open).transpose()?;
    let mut sender = Sender::new(&snapshot, SendOptions::default());
    if let Some(parent) = &parent {
        sender = sender.parent(parent);
    }
    let (sent, written) = write_behind(out, |behind| -> Result<(), SendError> {
        let mut writer = StreamWriter::new(behind, StreamVersion::V1)?;
        sender.send(&mut writer)?;
        Ok(writer.write(&StreamCommand::End)?)
    });
    sent?;
    written?;
    Ok(begin.elapsed().as_secs_f64())
}

fn send_by_command(
    kit: &Kit,
    side: Side,
    top: &Path,
    sent: &Sent<'_>,
    out: &mut dyn Write,
) -> Result<f64> {
    let mut command = command(kit, side);
    command.arg("send");
    if let Some(parent) = sent.parent {
        command.arg("-p").arg(top.join(parent));
    }
    command
        .arg(top.join(sent.snapshot))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let begin = Instant::now();
    let (mut child, undo) = cleanup::spawn(&mut command)?;
    let mut stream = child.stdout.take().context("a pipe was asked for")?;
    io::copy(&mut stream, out)?;
    let status = child.wait()?;
    cleanup::done(&undo);
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// Returns the command of btrfs-progs or ubtrfs, without output.
pub(super) fn command(kit: &Kit, side: Side) -> Command {
    match side {
        Side::Kernel => {
            let mut command = Command::new("btrfs");
            command.arg("-q");
            command
        }
        Side::Mount | Side::Library => Command::new(&kit.ubtrfs),
    }
}

/// Returns the peak memory of this process since `forget_peak`.
pub(super) fn peak_bytes() -> Option<u64> {
    counters::peak_memory_bytes(std::process::id())
}

/// Resets the peak memory of this process to its current memory.
pub(super) fn forget_peak() -> Result<()> {
    Ok(fs::write("/proc/self/clear_refs", "5")?)
}

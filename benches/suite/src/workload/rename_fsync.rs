//! Repeated fsync of directories while names are created and renamed in them.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::fs::{CWD, Mode, OFlags, fsync, openat, renameat};
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{FileId, NewInode, OpenOptions, RenameMode, Volume};

use super::meter::Meter;
use super::{GIB, Outcome, Workload};
use crate::figures::{Round, Side, Unit};
use crate::kit::Kit;
use crate::stage::Stage;

const FILES: u64 = 10_000;
const FSYNC_AFTER: u64 = 100;

pub(super) const WORKLOAD: Workload = Workload {
    name: "s0-directory-fsync",
    title: "S0: fsync of a directory that changes",
    text: "10,000 files are made in one directory and then renamed, with an fsync of the directory after \
           every 100 of them.",
    sides: &Side::ALL,
    most_rounds: u32::MAX,
    run,
};

fn run(kit: &Kit, side: Side) -> Result<Outcome> {
    let files = kit.scaled(FILES);
    let image = kit.image(8 * GIB)?;
    let mut round = Round::default();
    match side {
        Side::Library => {
            let options = OpenOptions::new().writable(true);
            let volume = Volume::open(std::slice::from_ref(&image), &options)?;
            let top = volume.root_dir(RootId::FS_TREE)?;
            let dir = volume.create(top, b"dir", &NewInode::directory(0o755))?;
            work(
                &Library {
                    volume: Arc::clone(&volume),
                    dir,
                },
                files,
                &mut round,
            )?;
            volume.close()?;
        }
        Side::Kernel | Side::Mount => {
            let stage = Stage::mount(kit, side, &image, "")?;
            let dir = stage.dir.join("dir");
            std::fs::create_dir(&dir)?;
            let meter = Meter::start(&stage)?;
            work(&Mounted::open(&dir)?, files, &mut round)?;
            stage.sync()?;
            meter.add_costs("all", &stage, &mut round)?;
            stage.end()?;
        }
    }
    std::fs::remove_file(image)?;
    Ok(Outcome::Figures(round))
}

trait Directory {
    fn create(&self, name: &str) -> Result<()>;
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    fn fsync(&self) -> Result<()>;
}

fn work(dir: &impl Directory, files: u64, round: &mut Round) -> Result<()> {
    let begin = Instant::now();
    let create = each(dir, files, |number| dir.create(&format!("file_{number}")))?;
    round.add(
        "create: total",
        Unit::Seconds,
        begin.elapsed().as_secs_f64(),
    );
    round.add("create: in fsync", Unit::Seconds, create.as_secs_f64());
    let begin = Instant::now();
    let rename = each(dir, files, |number| {
        dir.rename(&format!("file_{number}"), &format!("file_{number}.renamed"))
    })?;
    round.add(
        "rename: total",
        Unit::Seconds,
        begin.elapsed().as_secs_f64(),
    );
    round.add("rename: in fsync", Unit::Seconds, rename.as_secs_f64());
    Ok(())
}

/// Returns the time spent in fsync.
fn each(dir: &impl Directory, files: u64, act: impl Fn(u64) -> Result<()>) -> Result<Duration> {
    let mut in_fsync = Duration::ZERO;
    for number in 1..=files {
        act(number)?;
        if number % FSYNC_AFTER == 0 {
            let begin = Instant::now();
            dir.fsync()?;
            in_fsync += begin.elapsed();
        }
    }
    Ok(in_fsync)
}

struct Mounted(OwnedFd);

impl Mounted {
    fn open(dir: &Path) -> Result<Mounted> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Mounted(openat(CWD, dir, flags, Mode::empty())?))
    }
}

impl Directory for Mounted {
    fn create(&self, name: &str) -> Result<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(&self.0, name, flags, Mode::from(0o644))?;
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    fn fsync(&self) -> Result<()> {
        Ok(fsync(&self.0)?)
    }
}

struct Library {
    volume: Arc<Volume>,
    dir: FileId,
}

impl Directory for Library {
    fn create(&self, name: &str) -> Result<()> {
        let new = NewInode::file(0o644);
        self.volume.create(self.dir, name.as_bytes(), &new)?;
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let to = (self.dir, to.as_bytes());
        let mode = RenameMode::Replace;
        Ok(self.volume.rename(self.dir, from.as_bytes(), to, mode)?)
    }

    fn fsync(&self) -> Result<()> {
        Ok(self.volume.fsync(self.dir)?)
    }
}

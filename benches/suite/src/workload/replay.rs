//! Opening a volume after a crash, with replay of the fsync logs of many files.
//!
//! Two images, one with a log by the kernel and one by ubtrfs, are copied while they are mounted. The copies have the
//! state after a power cut. Every side replays both. They are made once for a run.
//!
//! A log must have all files, and a commit ends it. The kernel commits at an fsync after it has allocated a chunk,
//! and it reuses no block of a log before the commit. Therefore many threads call fsync, to share logs. After a
//! commit all files are created again, because the chunks exist then.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::superblock::Superblock;
use ubtrfs_fs::{OpenOptions, Volume};

use super::fio::drop_caches;
use super::{GIB, Outcome, Workload};
use crate::figures::{Round, Side, Unit};
use crate::kit::Kit;
use crate::run::run;
use crate::stage::Stage;

pub(super) const WORKLOAD: Workload = Workload {
    name: "s0-replay",
    title: "S0: replay of a log of many files",
    text: "100,000 files of 4 KiB are made by 64 threads, each with an fsync, without a commit between; the image is copied as a \
           power cut would leave it. Taken is the time to mount the copy from a cold cache, with replay: for logs that the kernel \
           wrote and for logs that ubtrfs wrote, and again without a log. The library opens the volume for writing. All files \
           have to be there afterwards.",
    sides: &Side::ALL,
    most_rounds: 2,
    run: measure,
};

const FILES: u64 = 100_000;
const FILES_PER_DIR: u64 = 500;
const FILE_BYTES: usize = 4096;
const THREADS: u64 = 64;
const TRIES: u32 = 12;
/// On more than 50 GiB the kernel allocates 1 GiB at a time for metadata.
const VOLUME_BYTES: u64 = 64 * GIB;
/// Longer than the creation of the files, because a commit would end the log.
const OPTIONS: &str = "commit=300";
const SUPERBLOCK_AT: u64 = 64 << 10;
const SUPERBLOCK_BYTES: usize = 4096;

fn measure(kit: &Kit, side: Side) -> Result<Outcome> {
    let files = if kit.is_quick { 500 } else { FILES };
    let mut round = Round::default();
    for (writer, name) in [(Side::Kernel, "the kernel"), (Side::Mount, "ubtrfs")] {
        let crashed = crashed(kit, writer, files)?;
        let image = kit.fresh("image");
        copy(&crashed, &image)?;
        let with_log = open(kit, side, &image, files)?;
        ensure!(
            !superblock(&image)?.has_log(),
            "there still is a log after the replay"
        );
        let without = open(kit, side, &image, files)?;
        for (what, took) in [("with replay", with_log), ("without", without)] {
            let what = format!("log by {name}: opened {what}");
            round.add(what, Unit::Seconds, took.as_secs_f64());
        }
        fs::remove_file(image)?;
    }
    Ok(Outcome::Figures(round))
}

/// Returns the time until the volume was writable. All files must be there.
fn open(kit: &Kit, side: Side, image: &Path, files: u64) -> Result<Duration> {
    drop_caches(kit)?;
    let begin = Instant::now();
    if side == Side::Library {
        let options = OpenOptions::new().writable(true);
        let volume = Volume::open(&[image.to_owned()], &options)?;
        let took = begin.elapsed();
        check_library(&volume, files)?;
        volume.close()?;
        return Ok(took);
    }
    let stage = Stage::mount(kit, side, image, "")?;
    let took = begin.elapsed();
    for number in 0..files {
        let path = path_of(&stage.dir, number);
        let found = fs::metadata(&path).with_context(|| format!("lost: {}", path.display()))?;
        check_length(number, found.len())?;
    }
    stage.end()?;
    Ok(took)
}

fn check_library(volume: &Volume, files: u64) -> Result<()> {
    let top = volume.root_dir(RootId::FS_TREE)?;
    let mut dir = top;
    for number in 0..files {
        if number.is_multiple_of(FILES_PER_DIR) {
            let name = dir_name(number);
            dir = volume
                .lookup(top, name.as_bytes())?
                .with_context(|| format!("lost: {name}"))?;
        }
        let file = volume.lookup(dir, file_name(number).as_bytes())?;
        let file = file.with_context(|| format!("lost: file {number}"))?;
        check_length(number, volume.attr(file)?.size)?;
    }
    Ok(())
}

fn check_length(number: u64, len_bytes: u64) -> Result<()> {
    ensure!(
        len_bytes == FILE_BYTES as u64,
        "file {number} has {len_bytes} bytes after the replay"
    );
    Ok(())
}

/// Creates an image with a log of all files, written by the kernel or a mount of ubtrfs.
fn crashed(kit: &Kit, writer: Side, files: u64) -> Result<PathBuf> {
    let crashed = kit.dir.join(format!("crashed-{writer:?}"));
    if crashed.exists() {
        return Ok(crashed);
    }
    let image = kit.image(VOLUME_BYTES)?;
    let stage = Stage::mount(kit, writer, &image, OPTIONS)?;
    let mut is_whole = false;
    for _ in 0..TRIES {
        is_whole = make_files(&stage, &image, files)?;
        if is_whole {
            break;
        }
    }
    let log = kit.fresh("image");
    if is_whole {
        let before = superblock(&image)?;
        copy(&image, &log)?;
        is_whole = before.has_log() && before.transid() == superblock(&image)?.transid();
    }
    stage.end()?;
    fs::remove_file(image)?;
    ensure!(
        is_whole,
        "{}: commits kept the log from having all files",
        writer.name()
    );
    fs::rename(log, &crashed)?;
    Ok(crashed)
}

/// Creates all files with an fsync each; returns false if a commit has ended the log.
fn make_files(stage: &Stage, image: &Path, files: u64) -> Result<bool> {
    for number in (0..files).step_by(FILES_PER_DIR as usize) {
        let dir = stage.dir.join(dir_name(number));
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir(dir)?;
    }
    stage.sync()?;
    let committed = superblock(image)?.transid();
    let next = AtomicU64::new(0);
    let has_commit = AtomicBool::new(false);
    let make = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= files || has_commit.load(Ordering::Relaxed) {
                return Ok(());
            }
            let mut file = File::create_new(path_of(&stage.dir, number))?;
            file.write_all(&[0x5a; FILE_BYTES])?;
            file.sync_all()?;
            if number.is_multiple_of(THREADS) && superblock(image)?.transid() != committed {
                has_commit.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(make)).collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        anyhow::Ok(())
    })?;
    Ok(superblock(image)?.transid() == committed)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let words = ["--sparse=always", "--reflink=auto"].map(Path::new);
    run("cp", &[words[0], words[1], from, to])?;
    Ok(())
}

fn superblock(image: &Path) -> Result<Superblock> {
    let mut block = [0; SUPERBLOCK_BYTES];
    File::open(image)?.read_exact_at(&mut block, SUPERBLOCK_AT)?;
    let superblock = Superblock::from_block(&block).context("a superblock has one block")?;
    Ok(superblock.clone())
}

fn dir_name(number: u64) -> String {
    format!("dir{}", number / FILES_PER_DIR)
}

fn file_name(number: u64) -> String {
    format!("file{number}")
}

fn path_of(top: &Path, number: u64) -> PathBuf {
    top.join(dir_name(number)).join(file_name(number))
}

//! Phases of the clients' work in a directory.
//!
//! Phases run in the order of `Phase::ALL`: each works on the files of the previous phases. The last leaves no files.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, StatxFlags, openat, stat, statat, statx};

/// The directory that all clients list.
pub(crate) const LISTED: &str = "listed";
const PAGE_BYTES: usize = 4096;
const MIB: usize = 1 << 20;
/// The size of the file that is read again in large pieces.
const LARGE_MIB: usize = 16;
const LARGE_READS: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Phase {
    /// A directory of many files, after the kernel has dropped them from its caches.
    List,
    /// Once more.
    ListAgain,
    Create,
    Stat,
    /// `Stat` with the birth time, which Linux requests from a FUSE server once for each file.
    Statx,
    Rename,
    Write,
    /// Files that were written in small pieces, from the page cache.
    Reread,
    WriteLarge,
    /// A large file, from the page cache.
    RereadLarge,
    Unlink,
}

impl Phase {
    pub(crate) const ALL: [Phase; 11] = [
        Phase::List,
        Phase::ListAgain,
        Phase::Create,
        Phase::Stat,
        Phase::Statx,
        Phase::Rename,
        Phase::Write,
        Phase::Reread,
        Phase::WriteLarge,
        Phase::RereadLarge,
        Phase::Unlink,
    ];
    /// The phases that depend most on the transport.
    pub(crate) const FEW: [Phase; 6] = [
        Phase::Create,
        Phase::Stat,
        Phase::Statx,
        Phase::Rename,
        Phase::Write,
        Phase::Unlink,
    ];

    /// Returns the name of the timed work.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Phase::Create => "create+close",
            Phase::Stat => "stat",
            Phase::Statx => "statx with btime",
            Phase::Rename => "rename",
            Phase::Write => "open+write 4K+close",
            Phase::Reread => "open+reread 4K+close",
            Phase::WriteLarge => "write 1M",
            Phase::RereadLarge => "reread 1M",
            Phase::List => "readdir+stat, first",
            Phase::ListAgain => "readdir+stat, again",
            Phase::Unlink => "unlink",
        }
    }

    /// Returns the name on the command line.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(crate) fn lists(self) -> bool {
        matches!(self, Phase::List | Phase::ListAgain)
    }

    /// Returns the number of operations of a client with `files` files.
    pub(crate) fn times(self, files: u32, listed: u32) -> u32 {
        match self {
            Phase::List | Phase::ListAgain => listed,
            Phase::WriteLarge => LARGE_MIB as u32,
            Phase::RereadLarge => LARGE_READS as u32,
            _ => files,
        }
    }

    /// Runs the phase in `dir` with `files` files whose names begin with `prefix`; returns the microseconds of each
    /// operation.
    pub(crate) fn run(self, dir: &Path, prefix: &str, files: u32) -> Result<Vec<f64>> {
        let name = |number: usize| dir.join(format!("{prefix}file-{number}"));
        let renamed = |number: usize| dir.join(format!("{prefix}renamed-{number}"));
        let large = dir.join(format!("{prefix}large"));
        let mut page = vec![7; PAGE_BYTES];
        let count = files as usize;
        match self {
            Phase::Create => timed(count, |number| File::create_new(name(number)).map(drop)),
            Phase::Stat => timed(count, |number| Ok(stat(name(number)).map(drop)?)),
            Phase::Statx => timed(count, |number| {
                let all = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
                statx(CWD, name(number), AtFlags::empty(), all)?;
                Ok(())
            }),
            Phase::Rename => timed(count, |number| fs::rename(name(number), renamed(number))),
            Phase::Write => timed(count, |number| {
                let file = OpenOptions::new().write(true).open(renamed(number))?;
                file.write_all_at(&page, 0)
            }),
            Phase::Reread => timed(count, |number| {
                File::open(renamed(number))?.read_exact_at(&mut page, 0)
            }),
            Phase::WriteLarge => write_large(&large),
            Phase::RereadLarge => reread_large(&large),
            Phase::List | Phase::ListAgain => list(dir),
            Phase::Unlink => {
                let _ = fs::remove_file(&large);
                timed(count, |number| fs::remove_file(renamed(number)))
            }
        }
    }
}

fn timed(count: usize, mut work: impl FnMut(usize) -> io::Result<()>) -> Result<Vec<f64>> {
    let mut micros = Vec::with_capacity(count);
    for number in 0..count {
        let begun = Instant::now();
        work(number)?;
        micros.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(micros)
}

fn write_large(path: &Path) -> Result<Vec<f64>> {
    let piece = vec![7; MIB];
    let file = File::create_new(path)?;
    timed(LARGE_MIB, |number| {
        file.write_all_at(&piece, (number * MIB) as u64)
    })
}

fn reread_large(path: &Path) -> Result<Vec<f64>> {
    let mut piece = vec![0; MIB];
    let file = File::open(path)?;
    for number in 0..LARGE_MIB {
        file.read_exact_at(&mut piece, (number * MIB) as u64)?;
    }
    timed(LARGE_READS, |number| {
        file.read_exact_at(&mut piece, (number % LARGE_MIB * MIB) as u64)
    })
}

/// Returns the time of one listing, divided by its entries.
fn list(dir: &Path) -> Result<Vec<f64>> {
    let listed = dir.parent().context("a client's directory")?.join(LISTED);
    let begun = Instant::now();
    let listed = openat(
        CWD,
        &listed,
        OFlags::RDONLY | OFlags::DIRECTORY,
        Mode::empty(),
    )?;
    let mut count = 0;
    for entry in Dir::read_from(&listed)? {
        let entry = entry?;
        statat(&listed, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
        count += 1;
    }
    Ok(vec![begun.elapsed().as_secs_f64() * 1e6 / f64::from(count)])
}

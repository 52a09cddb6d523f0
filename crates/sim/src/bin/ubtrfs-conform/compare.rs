//! Comparison of trees: everything visible on a mount, hard links, and holes.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use ubtrfs_sim::manifest::{Field, Kind, Manifest, diff_without};

use super::Outcome;

/// Fields that a copy does not preserve, or not between different file systems. Hard links are compared by the names
/// that share an inode.
const NOT_COPIED: &[Field] = &[
    Field::DirSize,
    Field::Nlink,
    Field::Ctime,
    Field::Atime,
    Field::Btime,
];
const SHOWN: usize = 40;
/// Granularity for comparing holes: no file system has smaller ones.
const GRAIN: u64 = 4096;
/// The inode number of a subvolume's root directory.
const TOP: u64 = 256;

pub(super) fn show(dir: &Path) -> Outcome {
    print!("{}", of(dir)?);
    Ok(())
}

/// Compares two readers of one volume. Inode numbers are only used to identify hard links.
pub(super) fn compare(left: &str, right: &str) -> Outcome {
    same(&read(left)?, &read(right)?, &[])
}

/// Compares two readers of one volume; the left one was read during writes. Reading changes access times, and Linux
/// keeps coarser times for its own writes than those on disk.
pub(super) fn compare_with_live(left: &str, right: &str) -> Outcome {
    let times = [Field::Atime, Field::Mtime, Field::Ctime];
    same(&read(left)?, &read(right)?, &times)
}

/// Compares a tree with a copy in which holes may be filled.
pub(super) fn compare_filled(left: &str, right: &str) -> Outcome {
    same(&read(left)?, &read(right)?, NOT_COPIED)
}

/// Compares a tree with a copy.
pub(super) fn compare_copies(left: &str, right: &str) -> Outcome {
    let (a, b) = (read(left)?, read(right)?);
    same(&a, &b, NOT_COPIED)?;
    let mut differing = 0;
    for entry in a.entries.iter().filter(|e| e.stat.kind == Kind::File) {
        let name = std::ffi::OsStr::from_bytes(&entry.path);
        let holes = [left, right].map(|side| holes(&Path::new(side).join(name)));
        let [one, other] = holes;
        let (one, other) = (one?, other?);
        if one != other {
            println!(
                "/{}: holes: left {one:?}, right {other:?}",
                name.to_string_lossy()
            );
            differing += 1;
        }
    }
    match differing {
        0 => Ok(()),
        count => Err(format!("{count} files have other holes").into()),
    }
}

fn read(side: &str) -> Result<Manifest, Box<dyn std::error::Error>> {
    let path = Path::new(side);
    if path.is_dir() {
        return of(path);
    }
    Ok(Manifest::parse(&fs::read_to_string(path)?)?)
}

/// Fails at the first entry that the reader cannot read.
fn of(dir: &Path) -> Result<Manifest, Box<dyn std::error::Error>> {
    let mut manifest = Manifest::of_dir(dir)?;
    match manifest.faults.first() {
        None => {
            for entry in &mut manifest.entries {
                if entry.stat.kind == Kind::Dir && is_subvolume(entry.stat.ino) {
                    entry.stat.ino = TOP;
                }
            }
            Ok(manifest.canonical())
        }
        Some(fault) => {
            let path = PathBuf::from(std::ffi::OsStr::from_bytes(&fault.path));
            Err(format!("{}: {}: {}", path.display(), fault.doing, fault.reason).into())
        }
    }
}

/// Returns whether this is the root of a subvolume inside of a FUSE mount. The number consists of a format in the
/// bits from 60 on, the subvolume, and 44, 36 or 28 bits of inode number.
fn is_subvolume(ino: u64) -> bool {
    let inode_bits = match ino >> 60 {
        0b100 => 44,
        0b101 => 36,
        0b110 => 28,
        _ => return false,
    };
    ino & ((1 << inode_bits) - 1) == TOP
}

fn same(left: &Manifest, right: &Manifest, ignored: &[Field]) -> Outcome {
    let differences = diff_without(left, right, ignored);
    for difference in differences.iter().take(SHOWN) {
        println!("{difference}");
    }
    match differences.len() {
        0 => {
            println!("{} entries are alike", left.entries.len());
            Ok(())
        }
        count => Err(format!("{count} differences").into()),
    }
}

/// Returns the holes of a file as (offset, end); the last one may end at the file's end.
fn holes(path: &Path) -> io::Result<Vec<(u64, u64)>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut holes = Vec::new();
    let mut at = 0;
    while at < size {
        let data = match seek(&file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => size,
            Err(error) => return Err(error.into()),
        };
        let (first, end) = (at.next_multiple_of(GRAIN), data - data % GRAIN);
        if data == size && first < size {
            holes.push((first, size));
        } else if first < end {
            holes.push((first, end));
        }
        if data == size {
            break;
        }
        at = seek(&file, SeekFrom::Hole(data))?;
    }
    Ok(holes)
}

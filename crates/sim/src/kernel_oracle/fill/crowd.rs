//! Many entries, deep paths, and gaps left by deleted files.

use std::fs;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

use super::{Kind, Scale, bytes, sync, write};
use crate::error::At;
use crate::{Result, Rng};

pub(super) fn fill(dir: &Path, scale: &Scale, rng: &mut Rng) -> Result<()> {
    let large = dir.join("large-dir");
    fs::create_dir(&large).at("create", &large)?;
    for number in 0..scale.dir_entries {
        // Names of many lengths, so that leaves have different numbers of items.
        let padding = "p".repeat(rng.below(20) as usize);
        let path = large.join(format!("entry-{number}-{padding}"));
        let is_dir = number % 50 == 49;
        if is_dir {
            fs::create_dir(&path).at("create", &path)?;
        } else if number % 10 == 3 {
            write(&path, format!("content of entry {number}"))?;
        } else {
            write(&path, "")?;
        }
    }
    gaps(&dir.join("gaps"), scale, rng)?;
    deep(dir, scale)
}

/// Deletes every second file after a commit and renames others, which leaves gaps in index numbers, inodes and
/// extents.
fn gaps(dir: &Path, scale: &Scale, rng: &mut Rng) -> Result<()> {
    fs::create_dir(dir).at("create", dir)?;
    let count = (scale.dir_entries / 10).max(40);
    let path = |number: usize| dir.join(format!("file-{number}"));
    for number in 0..count {
        let kind = if number % 4 == 0 {
            Kind::Text
        } else {
            Kind::Zeros
        };
        let size = rng.below(9000) as usize;
        write(&path(number), bytes(kind, size, rng))?;
    }
    sync(dir)?;
    for number in 0..count {
        let from = path(number);
        if number % 2 == 0 {
            fs::remove_file(&from).at("remove", &from)?;
        } else if number % 7 == 0 {
            let to = dir.join(format!("renamed-{number}"));
            fs::rename(&from, &to).at("rename", &to)?;
        } else if number % 5 == 0 {
            let over = path(number - 2);
            fs::rename(&from, &over).at("rename", &over)?;
        }
    }
    Ok(())
}

fn deep(dir: &Path, scale: &Scale) -> Result<()> {
    let (levels, name) = if scale.beyond_path_max {
        (20, "deep".repeat(60))
    } else {
        (40, "deep".to_owned())
    };
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o755);
    let mut here = openat(CWD, dir, flags, Mode::empty()).at("open", dir)?;
    for _ in 0..levels {
        mkdirat(&here, &name, mode).at("create", dir)?;
        here = openat(&here, &name, flags, Mode::empty()).at("open", dir)?;
    }
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(&here, "bottom", flags, mode).at("create", dir)?;
    let written = rustix::io::write(&file, b"at the bottom").at("write", dir)?;
    debug_assert_eq!(written, 13);
    Ok(())
}

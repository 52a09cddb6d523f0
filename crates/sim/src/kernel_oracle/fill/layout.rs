//! Extent layouts: holes, preallocation, shared extents, bookends, many extents.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, copy_file_range, fallocate, ioctl_ficlone};

use super::{Kind, Scale, bytes, sync, write};
use crate::error::At;
use crate::{Result, Rng};

const SECTOR: u64 = 4096;

pub(super) fn fill(dir: &Path, scale: &Scale, rng: &mut Rng) -> Result<()> {
    sparse(dir, scale, rng)?;
    many_extents(dir, scale, rng)?;
    bookends(dir, scale, rng)?;
    reflinks(dir, scale, rng)?;
    prealloc(dir, rng)?;
    resized(dir, rng)
}

fn new_file(path: &Path) -> Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .at("create", path)
}

fn write_at(file: &File, path: &Path, offset: u64, data: &[u8]) -> Result<()> {
    file.write_all_at(data, offset).at("write", path)
}

fn sparse(dir: &Path, scale: &Scale, rng: &mut Rng) -> Result<()> {
    let path = dir.join("sparse");
    let file = new_file(&path)?;
    for offset in [
        0,
        10_000,
        1 << 20,
        scale.sparse_bytes / 2 + 77,
        scale.sparse_bytes - 5000,
    ] {
        let len = 1 + rng.below(20_000) as usize;
        write_at(&file, &path, offset, &bytes(Kind::Text, len.min(5000), rng))?;
    }
    file.set_len(scale.sparse_bytes).at("truncate", &path)?;

    let path = dir.join("only-a-hole");
    new_file(&path)?
        .set_len(123_456_789)
        .at("truncate", &path)?;

    let path = dir.join("hole-at-start");
    write_at(&new_file(&path)?, &path, 300_000, b"after a hole")
}

/// Writes every second sector; in another file, also the sectors in between.
fn many_extents(dir: &Path, scale: &Scale, rng: &mut Rng) -> Result<()> {
    for name in ["extents-with-holes", "extents-filled"] {
        let path = dir.join(name);
        let file = new_file(&path)?;
        for number in 0..scale.file_extents as u64 {
            let data = bytes(Kind::Text, 64, rng).repeat(SECTOR as usize / 64);
            write_at(&file, &path, number * 2 * SECTOR, &data)?;
        }
    }
    sync(dir)?;
    let path = dir.join("extents-filled");
    let file = File::options().write(true).open(&path).at("open", &path)?;
    for number in 0..scale.file_extents as u64 {
        let offset = (number * 2 + 1) * SECTOR;
        write_at(&file, &path, offset, &number.to_le_bytes().repeat(512))?;
    }
    Ok(())
}

/// Returns a size that covers all offsets overwritten in a text.
fn text_bytes(scale: &Scale) -> usize {
    scale.data_bytes.max(140_001)
}

/// Overwrites parts of extents that are on disk, so that only parts of them are referenced.
fn bookends(dir: &Path, scale: &Scale, rng: &mut Rng) -> Result<()> {
    let sub = dir.join("bookends");
    fs::create_dir(&sub).at("create", &sub)?;
    let make = |compression: &str, rng: &mut Rng| {
        let path = sub.join(format!("overwritten-{compression}"));
        let file = new_file(&path)?;
        if !compression.is_empty() {
            xattr::set(&path, "btrfs.compression", compression.as_bytes()).at("setxattr", &path)?;
        }
        let data = bytes(Kind::Text, text_bytes(scale), rng);
        write_at(&file, &path, 0, &data)?;
        Ok((path, file))
    };
    let files = ["", "zlib", "lzo", "zstd"]
        .into_iter()
        .map(|compression| make(compression, rng))
        .collect::<Result<Vec<_>>>()?;
    sync(dir)?;
    let size = text_bytes(scale) as u64;
    for (path, file) in &files {
        for offset in [SECTOR * 5, 70_001, size / 2, size - 3000] {
            write_at(file, path, offset, &bytes(Kind::Text, 2500, rng))?;
        }
    }
    sync(dir)?;
    // A part of a part.
    for (path, file) in &files {
        write_at(file, path, SECTOR * 8, &[b'x'; 4096])?;
        punch(file, path, SECTOR * 11, SECTOR)?;
        punch(file, path, SECTOR * 13 + 100, 5000)?;
    }
    Ok(())
}

fn punch(file: &File, path: &Path, offset: u64, len: u64) -> Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, flags, offset, len).at("punch a hole", path)
}

fn reflinks(dir: &Path, scale: &Scale, rng: &mut Rng) -> Result<()> {
    let sub = dir.join("reflinks");
    fs::create_dir(&sub).at("create", &sub)?;
    for (kind, compression) in [
        (Kind::Text, "none"),
        (Kind::Text, "zstd"),
        (Kind::Text, "lzo"),
    ] {
        let source_path = sub.join(format!("source-{compression}"));
        let source = new_file(&source_path)?;
        let value = compression.as_bytes();
        xattr::set(&source_path, "btrfs.compression", value).at("setxattr", &source_path)?;
        write_at(
            &source,
            &source_path,
            0,
            &bytes(kind, text_bytes(scale), rng),
        )?;
        source.sync_all().at("fsync", &source_path)?;

        let path = sub.join(format!("whole-{compression}"));
        let whole = new_file(&path)?;
        ioctl_ficlone(&whole, &source).at("clone", &path)?;
        write_at(&whole, &path, SECTOR * 3, b"unshared in the middle")?;

        // Parts of one extent many times, out of order.
        let path = sub.join(format!("parts-{compression}"));
        let parts = new_file(&path)?;
        for (number, first_sector) in [7, 2, 2, 12, 0, 5, 20].into_iter().enumerate() {
            clone_range(
                &source,
                first_sector * SECTOR,
                &parts,
                number as u64 * 5 * SECTOR,
                3 * SECTOR,
            )
            .at("clone range", &path)?;
        }

        // The tail of a file with an unaligned size.
        let path = sub.join(format!("tail-{compression}"));
        let tail = new_file(&path)?;
        let size = text_bytes(scale) as u64;
        let from = (size / 2).next_multiple_of(SECTOR);
        clone_range(&source, from, &tail, 0, size - from).at("clone range", &path)?;
    }
    // An extent whose first file was deleted.
    let gone = sub.join("source-none");
    fs::remove_file(&gone).at("remove", &gone)?;

    // An inline extent, cloned.
    let inline = sub.join("inline");
    write(&inline, "small enough")?;
    sync(dir)?;
    let path = sub.join("inline-clone");
    let source = File::open(&inline).at("open", &inline)?;
    ioctl_ficlone(new_file(&path)?, source).at("clone", &path)
}

/// Copies a range. Within one btrfs, the kernel clones aligned ranges.
fn clone_range(
    from: &File,
    mut at: u64,
    to: &File,
    mut to_at: u64,
    len: u64,
) -> rustix::io::Result<()> {
    let mut left = len as usize;
    while left > 0 {
        match copy_file_range(from, Some(&mut at), to, Some(&mut to_at), left)? {
            0 => return Ok(()),
            copied => left -= copied,
        }
    }
    Ok(())
}

fn prealloc(dir: &Path, rng: &mut Rng) -> Result<()> {
    let allocate = |name: &str, flags, offset, len| {
        let path = dir.join(name);
        let file = new_file(&path)?;
        fallocate(&file, flags, offset, len).at("fallocate", &path)?;
        Ok::<_, crate::Error>((path, file))
    };
    allocate("prealloc-unwritten", FallocateFlags::empty(), 0, 1 << 20)?;
    let (path, file) = allocate(
        "prealloc-partly-written",
        FallocateFlags::empty(),
        0,
        1 << 20,
    )?;
    for (offset, len) in [
        (0, 3000),
        (50_000, 3000),
        (500_001, 9000),
        ((1 << 20) - 1, 1),
    ] {
        write_at(&file, &path, offset, &bytes(Kind::Text, len, rng))?;
    }
    let (path, file) = allocate("prealloc-past-end", FallocateFlags::KEEP_SIZE, 0, 1 << 20)?;
    write_at(&file, &path, 0, &bytes(Kind::Text, 10_000, rng))?;
    allocate("prealloc-no-size", FallocateFlags::KEEP_SIZE, 8192, 100_000)?;
    let (path, file) = allocate("prealloc-punched", FallocateFlags::empty(), 0, 1 << 20)?;
    write_at(&file, &path, 0, &bytes(Kind::Text, 200_000, rng))?;
    file.sync_all().at("fsync", &path)?;
    punch(&file, &path, 100_000, 300_000)?;
    fallocate(&file, FallocateFlags::ZERO_RANGE, 20_000, 30_000).at("zero range", &path)
}

/// Creates files that were truncated, extended, and grown beyond an inline extent.
fn resized(dir: &Path, rng: &mut Rng) -> Result<()> {
    let steps: [(&str, &[u64]); 5] = [
        ("inline-extended", &[1_000_000]),
        ("inline-shortened", &[30]),
        ("cut-inside-a-sector", &[70_001]),
        ("cut-and-extended", &[70_001, 900_000]),
        ("cut-to-nothing", &[0, 10]),
    ];
    for (name, lengths) in steps {
        let path = dir.join(name);
        let file = new_file(&path)?;
        let size = if name.starts_with("inline") {
            900
        } else {
            200_000
        };
        write_at(&file, &path, 0, &bytes(Kind::Text, size, rng))?;
        file.sync_all().at("fsync", &path)?;
        for length in lengths {
            file.set_len(*length).at("truncate", &path)?;
        }
    }
    let path = dir.join("inline-appended");
    let file = new_file(&path)?;
    for number in 0..8 {
        write_at(&file, &path, number * 700, &[b'a' + number as u8; 700])?;
        file.sync_all().at("fsync", &path)?;
    }
    Ok(())
}

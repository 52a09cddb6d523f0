//! Many files: bytes written per file, the time to create, list and delete them, and memory.

use std::time::Instant;

use ubtrfs_fs::OpenOptions;

use crate::kernel::{Kernel, make_image};
use crate::library::Library;
use crate::report::{line, peak_memory_bytes};
use crate::side::{Name, Side};
use crate::{Outcome, Settings};

const IMAGE_BYTES: u64 = 40 << 30;
const LONG_MEMORY_BYTES: u64 = 1 << 30;
const FILES_PER_DIR: u64 = 10_000;

pub(crate) fn run(settings: &Settings) -> Outcome {
    let files = settings.scaled(1_000_000);
    let kernel_image = settings.image("million.kernel");
    make_image(&kernel_image, IMAGE_BYTES)?;
    let kernel = measure(&Kernel::mount(&kernel_image)?, files)?;
    let ours = measure_ours(settings, files)?;
    compare(files, &kernel, &ours);
    Ok(())
}

/// Measures ten million files on our side only, in bounded memory.
pub(crate) fn run_long(settings: &Settings) -> Outcome {
    let files = settings.scaled(10_000_000);
    let ours = measure_ours(settings, files)?;
    let peak = peak_memory_bytes();
    if peak > LONG_MEMORY_BYTES {
        return Err(format!("{} MiB of memory", peak >> 20).into());
    }
    println!(
        "made in {:.1} s, listed in {:.1} s, deleted in {:.1} s",
        ours.make_s, ours.list_s, ours.delete_s
    );
    Ok(())
}

struct Measured {
    make_s: f64,
    list_s: f64,
    delete_s: f64,
    make_bytes: u64,
    delete_bytes: u64,
}

fn measure_ours(settings: &Settings, files: u64) -> Outcome<Measured> {
    let image = settings.image("million.ours");
    make_image(&image, IMAGE_BYTES)?;
    let ours = Library::open(&image, &OpenOptions::new())?;
    let measured = measure(&ours, files)?;
    println!(
        "load {}, peak memory {} MiB, {:?}",
        crate::load(),
        peak_memory_bytes() >> 20,
        ours.stats()
    );
    drop(ours);
    std::fs::remove_file(image)?;
    Ok(measured)
}

fn measure<S: Side>(side: &S, files: u64) -> Outcome<Measured> {
    let mut name = Name::new();
    side.sync()?;
    let before = side.written_bytes()?;
    let begin = Instant::now();
    let mut dirs = Vec::new();
    for start in (0..files).step_by(FILES_PER_DIR as usize) {
        let dir = side.mkdir(name.set("dir", start))?;
        for number in start..files.min(start + FILES_PER_DIR) {
            side.create(&dir, name.set("file", number))?;
        }
        dirs.push(dir);
    }
    side.sync()?;
    let make_s = begin.elapsed().as_secs_f64();
    let made = side.written_bytes()?;
    let begin = Instant::now();
    let mut listed = 0;
    for dir in &dirs {
        side.list(dir, &mut |_| listed += 1)?;
    }
    assert_eq!(listed, files);
    let list_s = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    for (at, dir) in dirs.iter().enumerate() {
        let start = at as u64 * FILES_PER_DIR;
        for number in start..files.min(start + FILES_PER_DIR) {
            side.unlink(dir, name.set("file", number))?;
        }
        side.rmdir(name.set("dir", start))?;
    }
    side.sync()?;
    Ok(Measured {
        make_s,
        list_s,
        delete_s: begin.elapsed().as_secs_f64(),
        make_bytes: made - before,
        delete_bytes: side.written_bytes()? - made,
    })
}

fn compare(files: u64, kernel: &Measured, ours: &Measured) {
    let each = |bytes: u64| bytes as f64 / files as f64;
    let less = |what, unit, kernel: f64, ours: f64| line(what, unit, kernel, ours, kernel / ours);
    let (made, deleted) = (kernel.make_bytes, kernel.delete_bytes);
    less("make and sync", "s", kernel.make_s, ours.make_s);
    less("list", "s", kernel.list_s, ours.list_s);
    less("delete and sync", "s", kernel.delete_s, ours.delete_s);
    less(
        "bytes per file made",
        "B",
        each(made),
        each(ours.make_bytes),
    );
    less(
        "bytes per file deleted",
        "B",
        each(deleted),
        each(ours.delete_bytes),
    );
}

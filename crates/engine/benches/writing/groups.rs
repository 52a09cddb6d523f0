//! What a write in place costs on a volume of 4 TiB with all its block groups, against one with a few.

use std::process::Command;
use std::time::Instant;

use ubtrfs_engine::OpenOptions;
use ubtrfs_sim::Rng;

use crate::kernel::{Kernel, make_image};
use crate::library::Library;
use crate::report::{line, median};
use crate::side::{Name, Side};
use crate::{Outcome, Settings};

const IMAGE_BYTES: u64 = 4 << 40;
const FILLER_BYTES: u64 = 10 << 30;
/// With 10 GiB each, 3,500 block groups of data.
const FILLERS: u64 = 350;
const TARGET_BYTES: u64 = 1 << 30;
const WRITES: u64 = 20_000;
const WRITE_BYTES: usize = 4096;

pub(crate) fn run(settings: &Settings) -> Outcome {
    let few = volume(settings, "groups.few", 0)?;
    let many = volume(settings, "groups.many", settings.scaled(FILLERS))?;
    let (mut with_few, mut with_many) = (Vec::new(), Vec::new());
    for round in 0..settings.rounds as u64 {
        with_few.push(rate(&few, settings.scaled(WRITES), round)?);
        with_many.push(rate(&many, settings.scaled(WRITES), round)?);
    }
    let (few, many) = (median(with_few), median(with_many));
    println!("(here \"kernel\" stands for few block groups, \"ours\" for many)");
    line(
        "write in place",
        "calls/ms",
        few / 1e3,
        many / 1e3,
        many / few,
    );
    Ok(())
}

/// Filled by the kernel, which preallocates quickly.
fn volume(settings: &Settings, name: &str, fillers: u64) -> Outcome<Library> {
    let image = settings.image(name);
    make_image(&image, IMAGE_BYTES)?;
    let kernel = Kernel::mount(&image)?;
    let target = kernel.path().join("target0");
    std::fs::File::create(&target)?;
    let marked = Command::new("chattr").arg("+C").arg(&target).status()?;
    if !marked.success() {
        return Err("chattr +C failed".into());
    }
    let allocate = |path: std::path::PathBuf, len| -> Outcome {
        let file = std::fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        Ok(rustix::fs::fallocate(
            file,
            rustix::fs::FallocateFlags::empty(),
            0,
            len,
        )?)
    };
    allocate(target, TARGET_BYTES)?;
    for filler in 0..fillers {
        allocate(kernel.path().join(format!("filler{filler}")), FILLER_BYTES)?;
    }
    drop(kernel);
    let ours = Library::open(&image, &OpenOptions::new())?;
    // The first write to each place turns preallocated bytes into written ones; those are not measured.
    let file = target_of(&ours)?;
    let bytes = vec![1; 1 << 20];
    for at in (0..TARGET_BYTES / 8).step_by(bytes.len()) {
        ours.volume.write(file, at, &bytes)?;
    }
    ours.sync()?;
    Ok(ours)
}

fn target_of(ours: &Library) -> Outcome<ubtrfs_engine::FileId> {
    ours.open(&ours.top(), Name::new().set("target", 0))
}

fn rate(ours: &Library, writes: u64, round: u64) -> Outcome<f64> {
    let file = target_of(ours)?;
    let mut rng = Rng::new(round);
    let bytes = [7; WRITE_BYTES];
    let begin = Instant::now();
    for _ in 0..writes {
        let place = rng.below(TARGET_BYTES / 8 / WRITE_BYTES as u64);
        ours.volume
            .write_direct(file, place * WRITE_BYTES as u64, &bytes)?;
    }
    ours.sync()?;
    Ok(writes as f64 / begin.elapsed().as_secs_f64())
}

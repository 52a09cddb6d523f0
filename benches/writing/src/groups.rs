//! The cost of a write in place on a volume of 4 TiB with all its block groups, compared with a small volume.

use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Instant;

use ubtrfs_fs::OpenOptions;
use ubtrfs_sim::Rng;

use crate::kernel::{Kernel, make_image};
use crate::library::Library;
use crate::report::median;
use crate::side::{Name, Side};
use crate::{Outcome, Settings, thread_time};

const IMAGE_BYTES: u64 = 4 << 40;
const FILLER_BYTES: u64 = 10 << 30;
/// 10 GiB each: 3,500 data block groups.
const FILLERS: u64 = 350;
const TARGET_BYTES: u64 = 1 << 30;
const WRITES: u64 = 20_000;
const WRITE_BYTES: usize = 4096;

/// The cost of the writes in one round.
struct Cost {
    /// Processor nanoseconds of the writing thread per write, including system calls.
    computing: f64,
    /// The median duration of a write in nanoseconds.
    median: f64,
}

pub(crate) fn run(settings: &Settings) -> Outcome {
    let few = volume(settings, "groups.few", 0)?;
    let many = volume(settings, "groups.many", settings.scaled(FILLERS))?;
    let plain = settings.image("groups.plain");
    std::fs::write(&plain, vec![1; (TARGET_BYTES / 8) as usize])?;
    let plain = std::fs::File::options().write(true).open(plain)?;
    let (mut with_few, mut with_many, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..settings.rounds as u64 {
        let writes = settings.scaled(WRITES);
        alone.push(cost(writes, round, |at, bytes| {
            Ok(plain.write_all_at(bytes, at)?)
        })?);
        for (ours, costs) in [(&few, &mut with_few), (&many, &mut with_many)] {
            let file = target_of(ours)?;
            costs.push(cost(writes, round, |at, bytes| {
                Ok(ours.volume.write_direct(file, at, bytes)?)
            })?);
            ours.sync()?;
        }
    }
    type Part = fn(&Cost) -> f64;
    let parts: [(&str, Part); 2] = [
        ("computing", |cost| cost.computing),
        ("median time", |cost| cost.median),
    ];
    for (what, part) in parts {
        let middle = |all: &Vec<Cost>| median(all.iter().map(part).collect());
        let [alone, few, many] = [&alone, &with_few, &with_many].map(middle);
        println!(
            "4 KiB in place, {what:<11} few groups {few:>8.0} many {many:>8.0} ns, ratio {:.2}; pwrite alone {alone:.0}",
            many / few
        );
    }
    println!("load {}", crate::load());
    Ok(())
}

/// Creates a volume with files preallocated by the kernel, which is fast.
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
    // The first write to each place converts preallocated space, and is not measured.
    let file = target_of(&ours)?;
    let bytes = vec![1; 1 << 20];
    for at in (0..TARGET_BYTES / 8).step_by(bytes.len()) {
        ours.volume.write(file, at, &bytes)?;
    }
    ours.sync()?;
    Ok(ours)
}

fn target_of(ours: &Library) -> Outcome<ubtrfs_fs::FileId> {
    ours.open(&ours.top(), Name::new().set("target", 0))
}

fn cost(writes: u64, round: u64, mut write: impl FnMut(u64, &[u8]) -> Outcome) -> Outcome<Cost> {
    let mut rng = Rng::new(round);
    let bytes = [7; WRITE_BYTES];
    let mut times = Vec::with_capacity(writes as usize);
    let computed = thread_time();
    for _ in 0..writes {
        let place = rng.below(TARGET_BYTES / 8 / WRITE_BYTES as u64);
        let begin = Instant::now();
        write(place * WRITE_BYTES as u64, &bytes)?;
        times.push(begin.elapsed().as_nanos() as f64);
    }
    let computed = thread_time() - computed;
    Ok(Cost {
        computing: computed.as_nanos() as f64 / writes as f64,
        median: median(times),
    })
}

//! The duration of commits that free space, on a device whose discards cost as much as on typical drives.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{DiscardDelays, DiscardMode, NewInode, OpenOptions, Volume};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::{DiscardTime, Rate, Rng, ThrottledDevice, new_volume};

use crate::report::quantile;
use crate::{Outcome, Settings};

const DEVICE_BYTES: u64 = 4 << 30;
const RATE: Rate = Rate {
    bytes_per_second: 1 << 30,
    flush: Duration::from_millis(1),
};
const FILES: u64 = 3000;
const FILE_BYTES: usize = 64 << 10;
const REPLACED: u64 = 40;
/// A pause between commits, as in normal use.
const PAUSE: Duration = Duration::from_millis(50);
/// Short delays, so that regions become due while commits are measured.
const SHORT: DiscardDelays = DiscardDelays {
    empty: Duration::from_millis(200),
    used: Duration::from_millis(500),
};

pub(crate) fn run(settings: &Settings) -> Outcome {
    let modes = [
        ("none", DiscardMode::None, DiscardDelays::default()),
        ("sync", DiscardMode::Sync, DiscardDelays::default()),
        ("async", DiscardMode::Async, DiscardDelays::default()),
        ("async, due at once", DiscardMode::Async, SHORT),
    ];
    for (name, mode, delays) in modes {
        let volume = open(mode, delays)?;
        let mut commits = replace_files(&volume, settings.scaled(200))?;
        commits.sort_unstable();
        let at = |part| quantile(&commits, part);
        println!(
            "{name:<20} commits p50 {:?} p99 {:?} max {:?} of {}",
            at(0.5),
            at(0.99),
            at(1.0),
            commits.len()
        );
        let (stats, devices) = (volume.discard_stats(), volume.pool().discard_counts());
        println!(
            "{:<20} {} discards of {} KiB, {} KiB saved, {} KiB wait; load {}",
            "",
            devices.requests,
            devices.bytes >> 10,
            stats.discard_bytes_saved >> 10,
            stats.discardable_bytes >> 10,
            crate::load()
        );
        volume.close()?;
    }
    Ok(())
}

fn open(mode: DiscardMode, delays: DiscardDelays) -> Outcome<Arc<Volume>> {
    let memory = new_volume(&MkfsOptions::default(), DEVICE_BYTES);
    let device = ThrottledDevice::new(Arc::new(memory), Some(RATE));
    let device: Arc<dyn BlockDevice> = Arc::new(device.slow_discards(DiscardTime::default()));
    let options = OpenOptions::new()
        .writable(true)
        .discard(Some(mode))
        .discard_delays(delays)
        .discard_at_close(Duration::ZERO);
    Ok(Volume::from_devices(
        vec![(PathBuf::from("memory"), device)],
        &options,
    )?)
}

/// Deletes and creates files at random, and returns the durations of the commits in between.
fn replace_files(volume: &Volume, rounds: u64) -> Outcome<Vec<Duration>> {
    let top = volume.root_dir(RootId::FS_TREE)?;
    let bytes = vec![0x5a; FILE_BYTES];
    let name = |number: u64| format!("file{number}").into_bytes();
    let write = |number: u64| -> Outcome {
        let file = volume.create(top, &name(number), &NewInode::file(0o644))?;
        volume.write(file, 0, &bytes)?;
        Ok(())
    };
    (0..FILES).try_for_each(write)?;
    volume.sync()?;
    let mut rng = Rng::new(1);
    let mut commits = Vec::new();
    for _ in 0..rounds {
        for _ in 0..REPLACED {
            let number = rng.below(FILES);
            volume.unlink(top, &name(number))?;
            write(number)?;
        }
        let begin = Instant::now();
        volume.sync()?;
        commits.push(begin.elapsed());
        std::thread::sleep(PAUSE);
    }
    Ok(commits)
}

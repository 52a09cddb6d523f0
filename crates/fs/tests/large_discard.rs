//! A volume of 4 TiB with freed space in every block group: everything is discarded in the end, with little
//! memory.
//!
//! Alone in its program, because it measures the memory of the process.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{DiscardDelays, DiscardLimits, Fallocate, FileId, NewInode, OpenOptions, Volume};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::new_volume;

const MIB: u64 = 1 << 20;
const DEVICE_BYTES: u64 = 4 << 40;
/// Each file leaves a hole of this size and keeps as much.
const FILES: u64 = 3500;
const HALF: u64 = 512 * MIB;
/// The memory per 1 GiB group with loaded free space that partly waits for a discard.
const GROUP_MEMORY_BYTES: u64 = 40 << 10;

fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() << 10
}

fn open(device: &Arc<MemDevice>, delay: Duration) -> Arc<Volume> {
    let options = OpenOptions::new()
        .writable(true)
        .commit_interval(Some(Duration::from_secs(3600)))
        .discard_at_close(Duration::ZERO)
        .discard_delays(DiscardDelays {
            empty: delay,
            used: delay,
        })
        .discard_limits(DiscardLimits {
            iops_limit: u32::MAX,
            kbps_limit: 0,
            max_discard_size: 0,
        });
    let device: Arc<dyn BlockDevice> = device.clone();
    Volume::from_devices(vec![(PathBuf::from("memory"), device)], &options).unwrap()
}

fn top(volume: &Volume) -> FileId {
    volume.root_dir(RootId::FS_TREE).unwrap()
}

fn name(kind: &str, number: u64) -> Vec<u8> {
    format!("{kind}{number}").into_bytes()
}

/// Waits until only runs are left that are too short for the background discard.
fn wait_for_discards(volume: &Volume) {
    while volume.discard_stats().discardable_bytes >= 32 << 10 {
        thread::yield_now();
    }
}

#[test]
fn thousands_of_groups_are_discarded_in_little_memory() {
    let device = Arc::new(new_volume(&MkfsOptions::default(), DEVICE_BYTES));
    let volume = open(&device, Duration::from_secs(3600));
    for number in 0..FILES {
        for kind in ["gone", "kept"] {
            let new = NewInode::file(0o644);
            let file = volume.create(top(&volume), &name(kind, number), &new);
            let reserve = Fallocate::Reserve { keep_size: false };
            volume.fallocate(file.unwrap(), reserve, 0, HALF).unwrap();
        }
    }
    volume.close().unwrap();
    drop(volume);

    let volume = open(&device, Duration::ZERO);
    let before = memory_bytes();
    for number in 0..FILES {
        volume.unlink(top(&volume), &name("gone", number)).unwrap();
    }
    volume.sync().unwrap();
    wait_for_discards(&volume);
    let stats = volume.discard_stats();
    let discarded = stats.discard_extent_bytes + stats.discard_bitmap_bytes;
    assert!(discarded >= FILES * HALF, "{stats:?}");
    let grown = memory_bytes().saturating_sub(before);
    println!("{} MiB for {FILES} groups, {stats:?}", grown / MIB);
    assert!(grown < FILES * GROUP_MEMORY_BYTES, "{grown} bytes");
    volume.close().unwrap();
}

//! Devices that are replaced: all contents stay, also after power cuts, with damage, and with concurrent writers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::ids::{DevId, RootId};
use ubtrfs_fs::{Error, NewInode, ReplaceCounts, Volume};
use ubtrfs_sim::fault::{Fault, FaultDevice};
use ubtrfs_sim::record::{CrashPlan, Recorder};

use crate::device_changes::{has_superblock, of_volume, read, write};
use crate::devices::{
    Devices, Layout, MIB, check, check_after_cut, open, quiet, recover_superblocks, shared,
};

const SEED: u64 = 0x5ee_d1e5;
const DEVICE_BYTES: u64 = 256 * MIB;

fn replace(volume: &Volume, devid: u64, target: &Arc<dyn BlockDevice>) -> ReplaceCounts {
    let path = Path::new("replacement");
    volume
        .replace_device(DevId(devid), path, target, false, &mut |_| true)
        .unwrap()
}

fn new_device(bytes: u64) -> Arc<dyn BlockDevice> {
    Arc::new(MemDevice::new(bytes))
}

/// Fills a device with other bytes, except for its superblocks.
fn damage(device: &Arc<dyn BlockDevice>) {
    let garbage = vec![0xa5; MIB as usize];
    for at in 1..DEVICE_BYTES / MIB {
        if at != 64 {
            device.write_at(&garbage, at * MIB).unwrap();
        }
    }
}

/// Profiles with their numbers of devices.
const PROFILES: [(Profile, Profile, usize); 5] = [
    (Profile::Single, Profile::Dup, 1),
    (Profile::Raid0, Profile::Raid1, 3),
    (Profile::Raid1, Profile::Raid1, 2),
    (Profile::Raid10, Profile::Raid10, 4),
    (Profile::Raid1c3, Profile::Raid1c3, 4),
];

#[test]
fn replaced_device_is_complete_without_the_old_one() {
    for (data, metadata, count) in PROFILES {
        let layout = Layout::new(count, DEVICE_BYTES).profiles(data, metadata);
        let mut devices = shared(layout.make());
        let volume = open(&devices, &quiet()).unwrap();
        write(&volume, 0);
        let target = new_device(DEVICE_BYTES + 5 * MIB);
        let counts = replace(&volume, count as u64, &target);
        assert_eq!(counts.uncorrectable, 0, "{data:?}");
        let old = std::mem::replace(&mut devices[count - 1], target);
        assert!(!has_superblock(&old));
        damage(&old);
        write(&volume, 1);
        assert_eq!(read(&volume), Ok(2), "{data:?}");
        volume.close().unwrap();
        drop(volume);
        check(&devices).unwrap_or_else(|error| panic!("{data:?}: {error}"));
        let volume = open(&devices, &quiet()).unwrap();
        assert_eq!(read(&volume), Ok(2), "{data:?}");
        let errors = volume.pool().error_counts(DevId(count as u64)).unwrap();
        assert_eq!(errors, [0; 5], "{data:?}");
    }
}

#[test]
fn damaged_or_missing_device_is_rebuilt_from_its_mirrors() {
    for (data, metadata, count) in PROFILES.into_iter().skip(2) {
        for is_missing in [false, true] {
            let layout = Layout::new(count, DEVICE_BYTES).profiles(data, metadata);
            let mut devices = shared(layout.make());
            let volume = open(&devices, &quiet()).unwrap();
            write(&volume, 0);
            volume.close().unwrap();
            drop(volume);
            let target = new_device(DEVICE_BYTES);
            let given: Devices = if is_missing {
                devices.remove(0);
                devices.clone()
            } else {
                damage(&devices[0]);
                devices.clone()
            };
            let volume = open(&given, &quiet().degraded(is_missing)).unwrap();
            let counts = replace(&volume, 1, &target);
            assert_eq!(counts.uncorrectable, 0, "{data:?} {is_missing}");
            if is_missing {
                devices.insert(0, target);
            } else {
                devices[0] = target;
            }
            write(&volume, 1);
            volume.close().unwrap();
            drop(volume);
            check(&devices).unwrap_or_else(|error| panic!("{data:?} {is_missing}: {error}"));
            // The contents are on the new device, too.
            damage(&devices[1]);
            let volume = open(&devices, &quiet()).unwrap();
            assert_eq!(read(&volume), Ok(2), "{data:?} {is_missing}");
        }
    }
}

#[test]
fn sector_without_a_good_copy_stays_an_error_and_is_counted() {
    let mut devices = shared(Layout::new(1, DEVICE_BYTES).make());
    let volume = open(&devices, &quiet()).unwrap();
    write(&volume, 0);
    let extents = volume.pool().chunk_map().all();
    let chunk = extents
        .iter()
        .find(|chunk| chunk.profile() == Profile::Single)
        .unwrap();
    let physical = chunk.stripes()[0].physical.0;
    devices[0]
        .write_at(&[1; 4096], physical + 8 * 4096)
        .unwrap();
    let target = new_device(DEVICE_BYTES);
    let counts = replace(&volume, 1, &target);
    assert_eq!(counts.uncorrectable, 1);
    let mut copied = [0; 4096];
    target.read_at(&mut copied, physical + 8 * 4096).unwrap();
    assert_eq!(copied, [1; 4096]);
    devices[0] = target;
    assert!(read(&volume).is_err());
}

/// REPLACE-3, REPLACE-4
#[test]
fn replacement_that_fails_or_is_cancelled_leaves_the_volume_as_it_was() {
    let devices = shared(Layout::new(2, DEVICE_BYTES).make());
    let volume = open(&devices, &quiet()).unwrap();
    write(&volume, 0);
    let path = Path::new("replacement");
    let small = new_device(DEVICE_BYTES - MIB);
    let refused = volume.replace_device(DevId(1), path, &small, false, &mut |_| true);
    assert!(matches!(refused, Err(Error::DeviceSet(_))), "{refused:?}");

    let target = new_device(DEVICE_BYTES);
    let mut steps = 0;
    let cancelled = volume.replace_device(DevId(1), path, &target, false, &mut |_| {
        steps += 1;
        steps < 4
    });
    assert!(cancelled.is_err());
    assert!(!has_superblock(&target));
    write(&volume, 1);

    let failing = FaultDevice::new(new_device(DEVICE_BYTES));
    failing.add(Fault::GoneAfter { requests: 5 });
    let failing: Arc<dyn BlockDevice> = Arc::new(failing);
    let failed = volume.replace_device(DevId(1), path, &failing, false, &mut |_| true);
    assert!(matches!(failed, Err(Error::Device(_))), "{failed:?}");
    write(&volume, 2);
    assert_eq!(read(&volume), Ok(3));
    volume.close().unwrap();
    drop(volume);
    check(&devices).unwrap();
}

/// REPLACE-1, REPLACE-2, REPLACE-COPY-1, REPLACE-COPY-2
#[test]
fn writes_during_the_copy_are_on_the_new_device() {
    for (data, metadata, count) in PROFILES {
        let layout = Layout::new(count, 2 * DEVICE_BYTES).profiles(data, metadata);
        let mut devices = shared(layout.make());
        let volume = open(&devices, &quiet()).unwrap();
        for number in 0..4 {
            write(&volume, number);
        }
        let target = new_device(2 * DEVICE_BYTES);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let top = volume.root_dir(RootId::FS_TREE).unwrap();
                let mut number = 0u64;
                while !done.load(Ordering::Acquire) {
                    let name = format!("churn {}", number % 8);
                    let name = name.as_bytes();
                    let _ = volume.unlink(top, name);
                    let file = volume.create(top, name, &NewInode::file(0o600)).unwrap();
                    volume.write(file, 0, &vec![number as u8; 300_000]).unwrap();
                    match number % 3 {
                        0 => volume.sync().unwrap(),
                        1 => volume.fsync(file).unwrap(),
                        _ => {}
                    }
                    number += 1;
                }
            });
            for _ in 0..3 {
                let counts = replace(&volume, 1, &target);
                assert_eq!(counts.uncorrectable, 0, "{data:?}");
                let again = new_device(2 * DEVICE_BYTES);
                assert_eq!(replace(&volume, 1, &again).uncorrectable, 0, "{data:?}");
                devices[0] = again;
            }
            done.store(true, Ordering::Release);
        });
        assert_eq!(read(&volume), Ok(4), "{data:?}");
        volume.close().unwrap();
        drop(volume);
        check(&devices).unwrap_or_else(|error| panic!("{data:?}: {error}"));
    }
}

#[test]
fn every_power_cut_during_a_replacement_leaves_all_that_was_synced() {
    for (data, metadata, count) in [
        (Profile::Single, Profile::Dup, 1),
        (Profile::Raid1, Profile::Raid1, 2),
    ] {
        let layout = Layout::new(count, DEVICE_BYTES).profiles(data, metadata);
        let recorder = Recorder::new();
        let devices = layout.make().into_iter();
        let devices: Devices = devices.map(|device| recorder.device(device) as _).collect();
        let target: Arc<dyn BlockDevice> = recorder.device(MemDevice::new(DEVICE_BYTES));
        let volume = open(&devices, &quiet()).unwrap();
        write(&volume, 0);
        recorder.mark(1u64);
        replace(&volume, 1, &target);
        write(&volume, 1);
        recorder.mark(2u64);
        volume.close().unwrap();
        drop(volume);

        let plan = CrashPlan::new(SEED)
            .since(1u64)
            .random_states(40)
            .sector_bytes(4096);
        let recording = recorder.recording();
        let mut was_new = 0;
        for state in recording.crash_states(&plan) {
            let synced = state.marks().iter().max().copied().unwrap_or(0);
            let describe = |error: String| format!("{data:?} cut {}: {error}", state.number);
            let all = shared(state.devices.clone());
            let mut found: Devices = all
                .iter()
                .filter(|device| has_superblock(device))
                .cloned()
                .collect();
            recover_superblocks(&found);
            // Of the old and the new device, a scan takes the newer one.
            let has_both = found.len() > count;
            if has_both {
                found.remove(0);
                was_new += 1;
            }
            let found = of_volume(&found);
            check_after_cut(&found).map_err(describe).unwrap();
            let volume = open(&found, &quiet())
                .map_err(|error| describe(error.to_string()))
                .unwrap();
            let files = read(&volume).map_err(describe).unwrap();
            assert!(u64::from(files) >= synced, "cut {}", state.number);
            write(&volume, files);
            volume.close().unwrap();
        }
        assert!(
            was_new > 0,
            "{data:?}: there are cuts before the old device is erased"
        );
    }
}

#[test]
fn device_that_dies_under_load_is_replaced_without_loss() {
    for (data, metadata, count) in PROFILES.into_iter().skip(2) {
        let layout = Layout::new(count, DEVICE_BYTES).profiles(data, metadata);
        let mut devices = shared(layout.make());
        let dying = Arc::new(FaultDevice::new(Arc::clone(&devices[1])));
        let mut given = devices.clone();
        given[1] = Arc::clone(&dying) as _;
        let volume = open(&given, &quiet()).unwrap();
        write(&volume, 0);
        dying.add(Fault::GoneAfter { requests: 20 });
        write(&volume, 1);
        write(&volume, 2);
        let target = new_device(DEVICE_BYTES);
        let counts = replace(&volume, 2, &target);
        assert_eq!(counts.uncorrectable, 0, "{data:?}");
        volume.close().unwrap();
        drop(volume);
        devices[1] = target;
        let volume = open(&devices, &quiet()).unwrap();
        let errors = volume.pool().error_counts(DevId(2)).unwrap();
        assert_eq!(errors, [0; 5], "{data:?}: counts of the new device");
        write(&volume, 3);
        volume.close().unwrap();
        drop(volume);
        check(&devices).unwrap_or_else(|error| panic!("{data:?}: {error}"));
        damage(&devices[0]);
        let volume = open(&devices, &quiet()).unwrap();
        assert_eq!(read(&volume), Ok(4), "{data:?}");
    }
}

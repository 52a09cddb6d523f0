//! Devices that join, leave, or get another size, with power cuts during each change.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ubtrfs_device::progress::Event;
use ubtrfs_device::{
    BlockDevice, CopyChoice, DeviceSuperblocks, MemDevice, Pool, PoolOptions, empty_device,
};
use ubtrfs_format::block_group_flags::{BlockGroupFlags, Profile};
use ubtrfs_format::ids::{DevId, RootId};
use ubtrfs_format::superblock::{MAGIC, SUPERBLOCK_OFFSETS};
use ubtrfs_fs::{DeviceSetError, Error, NewInode, Volume};
use ubtrfs_sim::record::{CrashPlan, Recorder};

use crate::devices::{
    Devices, Layout, MIB, check, check_after_cut, open, quiet, recover_superblocks, shared,
};

/// The offset of the magic number in a superblock.
const MAGIC_AT: u64 = 64;
const SEED: u64 = 0xd3_71ce;

/// Returns the contents of the file with this number.
fn contents(number: u8) -> Vec<u8> {
    (0..3_000_000u32)
        .map(|at| (at / 7) as u8 ^ number)
        .collect()
}

pub(crate) fn write(volume: &Volume, number: u8) {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let name = format!("file {number}");
    let file = volume
        .create(top, name.as_bytes(), &NewInode::file(0o600))
        .unwrap();
    volume.write(file, 0, &contents(number)).unwrap();
    volume.sync().unwrap();
}

/// Returns the number of files, after reading each of them.
pub(crate) fn read(volume: &Volume) -> Result<u8, String> {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    for number in 0.. {
        let name = format!("file {number}");
        let Some(found) = volume.lookup(top, name.as_bytes()).unwrap() else {
            return Ok(number);
        };
        let mut bytes = vec![0; contents(number).len()];
        let len = volume
            .read(found, 0, &mut bytes)
            .map_err(|error| error.to_string())?;
        if len != bytes.len() || bytes != contents(number) {
            return Err(format!("file {number} has changed"));
        }
    }
    unreachable!("a volume has fewer files")
}

pub(crate) fn has_superblock(device: &Arc<dyn BlockDevice>) -> bool {
    SUPERBLOCK_OFFSETS.iter().any(|offset| {
        let mut magic = [0; MAGIC.len()];
        device.read_at(&mut magic, offset + MAGIC_AT).is_ok() && magic == MAGIC
    })
}

/// Returns the devices with a superblock of the same volume as the first one.
pub(crate) fn of_volume(devices: &Devices) -> Devices {
    let fsid = |device: &Arc<dyn BlockDevice>| {
        let found = DeviceSuperblocks::read(&**device);
        let first = found.require(&**device, Path::new("device"), CopyChoice::First);
        first.ok().map(|superblock| superblock.fsid)
    };
    let own = fsid(&devices[0]);
    devices
        .iter()
        .filter(|device| fsid(device) == own)
        .cloned()
        .collect()
}

fn add(volume: &Volume, device: &Arc<dyn BlockDevice>) -> DevId {
    let path = Path::new("new device");
    empty_device(&**device, path, device.len_bytes(), true).unwrap();
    volume.add_device(path, Arc::clone(device)).unwrap()
}

fn totals(devices: &Devices) -> (u64, u64) {
    let named = devices
        .iter()
        .map(|device| ("device".into(), Arc::clone(device)));
    let pool = Pool::from_devices(named.collect(), &PoolOptions::new()).unwrap();
    let superblock = pool.superblock();
    (superblock.num_devices.get(), superblock.total_bytes.get())
}

/// MEMBER-1, MEMBER-2, NEW-DEVICE-1, VACATE-1
#[test]
fn every_power_cut_during_changes_of_devices_leaves_all_that_was_synced() {
    let layout = Layout::new(2, 300 * MIB).profiles(Profile::Raid1, Profile::Raid1);
    let recorder = Recorder::new();
    let devices = layout.make().into_iter();
    let devices: Devices = devices.map(|device| recorder.device(device) as _).collect();
    // It was a volume before.
    let [foreign] = <[MemDevice; 1]>::try_from(Layout::new(1, 400 * MIB).make()).unwrap();
    let third: Arc<dyn BlockDevice> = recorder.device(foreign);

    let volume = open(&devices, &quiet()).unwrap();
    write(&volume, 0);
    recorder.mark(1u64);
    let devid = add(&volume, &third);
    assert_eq!(devid, DevId(3));
    write(&volume, 1);
    recorder.mark(2u64);
    volume.resize_device(devid, 350 * MIB, &mut ()).unwrap();
    volume.resize_device(devid, 400 * MIB, &mut ()).unwrap();
    volume.remove_device(devid, &mut ()).unwrap();
    assert!(!has_superblock(&third));
    write(&volume, 2);
    recorder.mark(3u64);
    volume.close().unwrap();
    drop(volume);
    assert_eq!(totals(&devices), (2, 600 * MIB));
    check(&devices).unwrap();

    let recording = recorder.recording();
    let plan = CrashPlan::new(SEED).since(1u64).random_states(60);
    let mut counts = [0; 3];
    for state in recording.crash_states(&plan) {
        let synced = state.marks().iter().max().copied().unwrap_or(0);
        let describe = |error: String| format!("cut {}: {error}", state.number);
        let all = shared(state.devices.clone());
        recover_superblocks(&all[..2].to_vec());
        let found = of_volume(&all);
        check_after_cut(&found).map_err(describe).unwrap();
        let volume = open(&found, &quiet())
            .map_err(|error| describe(error.to_string()))
            .unwrap();
        let files = read(&volume).map_err(describe).unwrap();
        assert!(
            u64::from(files) >= synced,
            "cut {}: {files} files of {synced}",
            state.number
        );
        let members = volume.pool().devices().len();
        counts[members - 1] += 1;
        write(&volume, files);
        volume.close().unwrap();
    }
    assert!(
        counts[1] > 0 && counts[2] > 0,
        "both sets were seen: {counts:?}"
    );
}

#[test]
fn image_grows_with_its_volume_and_is_truncated_after_it() {
    let [image] = <[MemDevice; 1]>::try_from(Layout::new(1, 300 * MIB).make()).unwrap();
    let devices: Devices = vec![Arc::new(image)];
    let volume = open(&devices, &quiet()).unwrap();
    write(&volume, 0);
    volume.resize_device(DevId(1), 700 * MIB, &mut ()).unwrap();
    assert_eq!(devices[0].len_bytes(), 700 * MIB);
    volume
        .resize_device(DevId(1), 290 * MIB + 5000, &mut ())
        .unwrap();
    assert_eq!(devices[0].len_bytes(), 290 * MIB + 4096);
    write(&volume, 1);
    volume.close().unwrap();
    drop(volume);
    assert_eq!(totals(&devices), (1, 290 * MIB + 4096));
    check(&devices).unwrap();
    let volume = open(&devices, &quiet()).unwrap();
    assert_eq!(read(&volume), Ok(2));
}

/// VACATE-2
#[test]
fn refused_changes_leave_the_volume_as_it_was() {
    let layout = Layout::new(2, 300 * MIB).profiles(Profile::Raid1, Profile::Raid1);
    let devices = shared(layout.make());
    let volume = open(&devices, &quiet()).unwrap();
    write(&volume, 0);
    let reason = |result: ubtrfs_fs::Result<()>| match result {
        Err(Error::DeviceSet(reason)) => reason,
        other => panic!("{other:?}"),
    };
    let below = reason(volume.remove_device(DevId(2), &mut ()));
    assert!(matches!(
        below,
        DeviceSetError::BelowMinimum(Profile::Raid1)
    ));
    assert_eq!(below.to_string(), "unable to go below two devices on raid1");
    let none = reason(volume.resize_device(DevId(7), 900 * MIB, &mut ()));
    assert!(matches!(none, DeviceSetError::NoSuchDevice(DevId(7))));
    let way = reason(volume.resize_device(DevId(1), 20 * MIB, &mut ()));
    assert!(
        matches!(
            way,
            DeviceSetError::InTheWay {
                devid: DevId(1),
                ..
            }
        ),
        "{way}"
    );
    let small = reason(volume.resize_device(DevId(1), 4096, &mut ()));
    assert!(matches!(small, DeviceSetError::TooSmall(4096)));
    let third: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(20 * MIB));
    add(&volume, &third);
    let way = reason(volume.remove_device(DevId(1), &mut ()));
    assert!(
        matches!(
            way,
            DeviceSetError::InTheWay {
                devid: DevId(1),
                ..
            }
        ),
        "{way}"
    );
    // Space that was closed in vain is used again.
    let available = volume.statfs().unwrap().available_bytes;
    assert!(available > 150 * MIB, "{available}");
    write(&volume, 1);
    volume.close().unwrap();
    drop(volume);
    let devices = [devices, vec![third]].concat();
    assert_eq!(totals(&devices), (3, 620 * MIB));
    check(&devices).unwrap();
}

#[test]
fn block_groups_move_off_a_device_that_leaves_and_off_an_end_that_is_cut() {
    let first = Layout::new(1, 300 * MIB).make();
    let mut devices = shared(first);
    let volume = open(&devices, &quiet()).unwrap();
    for number in 0..20 {
        write(&volume, number);
    }
    let second: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(900 * MIB));
    add(&volume, &second);
    let mut moved = 0;
    let mut count = |event: &Event<'_>| {
        if let Event::Advance { bytes } = event {
            moved += bytes;
        }
        ControlFlow::Continue(())
    };
    volume.remove_device(DevId(1), &mut count).unwrap();
    assert!(moved >= 60_000_000, "{moved}");
    assert!(!has_superblock(&devices[0]));
    write(&volume, 20);
    volume.resize_device(DevId(2), 500 * MIB, &mut ()).unwrap();
    assert_eq!(second.len_bytes(), 500 * MIB);
    volume.close().unwrap();
    drop(volume);
    devices = vec![second];
    assert_eq!(totals(&devices), (1, 500 * MIB));
    check(&devices).unwrap();
    let volume = open(&devices, &quiet()).unwrap();
    assert_eq!(read(&volume), Ok(21));
}

/// The new data chunk has the profile of the one that left.
#[test]
fn empty_last_group_of_data_leaves_its_profile() {
    let layout = Layout::new(2, 300 * MIB).profiles(Profile::Raid1, Profile::Raid1);
    let mut devices = shared(layout.make());
    let volume = open(&devices, &quiet()).unwrap();
    let third: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(400 * MIB));
    add(&volume, &third);
    volume.remove_device(DevId(1), &mut ()).unwrap();
    let data = |volume: &Volume| {
        let chunks = volume.pool().chunk_map().all();
        let mut data = chunks
            .iter()
            .filter(|chunk| chunk.flags().contains(BlockGroupFlags::DATA));
        data.next().map(|chunk| chunk.profile())
    };
    assert_eq!(data(&volume), Some(Profile::Raid1));
    write(&volume, 0);
    volume.close().unwrap();
    drop(volume);
    devices[0] = third;
    check(&devices).unwrap();
    let volume = open(&devices, &quiet()).unwrap();
    assert_eq!(data(&volume), Some(Profile::Raid1));
    assert_eq!(read(&volume), Ok(1));
}

#[test]
fn every_power_cut_while_block_groups_leave_a_device_keeps_all_files() {
    let layout = Layout::new(2, 300 * MIB).profiles(Profile::Raid1, Profile::Raid1);
    let recorder = Recorder::new();
    let made = layout.make().into_iter();
    let mut devices: Devices = made.map(|device| recorder.device(device) as _).collect();
    devices.push(recorder.device(MemDevice::new(300 * MIB)));
    let volume = open(&devices[..2].to_vec(), &quiet()).unwrap();
    for number in 0..4 {
        write(&volume, number);
    }
    add(&volume, &devices[2]);
    recorder.mark(1u64);
    volume.remove_device(DevId(2), &mut ()).unwrap();
    volume.close().unwrap();
    drop(volume);

    let recording = recorder.recording();
    let plan = CrashPlan::new(SEED).since(1u64).random_states(60);
    let mut counts = [0; 3];
    for state in recording.crash_states(&plan) {
        let describe = |error: String| format!("cut {}: {error}", state.number);
        let all = shared(state.devices.clone());
        let named = |device: &&Arc<dyn BlockDevice>| has_superblock(device);
        recover_superblocks(&all.iter().filter(named).cloned().collect());
        let found = of_volume(&all);
        check_after_cut(&found).map_err(describe).unwrap();
        let volume = open(&found, &quiet())
            .map_err(|error| describe(error.to_string()))
            .unwrap();
        assert_eq!(read(&volume).map_err(describe), Ok(4));
        counts[volume.pool().devices().len() - 1] += 1;
        volume.close().unwrap();
    }
    assert!(
        counts[1] > 0 && counts[2] > 0,
        "both sets were seen: {counts:?}"
    );
}

#[test]
fn new_device_is_used_at_once_by_a_full_volume() {
    let devices = shared(Layout::new(1, 120 * MIB).make());
    let volume = open(&devices, &quiet()).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = volume
        .create(top, b"large", &NewInode::file(0o600))
        .unwrap();
    let piece = vec![9; MIB as usize];
    let mut at = 0;
    while volume.write(file, at, &piece).is_ok() && volume.sync().is_ok() {
        at += MIB;
    }
    let second: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(400 * MIB));
    add(&volume, &second);
    for more in 0..200 {
        volume.write(file, at + more * MIB, &piece).unwrap();
    }
    volume.sync().unwrap();
    volume.close().unwrap();
    drop(volume);
    check(&vec![Arc::clone(&devices[0]), second]).unwrap();
}

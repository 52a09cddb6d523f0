//! Selection of the devices of a pool, and errors about the others.

use super::*;
use crate::error::SuperblockChange;
use crate::file::FileDevice;
use crate::memory::MemDevice;
use crate::superblock::write_superblocks;
use ubtrfs_format::features::FeatureName;
use ubtrfs_format::superblock::SuperblockError;

fn device(edit: impl Fn(&mut Superblock)) -> Arc<dyn BlockDevice> {
    let device = MemDevice::new(DEVICE_BYTES);
    let mut sb = superblock(1, 2);
    edit(&mut sb);
    write_superblocks(&device, Path::new("x"), &sb).unwrap();
    Arc::new(device)
}

fn open(devices: Vec<Arc<dyn BlockDevice>>) -> Result<Pool, DeviceError> {
    open_with(devices, &PoolOptions::new())
}

fn writing() -> PoolOptions {
    PoolOptions::new().access(Access::Write)
}

fn open_with(
    devices: Vec<Arc<dyn BlockDevice>>,
    options: &PoolOptions,
) -> Result<Pool, DeviceError> {
    let named = (1..)
        .zip(devices)
        .map(|(n, d)| (format!("mem{n}").into(), d));
    Pool::from_devices(named.collect(), options)
}

fn set_devid(sb: &mut Superblock, devid: u64) {
    sb.dev_item.devid = devid.into();
    sb.dev_item.uuid = device_uuid(devid);
}

#[test]
fn newest_superblock_is_the_pools() {
    let pool = open(vec![
        device(|_| {}),
        device(|sb| {
            set_devid(sb, 2);
            sb.generation = 11.into();
        }),
    ])
    .unwrap();
    assert_eq!(pool.superblock().generation.get(), 11);
    let generations: Vec<_> = pool.devices().iter().map(|d| d.generation).collect();
    assert_eq!(generations, [Some(10), Some(11)]);
}

#[test]
fn two_claims_to_one_number_are_decided_by_generation_or_refused() {
    let newer = |sb: &mut Superblock| {
        sb.generation = 12.into();
        sb.dev_item.uuid = Uuid([0xbb; 16]);
    };
    let pool = open(vec![device(|_| {}), device(newer)]).unwrap();
    assert_eq!(pool.devices().len(), 1);
    assert_eq!(pool.devices()[0].uuid, Uuid([0xbb; 16]));
    let error = open(vec![device(|_| {}), device(|_| {})]).unwrap_err();
    assert!(matches!(
        error,
        DeviceError::DuplicateDevice {
            devid: DevId(1),
            generations: [10, 10],
            ..
        }
    ));
}

#[test]
fn device_of_another_volume_is_refused() {
    let other = Uuid([1; 16]);
    let stranger = device(|sb| {
        sb.fsid = other;
        sb.dev_item.fsid = other;
    });
    assert!(matches!(
        open(vec![device(|_| {}), stranger]).unwrap_err(),
        DeviceError::OtherVolume { wanted: FSID, found, .. } if found == other
    ));
}

#[test]
fn unknown_feature_is_refused_by_name() {
    let zoned = device(|sb| sb.incompat_flags = (1 << 12).into());
    match open(vec![zoned]).unwrap_err() {
        DeviceError::Unsupported {
            source: SuperblockError::Incompat(FeatureName { name, .. }),
            ..
        } => assert_eq!(name, Some("zoned")),
        other => panic!("{other}"),
    }
    assert!(matches!(open(vec![]), Err(DeviceError::NoDevice)));
}

// POOL-2
#[test]
fn missing_device_needs_degraded_and_is_listed() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    let error = volume
        .pool(|devid| devid != 2, &PoolOptions::new())
        .unwrap_err();
    assert!(matches!(
        error,
        DeviceError::Missing { devid: DevId(2), uuid } if uuid == device_uuid(2)
    ));
    let pool = volume.pool(|devid| devid != 2, &degraded()).unwrap();
    let missing: Vec<bool> = pool.devices().iter().map(DeviceInfo::is_missing).collect();
    assert_eq!(missing, [false, true]);
    assert!(pool.device(DevId(1)).is_some() && pool.device(DevId(2)).is_none());
}

#[test]
fn writing_degraded_needs_what_profiles_tolerate() {
    let write = degraded().access(Access::Write);
    let mirrored = TestVolume::new(Profile::Raid1, 2);
    assert!(mirrored.pool(|devid| devid != 2, &write).is_ok());
    let striped = TestVolume::new(Profile::Raid0, 2);
    assert!(striped.pool(|devid| devid != 2, &degraded()).is_ok());
    assert!(matches!(
        striped.pool(|devid| devid != 2, &write).unwrap_err(),
        DeviceError::Unwritable { missing: 1, .. }
    ));
}

// POOL-1
#[test]
fn impostor_with_the_right_number_is_not_read() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    let impostor = device(|sb| {
        set_devid(sb, 2);
        sb.dev_item.uuid = Uuid([0xcc; 16]);
    });
    let wrap = |devid, device| {
        if devid == 2 {
            Arc::clone(&impostor)
        } else {
            device
        }
    };
    let pool = volume.pool_with(|_| true, &degraded(), wrap).unwrap();
    assert!(pool.devices()[1].is_missing());
    let mut buf = [0; 4096];
    assert!(matches!(
        pool.read_mirror(DATA_START, &mut buf, 2),
        Err(DeviceError::Missing {
            devid: DevId(2),
            ..
        })
    ));
}

#[test]
fn truncated_device_is_refused_unless_degraded() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    let short = MemDevice::new(DEVICE_BYTES - 4096);
    write_superblocks(&short, Path::new("x"), &superblock(2, 2)).unwrap();
    let short: Arc<dyn BlockDevice> = Arc::new(short);
    let wrap = |devid, device| {
        if devid == 2 {
            Arc::clone(&short)
        } else {
            device
        }
    };
    let error = volume
        .pool_with(|_| true, &PoolOptions::new(), wrap)
        .unwrap_err();
    assert!(matches!(
        error,
        DeviceError::Truncated {
            devid: DevId(2),
            total_bytes: DEVICE_BYTES,
            ..
        }
    ));
    assert!(volume.pool_with(|_| true, &degraded(), wrap).is_ok());
    let rescue = PoolOptions::new().ignore_truncation(true);
    assert!(volume.pool_with(|_| true, &rescue, wrap).is_ok());
    let write = rescue.access(Access::Write);
    let error = volume.pool_with(|_| true, &write, wrap).unwrap_err();
    assert!(matches!(error, DeviceError::Truncated { .. }), "{error}");
    let write = degraded().access(Access::Write);
    let error = volume.pool_with(|_| true, &write, wrap).unwrap_err();
    assert!(matches!(error, DeviceError::Truncated { .. }), "{error}");
}

/// Clones of one device: the intended one is unknown, and the wrong one could be overwritten.
#[test]
fn two_clones_are_not_written() {
    let clone = |generation: u64| device(move |sb| sb.generation = generation.into());
    for generations in [[10, 10], [10, 12], [12, 10]] {
        let clones = generations.map(clone).to_vec();
        let error = open_with(clones, &writing()).unwrap_err();
        assert!(
            matches!(error, DeviceError::DuplicateDevice { generations: found, .. } if found == generations),
            "{error}"
        );
    }
}

/// Creates the device files of a volume with two devices.
fn files(dir: &Path, prefix: &str, generation: u64) -> Vec<PathBuf> {
    let made = [1, 2].map(|devid| {
        let path = dir.join(format!("{prefix}{devid}"));
        let device = FileDevice::create_new(&path, DEVICE_BYTES).unwrap();
        let mut sb = superblock(devid, 2);
        sb.generation = generation.into();
        write_superblocks(&device, &path, &sb).unwrap();
        path
    });
    made.to_vec()
}

#[test]
fn device_that_was_named_is_written_or_none() {
    let place = |found: u64| {
        let dir = tempfile::tempdir().unwrap();
        let named = files(dir.path(), "named", 10);
        let others = dir.path().join("others");
        std::fs::create_dir(&others).unwrap();
        files(&others, "clone", found);
        let options = writing().scan(vec![others]);
        let pool = Pool::open(&named, &options);
        (dir, named, pool)
    };
    for found in [9, 10] {
        let (_dir, named, pool) = place(found);
        let paths: Vec<_> = pool
            .unwrap()
            .devices()
            .into_iter()
            .map(|d| d.path)
            .collect();
        let named: Vec<_> = named.into_iter().map(Some).collect();
        assert_eq!(paths, named);
    }
    let (_dir, _, pool) = place(11);
    assert!(
        matches!(pool, Err(DeviceError::DuplicateDevice { .. })),
        "the clone that was found is newer"
    );
}

/// The device was removed from the volume while it was absent.
///
/// POOL-3
#[test]
fn device_that_the_chunk_tree_does_not_name_is_left_alone() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    let removed = Arc::new(MemDevice::new(DEVICE_BYTES));
    write_superblocks(&*removed, Path::new("x"), &superblock(3, 3)).unwrap();
    let devices: Vec<(PathBuf, Arc<dyn BlockDevice>)> = vec![
        ("mem1".into(), volume.devices[0].clone()),
        ("mem2".into(), volume.devices[1].clone()),
        ("mem3".into(), removed.clone()),
    ];
    let pool = Pool::from_devices(devices, &writing()).unwrap();
    pool.add_dev_item(&dev_item(1)).unwrap();
    pool.add_dev_item(&dev_item(2)).unwrap();
    pool.check_devices().unwrap();
    assert_eq!(pool.devices().len(), 2);
    let mut superblock = pool.superblock().clone();
    superblock.generation = 20.into();
    pool.commit_superblock(&superblock).unwrap();
    let generation = |device: &MemDevice| {
        let superblocks = crate::superblock::DeviceSuperblocks::read(device);
        superblocks.best().unwrap().generation.get()
    };
    assert_eq!(generation(&removed), 10);
    assert_eq!(generation(&volume.devices[1]), 20);
}

// DEVICE-CHECKS-1 for the total of bytes.
#[test]
fn superblock_that_knows_of_fewer_bytes_than_the_devices_is_read_only() {
    let known = |bytes: u64, options: &PoolOptions| {
        let only = device(|sb| {
            sb.num_devices = 1.into();
            sb.total_bytes = bytes.into();
        });
        let pool = open_with(vec![only], options)?;
        pool.add_dev_item(&dev_item(1))?;
        pool.check_devices()
    };
    known(DEVICE_BYTES, &writing()).unwrap();
    known(DEVICE_BYTES + 4096, &writing()).unwrap();
    for bytes in [0, DEVICE_BYTES - 4096] {
        known(bytes, &PoolOptions::new()).unwrap();
        let error = known(bytes, &writing()).unwrap_err();
        assert!(
            matches!(error, DeviceError::TotalBytes { devices_bytes: DEVICE_BYTES, total_bytes } if total_bytes == bytes),
            "{error}"
        );
    }
}

#[test]
fn device_with_the_mark_of_something_else_is_read_and_not_written() {
    let marked = |offset: u64, mark: &[u8]| {
        let device = device(|_| {});
        device.write_at(mark, offset).unwrap();
        device
    };
    let swap = marked(4086, b"SWAPSPACE2");
    open(vec![swap.clone()]).unwrap();
    let error = open_with(vec![swap], &writing()).unwrap_err();
    assert!(matches!(error, DeviceError::Foreign { .. }), "{error}");
    // A boot loader before the superblock.
    let table = marked(446 + 4, b"\x83\0\0\0\0\x08\0\0\0\0\x10\0");
    table.write_at(b"\x55\xaa", 510).unwrap();
    open_with(vec![table], &writing()).unwrap();
}

#[test]
fn older_copy_is_read_on_request_and_never_written() {
    let device = device(|_| {});
    device.write_at(&[0; 4096], 64 << 10).unwrap();
    let any = |access| {
        let options = PoolOptions::new().superblock_copies(CopyChoice::Any);
        open_with(vec![device.clone()], &options.access(access))
    };
    assert!(any(Access::Read).is_ok());
    for error in [any(Access::Write), open(vec![device.clone()])] {
        let error = error.unwrap_err();
        assert!(
            matches!(error, DeviceError::FirstSuperblock { .. }),
            "{error}"
        );
    }
}

// DEVICE-CHECKS-2
#[test]
fn change_by_another_program_is_noticed() {
    let changed = |edit: &dyn Fn(&mut Superblock)| {
        let volume = TestVolume::new(Profile::Single, 1);
        let pool = volume.pool(|_| true, &writing()).unwrap();
        pool.check_unchanged().unwrap();
        let mut commit = pool.superblock().clone();
        commit.generation = 11.into();
        pool.commit_superblock(&commit).unwrap();
        pool.check_unchanged().unwrap();
        let mut other = superblock(1, 1);
        other.generation = 11.into();
        edit(&mut other);
        write_superblocks(&*volume.devices[0], Path::new("x"), &other).unwrap();
        match pool.check_unchanged() {
            Ok(()) => None,
            Err(DeviceError::Changed { change, .. }) => Some(change),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(changed(&|_| {}), None);
    let newer = SuperblockChange::Newer {
        found: 12,
        known: 11,
    };
    assert_eq!(changed(&|sb| sb.generation = 12.into()), Some(newer));
    let replaced = Some(SuperblockChange::Replaced);
    assert_eq!(changed(&|sb| sb.fsid = Uuid([9; 16])), replaced);
    assert_eq!(changed(&|sb| sb.magic = [0; 8]), replaced);
    assert_eq!(changed(&|sb| sb.dev_item.uuid = Uuid([9; 16])), replaced);
}

#[test]
fn seed_device_is_taken_when_the_chunk_tree_names_it() {
    let seed_fsid = Uuid([0x5e; 16]);
    let seed = device(|sb| {
        sb.fsid = seed_fsid;
        sb.dev_item.fsid = seed_fsid;
        sb.flags = ubtrfs_format::superblock::flags::SEEDING.into();
    });
    let pool = open(vec![seed, device(|sb| set_devid(sb, 2))]).unwrap();
    assert_eq!(pool.superblock().fsid, FSID);
    assert_eq!(pool.devices().len(), 1);
    let mut item = dev_item(1);
    item.fsid = seed_fsid;
    pool.add_dev_item(&item).unwrap();
    assert!(pool.devices().iter().all(|device| !device.is_missing()));
    pool.read_mirror(Logical(1 << 20), &mut [0; 4096], 1)
        .unwrap();
}

#[test]
fn paths_are_completed_by_a_scan() {
    let dir = tempfile::tempdir().unwrap();
    let path = |devid| dir.path().join(format!("d{devid}"));
    for devid in [1, 2] {
        let device = FileDevice::create_new(&path(devid), DEVICE_BYTES).unwrap();
        write_superblocks(&device, &path(devid), &superblock(devid, 2)).unwrap();
    }
    std::fs::copy(path(1), dir.path().join("copy of d1")).unwrap();
    let given = [path(1), path(1)];
    let alone = Pool::open(&given, &PoolOptions::new()).unwrap();
    assert_eq!(alone.devices().len(), 1);
    let scanning = PoolOptions::new().scan(vec![dir.path().to_owned()]);
    let pool = Pool::open(&given, &scanning).unwrap();
    let paths: Vec<_> = pool.devices().into_iter().filter_map(|d| d.path).collect();
    assert_eq!(
        paths,
        [path(1), path(2)],
        "the device given wins over its copy"
    );
}

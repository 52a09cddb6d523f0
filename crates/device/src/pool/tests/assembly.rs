//! Which devices form a pool, and what is said of those that do not.

use super::*;
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
    let named = (1..)
        .zip(devices)
        .map(|(n, d)| (format!("mem{n}").into(), d));
    Pool::from_devices(named.collect(), &PoolOptions::new())
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
fn two_claims_to_one_number_are_settled_by_generation_or_refused() {
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
            generation: 10,
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
        let device = FileDevice::create(&path(devid), DEVICE_BYTES).unwrap();
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

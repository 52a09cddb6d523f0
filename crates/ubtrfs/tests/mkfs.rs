//! Volumes that are planned, created and filled with `Mkfs`.

use std::fs;
use std::io::{ErrorKind, Seek};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use ubtrfs::{
    Access, BlockDevice, Checker, DeviceAccess, FileDevice, Growth, MadeVolume, MemDevice, Mkfs,
    MkfsOptions, Problems, Profile, Uuid, Volume,
};

const VOLUME_BYTES: u64 = 256 << 20;

/// Creates a volume on a number of devices in memory, and opens it.
fn made_on(mkfs: &Mkfs, devices: usize) -> (MadeVolume, Volume) {
    let device = || Arc::new(MemDevice::new(VOLUME_BYTES)) as Arc<dyn BlockDevice>;
    let devices: Vec<_> = (0..devices).map(|_| device()).collect();
    let named: Vec<(&Path, &dyn BlockDevice)> = devices
        .iter()
        .map(|device| (Path::new("memory"), &**device))
        .collect();
    let sizes = vec![VOLUME_BYTES; devices.len()];
    let made = mkfs.plan(&sizes).unwrap().write(&named, &mut ()).unwrap();
    let named = || {
        devices
            .iter()
            .map(|device| ("memory".into(), Arc::clone(device)))
    };
    let report = Checker::new().check_devices(named().collect()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.uuid, made.uuid);
    let volume = Volume::builder().open_devices(named().collect()).unwrap();
    (made, volume)
}

#[test]
fn uuids_that_are_given_are_those_of_the_volume() {
    let [uuid, one, two] = [1, 2, 3].map(|byte| Uuid([byte; 16]));
    let mkfs = Mkfs::default().uuid(uuid).device_uuids([one, two]);
    let (made, volume) = made_on(&mkfs, 2);
    assert_eq!((made.uuid, &made.device_uuids[..]), (uuid, &[one, two][..]));
    assert_eq!(volume.uuid(), uuid);
    let devices = volume.devices();
    let uuids: Vec<_> = devices.iter().map(|device| device.uuid).collect();
    assert_eq!(uuids, [one, two]);
    assert_eq!(made.geometry.metadata, Profile::Raid1);
    assert_eq!(made.device_bytes, [VOLUME_BYTES; 2]);
    assert!(made.data_bytes > 0 && made.metadata_bytes > 0 && made.system_bytes > 0);
    assert_eq!((made.mixed_bytes, made.filled.is_none()), (0, true));
    let refused = mkfs.plan(&[VOLUME_BYTES]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
}

#[test]
fn volume_is_refused_before_anything_is_written() {
    let small = Mkfs::default().plan(&[1 << 20]).unwrap_err();
    assert_eq!(small.kind(), ErrorKind::StorageFull, "{small}");
    let options = MkfsOptions {
        data: Some(Profile::Raid1),
        ..MkfsOptions::default()
    };
    let few = Mkfs::new(options).geometry(1).unwrap_err();
    assert_eq!(few.kind(), ErrorKind::InvalidInput, "{few}");
    let missing = Mkfs::default().fill_from("/nowhere/at/all");
    let missing = missing.plan(&[VOLUME_BYTES]).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
}

#[test]
fn volume_is_written_to_as_many_devices_as_were_planned() {
    let host = tempfile::tempdir().unwrap();
    for mkfs in [Mkfs::default(), Mkfs::default().fill_from(host.path())] {
        for (planned, given) in [(1, 2), (2, 1)] {
            let devices: Vec<_> = (0..given).map(|_| MemDevice::new(VOLUME_BYTES)).collect();
            let named: Vec<(&Path, &dyn BlockDevice)> = devices
                .iter()
                .map(|device| (Path::new("memory"), device as &dyn BlockDevice))
                .collect();
            let planned = mkfs.plan(&vec![VOLUME_BYTES; planned]).unwrap();
            let refused = planned.write(&named, &mut ()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
            let mut superblock = [0; 4096];
            devices[0].read_at(&mut superblock, 64 << 10).unwrap();
            assert_eq!(superblock, [0; 4096], "nothing is written");
        }
    }
}

#[test]
fn files_have_the_subvolumes_and_flags_that_were_asked_for() {
    let host = tempfile::tempdir().unwrap();
    for dir in ["plain", "kept", "shown"] {
        fs::create_dir(host.path().join(dir)).unwrap();
        fs::write(host.path().join(dir).join("file"), vec![7; 100_000]).unwrap();
    }
    let mkfs = Mkfs::default()
        .fill_from(host.path())
        .make_subvolume("kept", Access::ReadOnly)
        .make_default_subvolume("shown", Access::Writable)
        .no_data_cow("plain");
    let (made, volume) = made_on(&mkfs, 1);
    let filled = made.filled.unwrap();
    assert_eq!((filled.directories, filled.files), (4, 3));
    assert!(filled.shared.is_none() && filled.left_out_acls.is_none());
    let root = volume.root();
    assert!(root.subvolume("/kept").unwrap().is_read_only().unwrap());
    let shown = root.subvolume("/shown").unwrap();
    assert_eq!(volume.default_subvolume().unwrap().id(), shown.id());
    assert!(root.metadata("/plain/file").unwrap().flags().no_cow);
    assert!(!root.metadata("/kept/file").unwrap().flags().no_cow);
    assert_eq!(root.read("/plain/file").unwrap(), vec![7; 100_000]);
}

#[test]
fn the_same_archive_makes_the_same_volume_at_a_given_time() {
    let source = Volume::in_memory(VOLUME_BYTES).unwrap();
    source.root().write("/file", b"content").unwrap();
    let mut archive = tempfile::tempfile().unwrap();
    let mut problems = Problems::default();
    source
        .root()
        .export_tar("/", &archive, &mut problems)
        .unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    let present = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let mut make = || {
        archive.rewind().unwrap();
        let mkfs = Mkfs::default()
            .fill_from_archive(archive.try_clone().unwrap())
            .repeatable(present);
        made_on(&mkfs, 1)
    };
    let ((one, volume), (two, _)) = (make(), make());
    assert_eq!((one.uuid, one.device_uuids), (two.uuid, two.device_uuids));
    let file = volume.root().metadata("/file").unwrap();
    assert_eq!((file.modified(), file.created()), (present, present));
}

#[test]
fn image_grows_for_its_files_and_is_cut_behind_them() {
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("file"), vec![7; 8 << 20]).unwrap();
    let images = tempfile::tempdir().unwrap();
    let make = |name: &str, mkfs: Mkfs| {
        let path = images.path().join(name);
        let least = mkfs.geometry(1).unwrap().min_device_bytes();
        let device = FileDevice::create_new(&path, least).unwrap();
        let planned = mkfs.plan(&[least]).unwrap();
        let made = planned.write(&[(&path, &device)], &mut ()).unwrap();
        drop(device);
        assert!(Checker::new().check(&path).unwrap().is_clean());
        let device = FileDevice::open(&path, DeviceAccess::Read).unwrap();
        assert!(device.len_bytes() >= made.total_bytes);
        (made.total_bytes, least)
    };
    let filled = Mkfs::default().fill_from(host.path());
    let (total, least) = make("cut", filled.clone().shrink(true));
    assert!(total < least, "{total} of {least}");
    let (total, least) = make("as_is", filled.clone());
    assert_eq!(total, least);
    fs::write(host.path().join("more"), vec![8; 120 << 20]).unwrap();
    let (total, least) = make("grown", filled.growth(Growth::IfNeeded));
    assert!(total > least, "{total} of {least}");
}

#[test]
fn existing_images_are_formatted_and_not_overwritten_unless_forced() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
    Volume::create(&one, VOLUME_BYTES).unwrap().close().unwrap();
    let file = fs::File::create_new(&two).unwrap();
    file.set_len(2 * VOLUME_BYTES).unwrap();
    let content = |path| fs::read(path).unwrap();
    let before = content(&one);

    let format = |force: bool, paths: &[&Path]| Volume::builder().force(force).format(paths);
    let refused = format(false, &[&two, &one]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    assert!(
        refused
            .to_string()
            .contains("one' appears to contain an existing filesystem (btrfs)"),
        "{refused}"
    );
    assert!(content(&one) == before && content(&two).iter().all(|byte| *byte == 0));
    let missing = folder.path().join("missing");
    let refused = format(true, &[&one, &missing]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    let refused = format(true, &[&one, &one]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    assert!(content(&one) == before && !missing.exists());

    let volume = format(true, &[&one, &two]).unwrap();
    let sizes = |volume: &Volume| -> Vec<u64> {
        let devices = volume.devices().into_iter();
        devices.map(|device| device.total_bytes).collect()
    };
    assert_eq!(sizes(&volume), [VOLUME_BYTES, 2 * VOLUME_BYTES]);
    volume.close().unwrap();
    fs::File::options()
        .write(true)
        .open(&two)
        .unwrap()
        .set_len(0)
        .unwrap();
    fs::File::options()
        .write(true)
        .open(&two)
        .unwrap()
        .set_len(VOLUME_BYTES)
        .unwrap();
    let volume = format(false, &[&two]).unwrap();
    assert_eq!(sizes(&volume), [VOLUME_BYTES]);
}

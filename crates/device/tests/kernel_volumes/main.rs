//! Volumes of every profile made by the kernel. All mirrors of all checksummed data are valid, and the data stays
//! readable after every loss of devices that the profile tolerates.
//!
//! Needs root and the kernel's btrfs; without them the tests are skipped.

mod discards;
mod scrub;

use std::path::PathBuf;

use scrub::Scrub;
use ubtrfs_device::{Access, BlockDevice, DeviceError, FileDevice, Holder, Pool, PoolOptions};
use ubtrfs_sim::fill::{self, Scale};
use ubtrfs_sim::kernel::{self, KernelMount, KernelVolume, LoopDevice, MkfsSpec, Profile};
use ubtrfs_sim::{Rng, Scratch};

/// Creates a volume with this profile for data and metadata, filled and unmounted.
fn filled(profile: Profile, devices: usize) -> KernelVolume {
    let spec = MkfsSpec::new()
        .devices(devices)
        .device_bytes(512 << 20)
        .data(profile)
        .metadata(profile);
    let volume = KernelVolume::make(&spec).unwrap();
    let seed = ubtrfs_sim::seed(&format!("device {profile} {devices}"));
    let mount = volume.mount("commit=1").unwrap();
    fill::hard_cases(mount.path(), &Scale::tiny(), seed).unwrap();
    let large = fill::bytes(
        fill::Kind::Random,
        9_000_001,
        &mut ubtrfs_sim::Rng::new(seed),
    );
    std::fs::write(mount.path().join("large"), large).unwrap();
    mount.unmount().unwrap();
    volume
}

fn without(volume: &KernelVolume, lost: &[usize]) -> Vec<PathBuf> {
    let all = volume.devices().iter().enumerate();
    all.filter(|(index, _)| !lost.contains(index))
        .map(|(_, path)| path.clone())
        .collect()
}

fn check_profile(profile: Profile, devices: usize) {
    let what = format!("{profile} on {devices}");
    if !kernel::or_skip(&what) {
        return;
    }
    let volume = filled(profile, devices);
    let pool = Pool::open(volume.devices(), &PoolOptions::new()).unwrap();
    let whole = Scrub::new(&pool).run();
    pool.check_devices().unwrap();
    let mirrors_seen = whole.mirrors_compared;
    assert!(
        whole.blocks > 20 && whole.sectors > 2000,
        "{what}: {whole:?}"
    );
    assert_eq!(whole.bad, [] as [String; 0], "{what}");
    assert_eq!(whole.unread, [] as [String; 0], "{what}");
    assert_eq!(
        mirrors_seen > 0,
        pool.mirrors(whole.last).unwrap() > 1,
        "{what}"
    );
    assert_eq!(pool.read_error_count(), 0, "{what}");
    drop(pool);

    let can_lose = profile.devices_it_can_lose().min(2);
    for a in 0..devices {
        for b in a..devices {
            let lost = if a == b { vec![a] } else { vec![a, b] };
            if lost.len() > can_lose {
                continue;
            }
            let rest = without(&volume, &lost);
            let strict = Pool::open(&rest, &PoolOptions::new()).unwrap();
            let seen = Scrub::new(&strict).run();
            let error = strict.check_devices().unwrap_err();
            let devid = lost[0] as u64 + 1;
            assert!(
                matches!(error, DeviceError::Missing { devid: missing, .. } if missing.0 == devid),
                "{what}: {error}"
            );
            assert_eq!((seen.blocks, seen.sectors), (whole.blocks, whole.sectors));
            assert_eq!(seen.bad, [] as [String; 0], "{what} without {lost:?}");
            drop(strict);
            let pool = Pool::open(&rest, &PoolOptions::new().degraded(true)).unwrap();
            Scrub::new(&pool).load_chunks();
            pool.check_devices().unwrap();
        }
    }
}

#[test]
fn single() {
    check_profile(Profile::Single, 1);
    check_profile(Profile::Single, 2);
}

#[test]
fn dup() {
    check_profile(Profile::Dup, 1);
}

#[test]
fn raid0() {
    check_profile(Profile::Raid0, 3);
}

#[test]
fn raid1() {
    check_profile(Profile::Raid1, 2);
    check_profile(Profile::Raid1, 3);
}

#[test]
fn raid1c3() {
    check_profile(Profile::Raid1c3, 3);
}

#[test]
fn raid1c4() {
    check_profile(Profile::Raid1c4, 4);
}

#[test]
fn raid10() {
    check_profile(Profile::Raid10, 4);
    check_profile(Profile::Raid10, 5);
}

#[test]
fn raid5() {
    check_profile(Profile::Raid5, 3);
    check_profile(Profile::Raid5, 4);
}

#[test]
fn raid6() {
    check_profile(Profile::Raid6, 4);
    check_profile(Profile::Raid6, 5);
}

#[test]
fn device_that_missed_writes_is_read_around() {
    if !kernel::or_skip("device_that_missed_writes_is_read_around") {
        return;
    }
    let more = fill::bytes(fill::Kind::Random, 2_000_001, &mut Rng::new(1));
    for (profile, devices, stale) in [
        (Profile::Raid1, 2, 0),
        (Profile::Raid10, 4, 1),
        (Profile::Raid5, 3, 2),
        (Profile::Raid6, 4, 0),
    ] {
        let volume = filled(profile, devices);
        let rest = without(&volume, &[stale]);
        let mount = KernelMount::new(&rest, "degraded").unwrap();
        std::fs::write(mount.path().join("large"), &more).unwrap();
        std::fs::write(mount.path().join("new"), &more).unwrap();
        mount.unmount().unwrap();

        let pool = Pool::open(volume.devices(), &PoolOptions::new()).unwrap();
        let seen = Scrub::new(&pool).run();
        pool.check_devices().unwrap();
        assert_ne!(seen.bad, [] as [String; 0], "a device is stale");
        let newest = Some(pool.superblock().generation.get());
        let devices = pool.devices();
        let behind = devices.iter().filter(|device| device.generation != newest);
        let devids: Vec<u64> = behind.map(|device| device.devid.0).collect();
        assert_eq!(devids, [stale as u64 + 1]);
        assert_eq!(pool.unrecovered_count(), 0);
        // Mirrors on this device are read last. Parity stripes have no other location.
        let has_parity = matches!(profile, Profile::Raid5 | Profile::Raid6);
        assert_eq!(pool.read_error_count() > 0, has_parity, "{profile:?}");
    }
}

#[test]
fn discarded_range_of_a_block_device_reads_as_zeros() {
    if !kernel::or_skip("discarded_range_of_a_block_device_reads_as_zeros") {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let image = scratch.file("image", 1 << 20).unwrap();
    std::fs::write(&image, vec![7; 1 << 20]).unwrap();
    let looped = LoopDevice::attach(&image).unwrap();
    let device = FileDevice::open(looped.path(), Access::Write).unwrap();
    assert!(device.is_block());
    assert_eq!(device.len_bytes(), 1 << 20);
    device.discard(4096, 8192).unwrap();
    let mut bytes = vec![1; 1 << 20];
    device.read_at(&mut bytes, 0).unwrap();
    let zeros = bytes.iter().enumerate().filter(|(_, byte)| **byte == 0);
    assert!(zeros.map(|(at, _)| at).eq(4096..4096 + 8192));
    let second = FileDevice::open(looped.path(), Access::Write);
    assert!(matches!(second, Err(DeviceError::InUse { .. })));
}

#[test]
fn image_that_the_kernel_has_mounted_is_readable_and_not_writable() {
    if !kernel::or_skip("image_that_the_kernel_has_mounted_is_readable_and_not_writable") {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("").unwrap();
    let looped = mount.loops()[0].path().to_path_buf();
    let write = PoolOptions::new().access(Access::Write);
    for (path, wanted) in [
        (
            volume.devices()[0].clone(),
            Holder::Loop(looped.display().to_string()),
        ),
        (looped, Holder::Kernel),
    ] {
        let paths = [path];
        match Pool::open(&paths, &write) {
            Err(DeviceError::InUse { holder, .. }) => assert_eq!(holder, wanted),
            other => panic!("{other:?}"),
        }
        let pool = Pool::open(&paths, &PoolOptions::new()).unwrap();
        assert_eq!(pool.devices()[0].holder, Some(wanted));
        assert_eq!(Scrub::new(&pool).run().bad, [] as [String; 0]);
    }
    mount.unmount().unwrap();
    Pool::open(volume.devices(), &write).unwrap();
}

/// Opens a device as in a container, where the path in sysfs does not exist or leads to another file.
#[test]
fn image_that_is_attached_in_another_mount_namespace_is_not_written() {
    if !kernel::or_skip("image_that_is_attached_in_another_mount_namespace_is_not_written") {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let image = &volume.devices()[0];
    let hidden = volume.dir().join("hidden");
    std::fs::create_dir(&hidden).unwrap();
    let script = "mount -t tmpfs none \"$1\" && touch \"$1/image\" && mount --bind \"$2\" \"$1/image\" && losetup -f --show \"$1/image\"";
    let attached = std::process::Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .args([&hidden, image])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&attached.stderr);
    assert!(attached.status.success(), "{said}");
    let device = String::from_utf8(attached.stdout).unwrap();
    let device = device.trim_end();
    let write = PoolOptions::new().access(Access::Write);
    let opened = Pool::open(volume.devices(), &write);
    let detached = std::process::Command::new("losetup")
        .args(["-d", device])
        .status();
    assert!(detached.unwrap().success());
    match opened {
        Err(DeviceError::InUse { holder, .. }) => assert_eq!(holder, Holder::Loop(device.into())),
        other => panic!("{other:?}"),
    }
    Pool::open(volume.devices(), &write).unwrap();
}

#[test]
fn loop_device_beside_which_another_shows_the_same_bytes_is_not_written() {
    if !kernel::or_skip("loop_device_beside_which_another_shows_the_same_bytes_is_not_written") {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let image = &volume.devices()[0];
    let mount = volume.mount("").unwrap();
    let mounted = mount.loops()[0].path().display().to_string();
    let second = LoopDevice::attach(image).unwrap();
    let write = PoolOptions::new().access(Access::Write);
    match Pool::open(&[second.path()], &write) {
        Err(DeviceError::InUse { holder, .. }) => assert_eq!(holder, Holder::Loop(mounted)),
        other => panic!("{other:?}"),
    }
    Pool::open(&[second.path()], &PoolOptions::new()).unwrap();
    mount.unmount().unwrap();
    Pool::open(&[second.path()], &write).unwrap();
}

//! The kernel creates volumes of every kind. The library and the mount must read all of them like the kernel, intact
//! and with the maximum damage that their profile survives.
//!
//! The representative cases always run, and many more with `UBTRFS_SOAK` set.

mod idle;
#[path = "conformance/library.rs"]
mod library;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubtrfs_fs::Volume;
use ubtrfs_fuse::mount::{MountError, Options, Session, UnmountError, mount};
use ubtrfs_sim::fill::Scale;
use ubtrfs_sim::kernel::{self, KernelMount, KernelVolume, MkfsSpec, Profile, or_skip};
use ubtrfs_sim::manifest::{Field, Manifest, assert_same};
use ubtrfs_sim::matrix::{self, Case, Filled};
use ubtrfs_sim::{Rng, Scratch, damage, images, is_root_or_skip, seed};

use self::idle::unmount_once_idle;

/// Fields that differ between the mount and the kernel: inode numbers of nested subvolumes are made unique over the
/// mount.
const MOUNT_DIFFERS: &[Field] = &[Field::Ino];

fn through_mount(volume: &Arc<Volume>, dir: &Path) -> Manifest {
    let dir = dir.join("mnt");
    std::fs::create_dir_all(&dir).unwrap();
    let mut options = Options::default();
    options.add("ro".as_ref()).unwrap();
    let mut session = mount(Arc::clone(volume), Path::new("conformance"), &dir, &options).unwrap();
    let shown = Manifest::of_dir(&dir).unwrap();
    unmount_once_idle(&mut session);
    shown
}

fn assert_reads_like_kernel(what: &str, wanted: &Manifest, devices: &[PathBuf], dir: &Path) {
    let volume = library::open(devices, false).unwrap_or_else(|error| panic!("{what}: {error}"));
    let shown = library::manifest(&volume);
    assert_same(&format!("{what}, library"), wanted, &shown, &[]);
    // Modes prevent access by others than root there.
    if !is_root_or_skip() {
        return;
    }
    let shown = through_mount(&volume, dir);
    assert_same(&format!("{what}, mount"), wanted, &shown, MOUNT_DIFFERS);
    assert_numbers_are_unique(what, &shown);
}

fn assert_filled_reads_like_kernel(what: &str, filled: &Filled) {
    let volume = &filled.volume;
    assert_reads_like_kernel(what, &filled.manifest, volume.devices(), volume.dir());
}

/// Checks that inode numbers are unique in a mount: a number has at most as many names as its file has links.
fn assert_numbers_are_unique(what: &str, shown: &Manifest) {
    let mut names = HashMap::new();
    for entry in &shown.entries {
        *names.entry(entry.stat.ino).or_insert(0) += 1;
    }
    for entry in &shown.entries {
        let path = entry.path.escape_ascii();
        assert!(
            names[&entry.stat.ino] <= entry.stat.nlink,
            "{what}: /{path}"
        );
    }
}

#[test]
fn every_kind_of_volume_reads_like_in_the_kernel() {
    if !or_skip("every_kind_of_volume_reads_like_in_the_kernel") {
        return;
    }
    let seed = seed("every kind of volume");
    let cases = matrix::chosen();
    for (number, case) in cases.iter().enumerate() {
        eprintln!("{} of {}: {case}", number + 1, cases.len());
        let filled = case
            .build(&Scale::tiny(), seed.wrapping_add(number as u64))
            .unwrap();
        assert_filled_reads_like_kernel(&case.to_string(), &filled);
    }
}

#[test]
fn full_scale_volume_reads_like_in_the_kernel() {
    if !or_skip("full_scale_volume_reads_like_in_the_kernel") {
        return;
    }
    let filled = Case::of_profile(Profile::Single)
        .build(&Scale::full(), seed("full scale"))
        .unwrap();
    assert_filled_reads_like_kernel("full scale", &filled);
}

#[test]
fn lost_devices_change_nothing_that_is_read() {
    if !or_skip("lost_devices_change_nothing_that_is_read") {
        return;
    }
    let seed = seed("lost devices");
    for &profile in Profile::ALL {
        let can_lose = profile.devices_it_can_lose();
        if can_lose == 0 {
            continue;
        }
        let filled = Case::of_profile(profile)
            .build(&Scale::tiny(), seed)
            .unwrap();
        let devices = filled.volume.devices();
        // Each device is lost at least once.
        for first in 0..devices.len() {
            let lost: Vec<usize> = (0..can_lose).map(|i| (first + i) % devices.len()).collect();
            let kept: Vec<PathBuf> = (0..devices.len())
                .filter(|number| !lost.contains(number))
                .map(|number| devices[number].clone())
                .collect();
            let what = format!("{profile} without {lost:?}");
            assert!(
                library::open(&kept, false).is_err(),
                "{what} needs degraded"
            );
            let volume = library::open(&kept, true).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_same(&what, &filled.manifest, &library::manifest(&volume), &[]);
        }
    }
}

#[test]
fn damaged_mirror_changes_nothing_that_is_read_and_is_reported() {
    if !or_skip("damaged_mirror_changes_nothing_that_is_read_and_is_reported") {
        return;
    }
    let seed = seed("damaged mirrors");
    for &profile in Profile::ALL {
        let mirrors = match profile {
            Profile::Single | Profile::Raid0 => continue,
            Profile::Raid5 | Profile::Raid6 => profile.min_devices(),
            Profile::Dup => 2,
            _ => profile.devices_it_can_lose() + 1,
        };
        let mut reported = 0;
        for mirror in 0..mirrors {
            let mut rng = Rng::new(seed.wrapping_add(mirror as u64));
            let scale = Scale::tiny().all_summed();
            let filled = Case::of_profile(profile).build(&scale, seed).unwrap();
            let devices = filled.volume.devices();
            let chunks = kernel::chunks(devices).unwrap();
            let mut hit = 0;
            for (devid, ranges) in damage::mirror_ranges(&chunks, mirror) {
                let device = &devices[devid as usize - 1];
                hit += damage::corrupt(device, &ranges, 3, &mut rng).unwrap();
            }
            assert!(hit > 20, "{profile} mirror {mirror}: {hit} sectors hit");
            let what = format!("{profile} with {hit} damaged sectors in mirror {mirror}");
            let volume = library::open(devices, false).unwrap_or_else(|e| panic!("{what}: {e}"));
            let shown = library::manifest(&volume);
            assert_same(&what, &summed(&filled.manifest), &summed(&shown), &[]);
            assert_eq!(volume.pool().unrecovered_count(), 0, "{what}");
            reported += volume.pool().read_error_count();
        }
        assert!(reported > 0, "{profile}: no damage was reported");
    }
}

/// Removes the file without checksums, since nothing shows which of its mirrors is right.
fn summed(manifest: &Manifest) -> Manifest {
    let mut manifest = manifest.clone();
    manifest
        .entries
        .retain(|entry| !entry.path.ends_with(b"/flag-nocow"));
    manifest
}

#[test]
fn default_subvolume_is_what_opening_shows() {
    if !or_skip("default_subvolume_is_what_opening_shows") {
        return;
    }
    let filled = Case::of_profile(Profile::Single)
        .build(&Scale::tiny(), 3)
        .unwrap();
    let mount = filled.volume.mount("").unwrap();
    ubtrfs_sim::fill::set_default_subvolume(&mount.path().join("subvolumes/snap-ro")).unwrap();
    mount.unmount().unwrap();
    let volume = library::open(filled.volume.devices(), false).unwrap();
    let wanted = filled.manifest.below(b"subvolumes/snap-ro");
    assert_same(
        "default subvolume",
        &wanted,
        &library::manifest(&volume),
        &[],
    );
    let shown = through_mount(&volume, filled.volume.dir());
    assert_same("default subvolume, mount", &wanted, &shown, MOUNT_DIFFERS);
}

#[test]
fn kept_images_read_as_the_kernel_showed_them() {
    let names = images::names().unwrap();
    assert!(!names.is_empty(), "tests/images has images");
    for name in names {
        let image = images::image(&name).unwrap();
        let scratch = Scratch::new().unwrap();
        assert_reads_like_kernel(&name, &image.manifest, &image.devices, scratch.path());
    }
}

/// The kernel mounts only volumes that fit its page size. Volumes with other sectors are created by mkfs.btrfs from a
/// folder.
#[test]
fn volumes_of_every_sector_size_read_like_their_source() {
    if !or_skip("volumes_of_every_sector_size_read_like_their_source") {
        return;
    }
    let source = KernelVolume::make(&kernel::MkfsSpec::new()).unwrap();
    let mounted = source.mount("").unwrap();
    ubtrfs_sim::fill::hard_cases(mounted.path(), &Scale::tiny(), seed("sector sizes")).unwrap();
    let scratch = Scratch::new().unwrap();
    for sectorsize in [8192, 16_384, 32_768, 65_536] {
        let image = scratch
            .file(&format!("sector{sectorsize}.img"), 2 << 30)
            .unwrap();
        make_from_folder(&image, sectorsize, mounted.path());
        let volume = library::open(&[image], false).unwrap();
        let wanted = Manifest::of_dir(mounted.path()).unwrap();
        // mkfs.btrfs 6.14 stores only whole seconds of times, and no device numbers.
        let times = [Field::Atime, Field::Mtime, Field::Ctime, Field::Btime];
        let differs = [&times[..], &[Field::Ino, Field::Nlink, Field::Rdev]].concat();
        let what = format!("sectors of {sectorsize}");
        assert_same(&what, &wanted, &library::manifest(&volume), &differs);
    }
}

fn make_from_folder(image: &Path, sectorsize: u32, folder: &Path) {
    let done = std::process::Command::new("mkfs.btrfs")
        .args([
            "-q",
            "-f",
            "-n",
            "65536",
            "-s",
            &sectorsize.to_string(),
            "--rootdir",
        ])
        .args([folder, image])
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
fn volume_that_the_kernel_holds_mounted_reads_the_same() {
    if !or_skip("volume_that_the_kernel_holds_mounted_reads_the_same") {
        return;
    }
    let filled = Case::of_profile(Profile::Single)
        .build(&Scale::tiny(), 5)
        .unwrap();
    let held = KernelMount::new(filled.volume.devices(), "ro").unwrap();
    let volume = library::open(filled.volume.devices(), false).unwrap();
    let shown = library::manifest(&volume);
    assert_same("held by the kernel", &filled.manifest, &shown, &[]);
    drop(held);
}

#[test]
fn a_volume_grown_from_a_seed_reads_like_the_kernel() {
    const TEST: &str = "a_volume_grown_from_a_seed_reads_like_the_kernel";
    if !or_skip(TEST) {
        return;
    }
    let mut volume = KernelVolume::make(&MkfsSpec::default()).unwrap();
    let write = |dir: &Path, from: usize, to: usize| {
        for number in from..to {
            let bytes = vec![number as u8; number * 5000];
            std::fs::write(dir.join(format!("f{number}")), bytes).unwrap();
        }
    };
    let mount = volume.mount("").unwrap();
    write(mount.path(), 0, 30);
    // Enough files that some tree blocks stay on the seed.
    for number in 0..500 {
        std::fs::write(mount.path().join(format!("small{number}")), [b'x'; 300]).unwrap();
    }
    mount.unmount().unwrap();
    let mount = volume.sprout(512 << 20).unwrap();
    write(mount.path(), 25, 40);
    mount.unmount().unwrap();
    let mount = volume.mount_ro().unwrap();
    let wanted = Manifest::of_dir(mount.path()).unwrap();
    mount.unmount().unwrap();
    assert_eq!(wanted.faults, []);
    assert_reads_like_kernel(TEST, &wanted, volume.devices(), volume.dir());
}

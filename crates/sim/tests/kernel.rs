//! The oracle is consistent: the kernel shows its own volume identically twice, and `btrfs check` finds no errors.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ubtrfs_sim::fill::{self, Scale};
use ubtrfs_sim::kernel::{self, Csum, Feature, KernelVolume, MkfsSpec, Profile, or_skip};
use ubtrfs_sim::manifest::{Field, Kind, Manifest, assert_same};
use ubtrfs_sim::matrix::{Case, Features};
use ubtrfs_sim::{Rng, damage, seed};

#[test]
fn kernel_shows_filled_volume_alike_twice_and_check_is_clean() {
    if !or_skip("kernel_shows_filled_volume_alike_twice_and_check_is_clean") {
        return;
    }
    let seed = seed("filled volume");
    let case = Case::of_profile(Profile::Single);
    let filled = case.build(&Scale::small(), seed).unwrap();
    let mount = filled.volume.mount_ro().unwrap();
    let again = Manifest::of_dir(mount.path()).unwrap();
    drop(mount);
    assert_same("second mount", &filled.manifest, &again, &[]);
    filled.volume.check().unwrap();

    let text = filled.manifest.to_string();
    assert_eq!(Manifest::parse(&text).unwrap(), filled.manifest);
    let kinds: BTreeSet<Kind> = again.entries.iter().map(|entry| entry.stat.kind).collect();
    assert_eq!(kinds.len(), 7);
    assert!(
        again
            .entries
            .iter()
            .any(|entry| entry.is_empty_subvolume_dir())
    );
    assert!(again.entries.iter().any(|entry| entry.stat.nlink > 200));
    assert!(
        again
            .entries
            .iter()
            .any(|entry| entry.stat.mtime.seconds < 0)
    );
}

#[test]
fn one_seed_gives_one_content() {
    if !or_skip("one_seed_gives_one_content") {
        return;
    }
    let seed = seed("one seed");
    let case = Case::of_profile(Profile::Single);
    let scale = Scale::tiny();
    let one = case.build(&scale, seed).unwrap();
    let other = case.build(&scale, seed).unwrap();
    let now = [Field::Mtime, Field::Ctime, Field::Atime, Field::Btime];
    assert_same("two volumes", &one.manifest, &other.manifest, &now);
}

#[test]
fn every_profile_is_made_filled_and_clean() {
    if !or_skip("every_profile_is_made_filled_and_clean") {
        return;
    }
    let seed = seed("every profile");
    for &profile in Profile::ALL {
        let filled = Case::of_profile(profile)
            .build(&Scale::tiny(), seed)
            .unwrap();
        assert_eq!(filled.volume.devices().len(), profile.min_devices());
        filled
            .volume
            .check()
            .unwrap_or_else(|error| panic!("{profile}: {error}"));
    }
}

#[test]
fn every_feature_set_is_made_filled_and_clean() {
    if !or_skip("every_feature_set_is_made_filled_and_clean") {
        return;
    }
    let seed = seed("every feature set");
    for features in Features::ALL {
        let case = Case {
            features,
            nodesize: 4096,
            csum: Csum::Xxhash,
            ..Case::of_profile(Profile::Single)
        };
        let filled = case
            .build(&Scale::tiny(), seed)
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        filled
            .volume
            .check()
            .unwrap_or_else(|error| panic!("{case}: {error}"));
    }
}

#[test]
fn features_decide_how_many_links_fit() {
    if !or_skip("features_decide_how_many_links_fit") {
        return;
    }
    let links = |spec: MkfsSpec| {
        let volume = KernelVolume::make(&spec.nodesize(4096)).unwrap();
        let mount = volume.mount("").unwrap();
        fill::hard_cases(mount.path(), &Scale::tiny(), 1)
            .unwrap()
            .hard_links
    };
    assert!(links(MkfsSpec::new()) >= 200);
    assert!(links(MkfsSpec::new().without(Feature::Extref)) < 200);
}

#[test]
fn default_subvolume_is_what_a_plain_mount_shows() {
    if !or_skip("default_subvolume_is_what_a_plain_mount_shows") {
        return;
    }
    let filled = Case::of_profile(Profile::Single)
        .build(&Scale::tiny(), 3)
        .unwrap();
    let mount = filled.volume.mount("").unwrap();
    fill::set_default_subvolume(&mount.path().join("subvolumes/snap-ro")).unwrap();
    mount.unmount().unwrap();
    let mount = filled.volume.mount_ro().unwrap();
    let shown = Manifest::of_dir(mount.path()).unwrap();
    let wanted = filled.manifest.below(b"subvolumes/snap-ro");
    assert_same("default subvolume", &wanted, &shown, &[]);
}

#[test]
fn kernel_reads_past_a_damaged_mirror() {
    if !or_skip("kernel_reads_past_a_damaged_mirror") {
        return;
    }
    let seed = seed("damaged mirror");
    let mut rng = Rng::new(seed);
    for profile in [
        Profile::Dup,
        Profile::Raid1,
        Profile::Raid10,
        Profile::Raid5,
    ] {
        let filled = Case::of_profile(profile)
            .build(&Scale::tiny().all_summed(), seed)
            .unwrap();
        let devices = filled.volume.devices();
        let chunks = kernel::chunks(devices).unwrap();
        let mut hit = 0;
        for (devid, ranges) in damage::mirror_ranges(&chunks, 1) {
            let device = &devices[devid as usize - 1];
            hit += damage::corrupt(device, &ranges, 3, &mut rng).unwrap();
        }
        assert!(hit > 20, "{profile}: {hit} sectors");
        let mount = filled.volume.mount_ro().unwrap();
        let shown = Manifest::of_dir(mount.path()).unwrap();
        assert_same(profile.name(), &filled.manifest, &shown, &[]);
    }
}

#[test]
fn kernel_reads_without_the_devices_that_a_profile_can_lose() {
    if !or_skip("kernel_reads_without_the_devices_that_a_profile_can_lose") {
        return;
    }
    let seed = seed("lost devices");
    for profile in [Profile::Raid1c3, Profile::Raid6] {
        let filled = Case::of_profile(profile)
            .build(&Scale::tiny(), seed)
            .unwrap();
        let kept: Vec<PathBuf> = filled.volume.devices()[profile.devices_it_can_lose()..].to_vec();
        let mount = kernel::KernelMount::new(&kept, "ro,degraded").unwrap();
        let shown = Manifest::of_dir(mount.path()).unwrap();
        assert_same(profile.name(), &filled.manifest, &shown, &[]);
    }
}

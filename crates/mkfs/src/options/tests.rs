//! Defaults and limits, with the numbers that mkfs.btrfs 6.14 printed.

use super::*;

fn profiles(data: Profile, metadata: Profile) -> MkfsOptions {
    MkfsOptions {
        data: Some(data),
        metadata: Some(metadata),
        ..MkfsOptions::default()
    }
}

fn mixed() -> MkfsOptions {
    let mut options = MkfsOptions::default();
    options.features.incompat |= Incompat::MIXED_GROUPS;
    options
}

#[test]
fn metadata_is_kept_twice_by_default() {
    let by_devices = |devices| MkfsOptions::default().resolve(devices).unwrap().metadata;
    assert_eq!(by_devices(1), Profile::Dup);
    assert_eq!(by_devices(2), Profile::Raid1);
    assert_eq!(mixed().resolve(1).unwrap().metadata, Profile::Single);
}

#[test]
fn smallest_devices_are_those_of_mkfs_btrfs() {
    use Profile::{Dup, Raid0, Raid1, Raid6, Single};
    for (data, metadata, devices, mib) in [
        (Single, Dup, 1, 109),
        (Single, Single, 1, 45),
        (Dup, Dup, 1, 229),
        (Raid0, Raid0, 1, 125),
        (Single, Raid1, 2, 69),
        (Raid6, Raid6, 3, 125),
    ] {
        let geometry = profiles(data, metadata).resolve(devices).unwrap();
        assert_eq!(
            geometry.min_device_bytes(),
            mib << 20,
            "{data:?} {metadata:?}"
        );
    }
    assert_eq!(mixed().resolve(1).unwrap().min_device_bytes(), 16 << 20);
}

#[test]
fn node_and_sector_sizes_have_limits() {
    let resolve = |nodesize, sectorsize| {
        let options = MkfsOptions {
            nodesize,
            sectorsize,
            ..MkfsOptions::default()
        };
        options.resolve(1).map(|geometry| geometry.nodesize)
    };
    assert_eq!(resolve(None, 4096).unwrap(), 16384);
    assert_eq!(resolve(None, 65536).unwrap(), 65536);
    assert_eq!(resolve(Some(4096), 4096).unwrap(), 4096);
    for (nodesize, sectorsize) in [
        (None, 2048),
        (None, 131_072),
        (None, 12288),
        (Some(4096), 8192),
        (Some(6000), 4096),
        (Some(12288), 4096),
        (Some(131_072), 4096),
    ] {
        assert!(
            resolve(nodesize, sectorsize).is_err(),
            "{nodesize:?} {sectorsize}"
        );
    }
    let mut mixed = mixed();
    mixed.nodesize = Some(16384);
    assert!(mixed.resolve(1).is_err());
}

#[test]
fn profile_needs_its_devices() {
    for profile in Profile::ALL {
        let need = profile.min_devices();
        let options = profiles(profile, profile);
        assert!(options.resolve(need).is_ok(), "{profile:?}");
        if need > 1 {
            assert!(options.resolve(need - 1).is_err(), "{profile:?}");
        }
    }
}

#[test]
fn mixed_groups_have_one_profile() {
    let mut options = mixed();
    options.metadata = Some(Profile::Dup);
    assert!(matches!(options.resolve(1), Err(MkfsError::MixedProfiles)));
}

#[test]
fn label_leaves_room_for_its_end() {
    let with_len = |len| {
        let options = MkfsOptions {
            label: vec![b'x'; len],
            ..MkfsOptions::default()
        };
        options.resolve(1).is_ok()
    };
    assert!(with_len(255) && !with_len(256));
}

#[test]
fn features_follow_from_profiles_and_sizes() {
    let geometry = profiles(Profile::Raid5, Profile::Raid1c3)
        .resolve(3)
        .unwrap();
    let incompat = geometry.features.incompat;
    assert!(incompat.contains(Incompat::RAID56 | Incompat::RAID1C34 | Incompat::BIG_METADATA));
    let small = MkfsOptions {
        nodesize: Some(4096),
        ..MkfsOptions::default()
    };
    let incompat = small.resolve(1).unwrap().features.incompat;
    assert!(!incompat.intersects(Incompat::RAID56 | Incompat::BIG_METADATA));
}

#[test]
fn doubtful_choices_are_warned_of() {
    let warnings = |data, metadata, devices| {
        let geometry = profiles(data, metadata).resolve(devices).unwrap();
        geometry.warnings()
    };
    assert!(warnings(Profile::Single, Profile::Raid1, 2).is_empty());
    assert_eq!(
        warnings(Profile::Raid1, Profile::Dup, 2),
        [Warning::DupOnManyDevices, Warning::MetadataLessRedundant]
    );
    assert_eq!(
        warnings(Profile::Raid6, Profile::Raid1c3, 3),
        [
            Warning::Raid56,
            Warning::ParityOnFewDevices {
                profile: "RAID6",
                devices: 3
            }
        ]
    );
}

//! Volumes that may be read and not written: each is refused by name, and read nevertheless.

use std::fs::File;
use std::sync::{Arc, LazyLock};
use std::time::UNIX_EPOCH;

use ubtrfs_device::BlockDevice;
use ubtrfs_engine::{OpenOptions, Result, Volume};
use ubtrfs_format::features::{CompatRo, Incompat};
use ubtrfs_format::superblock::{Superblock, flags};
use ubtrfs_sim::craft::Crafted;
use ubtrfs_sim::images;
use ubtrfs_sim::kernel::{Feature, KernelVolume, MkfsSpec, Profile, or_skip};

fn opened(open: impl Fn(&OpenOptions) -> Result<Arc<Volume>>, writable: bool) -> Result<()> {
    let options = OpenOptions::new()
        .writable(writable)
        .commit_interval(None)
        .cache_bytes(1 << 20);
    let volume = open(&options)?;
    volume.root_dir(volume.default_subvolume()?).map(drop)
}

/// What opening for writing says; reading must work.
fn refusal(open: impl Fn(&OpenOptions) -> Result<Arc<Volume>>) -> String {
    opened(&open, false).unwrap();
    let refused = opened(&open, true).unwrap_err();
    assert!(refused.is_unwritable(), "{refused:?}");
    refused.to_string()
}

fn open(volume: &Crafted, options: &OpenOptions) -> Result<Arc<Volume>> {
    let devices = volume.devices().into_iter();
    let devices = devices
        .map(|(path, device)| (path, device as Arc<dyn BlockDevice>))
        .collect();
    Volume::from_devices(devices, options)
}

/// A volume that is sound but for what `edit` did to its superblocks.
fn edited(edit: impl Fn(&mut Superblock)) -> Crafted {
    static SOUND: LazyLock<Crafted> =
        LazyLock::new(|| Crafted::load(&images::image("crc32c-zstd").unwrap().devices));
    let mut volume = SOUND.clone();
    volume.edit_superblocks(|_, _| true, edit);
    volume
}

/// Volumes that have one more feature than usual: each bit that `supported` lacks.
fn with_unknown(
    supported: u64,
    add: impl Fn(&mut Superblock, u64),
) -> impl Iterator<Item = (u64, Crafted)> {
    let bits = (0..64).map(|shift| 1 << shift);
    let unknown = bits.filter(move |bit| supported & bit == 0);
    unknown.map(move |bit| (bit, edited(|superblock| add(superblock, bit))))
}

fn refusal_of(edit: impl Fn(&mut Superblock)) -> String {
    let volume = edited(edit);
    refusal(|options| open(&volume, options))
}

#[test]
fn sound_volume_is_written() {
    let volume = edited(|_| {});
    opened(|options| open(&volume, options), true).unwrap();
}

#[test]
fn log_tree_that_waits_for_replay() {
    let said = refusal_of(|superblock| superblock.log_root = superblock.root);
    assert!(said.contains("log tree"), "{said}");
}

#[test]
fn dumps_of_metadata() {
    for flag in [flags::METADUMP, flags::METADUMP_V2] {
        let said =
            refusal_of(|superblock| superblock.flags = (superblock.flags.get() | flag).into());
        assert!(said.contains("dump of metadata"), "{said}");
    }
}

#[test]
fn conversions_that_were_broken_off() {
    for flag in [
        flags::CHANGING_FSID,
        flags::CHANGING_FSID_V2,
        flags::CHANGING_BG_TREE,
        flags::CHANGING_DATA_CSUM,
        flags::CHANGING_META_CSUM,
    ] {
        let said =
            refusal_of(|superblock| superblock.flags = (superblock.flags.get() | flag).into());
        assert!(said.contains("conversion"), "{said}");
    }
}

#[test]
fn seeds() {
    let said = refusal_of(|superblock| {
        superblock.flags = (superblock.flags.get() | flags::SEEDING).into()
    });
    assert!(said.contains("seed"), "{said}");
}

/// Whoever does not know such a feature may read.
#[test]
fn unknown_features_that_bind_writers() {
    let add = |superblock: &mut Superblock, bit: u64| {
        superblock.compat_ro_flags = (superblock.compat_ro_flags.get() | bit).into();
    };
    for (bit, volume) in with_unknown(CompatRo::SUPPORTED.bits(), add) {
        let said = refusal(|options| open(&volume, options));
        let name = format!("it uses unknown feature bit {bit:#x}");
        assert!(said.ends_with(&name), "{said}");
    }
}

#[test]
fn features_without_which_nothing_can_be_read() {
    const NAMED: [(Incompat, &str); 4] = [
        (Incompat::ZONED, "zoned"),
        (Incompat::EXTENT_TREE_V2, "extent-tree-v2"),
        (Incompat::RAID_STRIPE_TREE, "raid-stripe-tree"),
        (Incompat::REMAP_TREE, "remap-tree"),
    ];
    let add = |superblock: &mut Superblock, bit: u64| {
        superblock.incompat_flags = (superblock.incompat_flags.get() | bit).into();
    };
    for (bit, volume) in with_unknown(Incompat::SUPPORTED.bits(), add) {
        let named = NAMED.iter().find(|(named, _)| named.bits() == bit);
        let name = named.map_or_else(
            || format!("unknown feature bit {bit:#x}"),
            |(_, name)| (*name).to_owned(),
        );
        for writable in [false, true] {
            let refused = opened(|options| open(&volume, options), writable).unwrap_err();
            let said = refused.to_string();
            assert!(said.contains(&name), "{name}: {said}");
        }
    }
}

#[test]
fn profiles_with_parity() {
    let image = images::image("raid5").unwrap();
    let said = refusal(|options| Volume::open(&image.devices, options));
    assert!(said.ends_with("is RAID5, which is only read"), "{said}");
}

/// Whoever is refused has written nothing.
#[test]
fn volumes_of_the_kernel() {
    if !or_skip("volumes_of_the_kernel") {
        return;
    }
    let of = |data: Profile, metadata: Profile| {
        let devices = data.min_devices().max(metadata.min_devices());
        MkfsSpec::new()
            .devices(devices)
            .data(data)
            .metadata(metadata)
    };
    let cases = [
        (of(Profile::Raid5, Profile::Raid1), "RAID5"),
        (of(Profile::Raid1, Profile::Raid5), "RAID5"),
        (of(Profile::Raid6, Profile::Raid1), "RAID6"),
        (of(Profile::Raid1, Profile::Raid6), "RAID6"),
        (MkfsSpec::new().with(Feature::Squota), "squota"),
    ];
    for (spec, name) in cases {
        let volume = KernelVolume::make(&spec).unwrap();
        for device in volume.devices() {
            let file = File::options().write(true).open(device).unwrap();
            file.set_modified(UNIX_EPOCH).unwrap();
        }
        let said = refusal(|options| Volume::open(volume.devices(), options));
        assert!(said.contains(name), "{said}");
        for device in volume.devices() {
            let modified = device.metadata().unwrap().modified().unwrap();
            assert_eq!(modified, UNIX_EPOCH, "{name}");
        }
    }
}

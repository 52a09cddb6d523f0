//! Volumes that can be read but not written: each is refused with its reason, and is still readable.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::UNIX_EPOCH;

use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::features::{CompatRo, Incompat};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::DevItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::maker::{MARKS, Place};
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, flags};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::{NewInode, OpenOptions, Result, Volume};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::craft::Crafted;
use ubtrfs_sim::images;
use ubtrfs_sim::kernel::{Feature, KernelVolume, MkfsSpec, Profile, or_skip};
use ubtrfs_sim::new_volume;
use zerocopy::{FromBytes, IntoBytes};

fn opened(open: impl Fn(&OpenOptions) -> Result<Arc<Volume>>, writable: bool) -> Result<()> {
    let options = OpenOptions::new()
        .writable(writable)
        .commit_interval(None)
        .cache_bytes(1 << 20);
    let volume = open(&options)?;
    volume.root_dir(volume.default_subvolume()?).map(drop)
}

/// Returns the error of opening for writing, and asserts that reading works.
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

/// Creates a volume that is sound except for `edit` of its superblocks.
fn edited(edit: impl Fn(&mut Superblock)) -> Crafted {
    static SOUND: LazyLock<Crafted> =
        LazyLock::new(|| Crafted::load(&images::image("crc32c-zstd").unwrap().devices));
    let mut volume = SOUND.clone();
    volume.edit_superblocks(|_, _| true, edit);
    volume
}

/// Creates volumes with one unknown feature each: every bit that is not in `supported`.
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

/// The kernel does not find such a tree. It crashes when it looks for the checksum tree.
#[test]
fn trees_whose_root_items_are_not_at_offset_0() {
    for tree in [
        RootId::EXTENT_TREE,
        RootId::DEV_TREE,
        RootId::CSUM_TREE,
        RootId::FREE_SPACE_TREE,
        RootId::UUID_TREE,
    ] {
        let mut volume = edited(|_| {});
        volume.edit_leaves(RootId::ROOT_TREE, |items| {
            let is_it = |key: &Key| (key.objectid, key.item_type) == (tree.0, KeyType::ROOT_ITEM);
            let found = items.iter_mut().find(|(key, _)| is_it(key));
            found.map(|(key, _)| key.offset = 7).is_some()
        });
        let said = refusal(|options| open(&volume, options));
        assert!(
            said.contains(&format!("tree {tree} is at offset 7")),
            "{said}"
        );
    }
}

#[test]
fn device_item_of_another_file_system() {
    let mut volume = edited(|_| {});
    volume.edit_leaves(RootId::CHUNK_TREE, |items| {
        let is_item = |key: &Key| key.item_type == KeyType::DEV_ITEM;
        let found = items.iter_mut().find(|(key, _)| is_item(key));
        let item = found.map(|(_, bytes)| DevItem::mut_from_bytes(bytes).unwrap());
        item.map(|item| item.fsid = Uuid([7; 16])).is_some()
    });
    let said = refusal(|options| open(&volume, options));
    assert!(said.contains("names file system 07070707"), "{said}");
}

/// A program that does not know such a feature may read.
#[test]
fn unknown_features_that_bind_writers() {
    let add = |superblock: &mut Superblock, bit: u64| {
        superblock.compat_ro_flags = (superblock.compat_ro_flags.get() | bit).into();
    };
    for (bit, volume) in with_unknown(CompatRo::SUPPORTED.bits(), add) {
        let said = refusal(|options| open(&volume, options));
        let is_mark = MARKS.iter().any(|mark| mark.place == Place::CompatRo(bit));
        let name = if is_mark {
            format!("compat_ro feature {bit:#x}")
        } else {
            format!("it uses unknown feature bit {bit:#x}")
        };
        assert!(said.contains(&name), "{said}");
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

/// Changes a field in the superblock of a device file, in all copies or in the first.
fn edit_file(path: &Path, edit: &dyn Fn(&mut Superblock)) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    for offset in &SUPERBLOCK_OFFSETS[..2] {
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        file.read_exact_at(&mut bytes, *offset).unwrap();
        let superblock = Superblock::mut_from_bytes(&mut bytes).unwrap();
        edit(superblock);
        if superblock.csum_type.get() == 0 {
            superblock.seal();
        }
        file.write_all_at(superblock.as_bytes(), *offset).unwrap();
    }
}

type Edit = (&'static str, fn(&mut Superblock));

/// Each with the kernel's verdict, which validates the test: whether it mounts for writing.
const FIELDS: [(bool, Edit); 27] = [
    (true, ("nothing", |_| {})),
    (false, ("magic", |sb| sb.magic[0] ^= 1)),
    (false, ("csum", |sb| sb.csum_type = 9.into())),
    (false, ("fsid", |sb| sb.fsid.0[0] ^= 1)),
    (false, ("bytenr", |sb| sb.bytenr = (1 << 20).into())),
    (false, ("flags", |sb| sb.flags = (1 << 20).into())),
    (
        false,
        ("generation", |sb| {
            sb.generation = (sb.generation.get() + 5).into();
        }),
    ),
    (
        false,
        ("chunk root generation", |sb| {
            sb.chunk_root_generation = 1000.into();
        }),
    ),
    (false, ("root", |sb| sb.root = (sb.root.get() + 512).into())),
    (false, ("root level", |sb| sb.root_level = 8)),
    (false, ("chunk root level", |sb| sb.chunk_root_level = 8)),
    (
        false,
        ("total_bytes", |sb| {
            sb.total_bytes = (sb.total_bytes.get() - 4096).into();
        }),
    ),
    (false, ("no total_bytes", |sb| sb.total_bytes = 0.into())),
    (
        true,
        ("more total_bytes", |sb| {
            sb.total_bytes = (sb.total_bytes.get() + 4096).into();
        }),
    ),
    (false, ("bytes_used", |sb| sb.bytes_used = 0.into())),
    (false, ("num_devices", |sb| sb.num_devices = 0.into())),
    (true, ("more num_devices", |sb| sb.num_devices = 2.into())),
    (false, ("sectorsize", |sb| sb.sectorsize = 8192.into())),
    (false, ("nodesize", |sb| sb.nodesize = 8192.into())),
    (false, ("leafsize", |sb| sb.unused_leafsize = 4096.into())),
    (false, ("stripesize", |sb| sb.stripesize = 3000.into())),
    (true, ("other stripesize", |sb| sb.stripesize = 8192.into())),
    (
        false,
        ("no system chunks", |sb| sb.sys_chunk_array_size = 0.into()),
    ),
    (
        false,
        ("system chunks", |sb| {
            sb.sys_chunk_array_size = (sb.sys_chunk_array_size.get() + 16).into();
        }),
    ),
    (
        false,
        ("length of a system chunk", |sb| sb.sys_chunk_array[17] = 1),
    ),
    (false, ("devid", |sb| sb.dev_item.devid = 2.into())),
    (false, ("device uuid", |sb| sb.dev_item.uuid.0[0] ^= 1)),
];

#[test]
fn superblock_that_the_kernel_refuses_is_refused() {
    if !or_skip("superblock_that_the_kernel_refuses_is_refused") {
        return;
    }
    let spec = MkfsSpec::new().device_bytes(256 << 20);
    for (is_mounted, (field, edit)) in FIELDS {
        // One volume for each, because the kernel remembers devices by fsid.
        let [one, other] = [(); 2].map(|()| {
            let volume = KernelVolume::make(&spec).unwrap();
            edit_file(&volume.devices()[0], &edit);
            volume
        });
        let ours = opened(|options| Volume::open(one.devices(), options), true);
        assert_eq!(ours.is_ok(), is_mounted, "{field}: {ours:?}");
        let kernels = other.mount("");
        assert_eq!(kernels.is_ok(), is_mounted, "{field}: {kernels:?}");
    }
}

/// COMMIT-5
#[test]
fn device_that_lost_its_volume_meanwhile_is_not_committed_to() {
    let mut options = MkfsOptions::default();
    options.features.apply_list("^block-group-tree").unwrap();
    let len_bytes = 256 << 20;
    let device = Arc::new(new_volume(&options, len_bytes));
    let devices = vec![("memory".into(), device.clone() as Arc<dyn BlockDevice>)];
    let options = OpenOptions::new().writable(true).commit_interval(None);
    let volume = Volume::from_devices(devices, &options).unwrap();
    let top = volume
        .root_dir(volume.default_subvolume().unwrap())
        .unwrap();
    let new = NewInode::file(0o644);
    volume.create(top, b"first", &new).unwrap();
    volume.sync().unwrap();
    volume.create(top, b"lost", &new).unwrap();

    device
        .write_at(&[0; SUPERBLOCK_SIZE], SUPERBLOCK_OFFSETS[0])
        .unwrap();
    device.write_at(b"XFSB", 0).unwrap();
    let content = |device: &MemDevice| {
        let mut bytes = vec![0; len_bytes as usize];
        device.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let before = content(&device);
    let error = volume.sync().unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
    assert!(volume.create(top, b"more", &new).is_err());
    assert!(volume.close().is_err());
    drop(volume);
    assert!(content(&device) == before);
}

#[test]
fn profiles_with_parity() {
    let image = images::image("raid5").unwrap();
    let said = refusal(|options| Volume::open(&image.devices, options));
    assert!(said.ends_with("is RAID5, which is only read"), "{said}");
}

/// A refused open writes nothing.
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

//! Filling as a library: devices that do not grow, that fail, and that are read back by our own reader.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use ubtrfs_device::{BlockDevice, CopyChoice, DeviceSuperblocks, MemDevice};
use ubtrfs_engine::OpenOptions;
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_mkfs::archive::OwnerNames;
use ubtrfs_mkfs::{
    FillError, FillOptions, FilledVolume, Growth, Identity, Input, MkfsOptions, Scratch, TimeRule,
    fill,
};

use crate::cases::{MIB, identity, open};
use crate::failing::Failing;

fn fill_options(growth: Growth) -> FillOptions {
    FillOptions {
        compression: None,
        subvolumes: Vec::new(),
        flags: Vec::new(),
        reflink: false,
        shrink: false,
        growth,
        times: TimeRule::Keep,
        scratch: Scratch::new(std::env::temp_dir()),
        targets: Vec::new(),
        discard: true,
        owners: OwnerNames::default(),
    }
}

/// Creates a folder of a few files and `mib` of data.
fn folder(mib: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("sub/small"), "small").unwrap();
    for number in 0..mib {
        let data: Vec<u8> = (0..MIB as usize)
            .map(|at| (at * 7 + number) as u8)
            .collect();
        fs::write(dir.path().join(format!("data-{number}")), data).unwrap();
    }
    dir
}

fn run(
    devices: &[&dyn BlockDevice],
    identity: &Identity,
    source: &Path,
    options: &FillOptions,
    profile: Profile,
) -> Result<FilledVolume, FillError> {
    let mkfs_options = MkfsOptions {
        data: Some(profile),
        metadata: Some(profile),
        ..MkfsOptions::default()
    };
    let sized: Vec<(&dyn BlockDevice, u64)> = devices
        .iter()
        .map(|device| (*device, device.len_bytes()))
        .collect();
    let input = Input::Folder(PathBuf::from(source));
    fill(&mkfs_options, identity, &sized, input, options)
}

#[test]
fn every_profile_reads_back_from_memory() {
    let source = folder(20);
    for profile in Profile::ALL {
        let count = profile.min_devices() + 1;
        let devices: Vec<_> = (0..count)
            .map(|_| Arc::new(MemDevice::new(300 * MIB)))
            .collect();
        let borrowed: Vec<&dyn BlockDevice> = devices
            .iter()
            .map(|device| device.as_ref() as &dyn BlockDevice)
            .collect();
        let options = fill_options(Growth::Never);
        let made = run(
            &borrowed,
            &identity(count),
            source.path(),
            &options,
            profile,
        );
        if profile.parities() > 0 {
            assert!(matches!(made, Err(FillError::Parity { .. })));
            continue;
        }
        let made = made.unwrap();
        assert_eq!((made.stats.files, made.stats.directories), (21, 2));
        assert_eq!(made.stats.data_bytes, 20 * MIB);
        let volume = open(&devices, &OpenOptions::new());
        let root = volume
            .root_dir(volume.default_subvolume().unwrap())
            .unwrap();
        for number in 0..20 {
            let name = format!("data-{number}");
            let file = volume.lookup(root, name.as_bytes()).unwrap().unwrap();
            let mut data = vec![0; MIB as usize];
            assert_eq!(volume.read(file, 0, &mut data).unwrap(), data.len());
            assert!(
                data == fs::read(source.path().join(&name)).unwrap(),
                "{profile:?}"
            );
        }
    }
}

#[test]
fn device_grows_only_if_it_may() {
    let source = folder(200);
    let sizes = [
        (Growth::Never, 150),
        (Growth::IfNeeded, 150),
        (Growth::Freely, 150),
    ];
    for (growth, mib) in sizes {
        let device = MemDevice::new(mib * MIB);
        let options = fill_options(growth);
        let made = run(
            &[&device],
            &identity(1),
            source.path(),
            &options,
            Profile::Single,
        );
        match growth {
            Growth::Never => {
                let Err(FillError::NoSpace { needed, available }) = made else {
                    panic!("{made:?}");
                };
                assert_eq!(available, 150 * MIB);
                assert!(needed > 200 * MIB && needed < 260 * MIB, "{needed}");
                // Nothing looks like a volume.
                assert!(DeviceSuperblocks::read(&device).best().is_none());
                let enough = MemDevice::new(needed);
                run(
                    &[&enough],
                    &identity(1),
                    source.path(),
                    &options,
                    Profile::Single,
                )
                .unwrap();
            }
            _ => {
                let total = made.unwrap().layout.total_bytes;
                assert!(total > 200 * MIB && device.len_bytes() == total, "{total}");
            }
        }
    }
}

/// Returns the volume that a device is taken for.
fn volume_on(device: &MemDevice) -> Option<Uuid> {
    let superblocks = DeviceSuperblocks::read(device);
    let superblock = superblocks.require(device, Path::new("device"), CopyChoice::First);
    superblock.ok().map(|superblock| superblock.fsid)
}

#[test]
fn run_that_fails_leaves_no_volume() {
    let source = folder(12);
    let options = fill_options(Growth::Never);
    let mut writes = 0;
    loop {
        let device = MemDevice::new(300 * MIB);
        let old = run(
            &[&device],
            &identity(1),
            source.path(),
            &options,
            Profile::Dup,
        )
        .unwrap();
        drop(old);
        let before = volume_on(&device);
        let failing = Failing {
            device: &device,
            left: AtomicUsize::new(writes),
        };
        let identity = identity(1);
        let made = run(
            &[&failing],
            &identity,
            source.path(),
            &options,
            Profile::Dup,
        );
        let found = volume_on(&device);
        if made.is_ok() {
            assert_eq!(found, Some(identity.fsid));
            break;
        }
        // The old one whole, or none, or, with the trees in place, the new.
        match writes {
            0 => assert_eq!(found, before),
            _ => assert!(found.is_none() || found == Some(identity.fsid), "{writes}"),
        }
        if found == Some(identity.fsid) {
            let volume = open(&[Arc::new(device)], &OpenOptions::new());
            volume
                .root_dir(volume.default_subvolume().unwrap())
                .unwrap();
        }
        writes += 1;
    }
    assert!(writes > 8, "{writes}");
}

#[test]
fn budget_does_not_show() {
    let source = folder(5);
    for number in 0..3000 {
        let path = source.path().join(format!("sub/many-{number}"));
        fs::write(path, vec![b'm'; number % 700]).unwrap();
    }
    let identity = identity(1);
    let mut images = Vec::new();
    for memory_bytes in [0, 100_000, 2_000_000, 1 << 30] {
        let device = MemDevice::new(300 * MIB);
        let mut options = fill_options(Growth::Never);
        options.scratch.memory_bytes = memory_bytes;
        run(
            &[&device],
            &identity,
            source.path(),
            &options,
            Profile::Single,
        )
        .unwrap();
        let mut image = vec![0; 300 << 20];
        device.read_at(&mut image, 0).unwrap();
        images.push(image);
    }
    assert!(images.windows(2).all(|pair| pair[0] == pair[1]));
}

//! The fill library: devices that do not grow, devices that fail, and reading back with our own reader.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use ubtrfs_device::progress::{Event, Progress};
use ubtrfs_device::{BlockDevice, CopyChoice, DeviceSuperblocks, MemDevice};
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::OpenOptions;
use ubtrfs_mkfs::{
    ArchiveReader, FillError, FillOptions, FilledVolume, Growth, Identity, Input, MkfsError,
    MkfsOptions, Scratch, fill,
};
use ubtrfs_spill::ScratchDir;

use crate::cases::{MIB, identity, open};
use crate::failing::Failing;

fn fill_options(growth: Growth) -> FillOptions {
    FillOptions {
        growth,
        scratch: Scratch::new(ScratchDir::named(std::env::temp_dir())),
        discard: true,
        ..FillOptions::default()
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
    fill(&mkfs_options, identity, &sized, input, options, &mut ())
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
                // Nothing on the device is recognized as a volume.
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

/// Returns the fsid of the volume recognized on a device.
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
        // The complete old volume, or none, or, after all trees are written, the new one.
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

/// Cancels a fill at an event, and counts the events.
#[derive(Debug, Default)]
struct Counting {
    events: usize,
    end_at: Option<usize>,
    paths: Vec<PathBuf>,
    bytes: u64,
}

impl Progress for Counting {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Begin { path } => self.paths.push(path.to_path_buf()),
            Event::Advance { bytes } => self.bytes += bytes,
            _ => {}
        }
        self.events += 1;
        if Some(self.events) == self.end_at {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Fills a device, and returns the result with the events.
fn observed(
    device: &MemDevice,
    input: Input,
    end_at: Option<usize>,
) -> (Result<FilledVolume, FillError>, Counting) {
    let mut observer = Counting {
        end_at,
        ..Counting::default()
    };
    let sized: [(&dyn BlockDevice, u64); 1] = [(device, device.len_bytes())];
    let mkfs_options = MkfsOptions::default();
    let options = fill_options(Growth::Never);
    let made = fill(
        &mkfs_options,
        &identity(1),
        &sized,
        input,
        &options,
        &mut observer,
    );
    (made, observer)
}

#[test]
fn progress_has_each_file_and_can_cancel_the_fill_at_each_event() {
    let source = folder(3);
    fs::write(source.path().join("zeros"), vec![0; MIB as usize]).unwrap();
    // Enough items for several events during the building of the trees.
    for number in 0..1200 {
        fs::write(source.path().join(format!("sub/empty-{number}")), "").unwrap();
    }
    let archive_dir = tempfile::tempdir().unwrap();
    let archive_path = archive_dir.path().join("v.tar");
    let mut archive = tar::Builder::new(File::create(&archive_path).unwrap());
    // Not in the order of names, so that data from a pipe must be placed again.
    for name in ["zeros", "data-2", "data-0", "data-1"] {
        archive
            .append_path_with_name(source.path().join(name), name)
            .unwrap();
    }
    archive
        .append_dir_all("sub", source.path().join("sub"))
        .unwrap();
    archive.finish().unwrap();
    let folder = || Input::Folder(source.path().to_owned());
    let archive = || Input::Archive(File::open(&archive_path).unwrap());
    let stream = || Input::Reader(ArchiveReader(Box::new(File::open(&archive_path).unwrap())));
    let inputs: [(&str, &dyn Fn() -> Input); 3] = [
        ("folder", &folder),
        ("archive", &archive),
        ("stream", &stream),
    ];
    for (kind, input) in inputs {
        let device = MemDevice::new(300 * MIB);
        let (made, heard) = observed(&device, input(), None);
        let stats = made.unwrap().stats;
        let count = u64::try_from(heard.paths.len()).unwrap();
        // A stream reports each member as it is read, and has no member for the root.
        let met = stats.directories + stats.files - u64::from(kind == "stream");
        assert_eq!(count, met, "{kind}");
        let paths: BTreeSet<&PathBuf> = heard.paths.iter().collect();
        assert_eq!(paths.len(), heard.paths.len(), "{kind}");
        assert!(paths.contains(&PathBuf::from("sub/small")), "{kind}");
        // Zeros count only if they are read as data.
        assert!(
            heard.bytes >= 3 * MIB + 5 && heard.bytes <= 4 * MIB + 5,
            "{kind}"
        );
        assert!(
            heard.events > heard.paths.len() + 5,
            "{kind}: {}",
            heard.events
        );

        let near_the_end = heard.events - 8..=heard.events;
        let at = (1..heard.events).step_by(199).chain(near_the_end);
        for end_at in at {
            let device = MemDevice::new(300 * MIB);
            let (made, again) = observed(&device, input(), Some(end_at));
            let error = made.unwrap_err();
            let is_cancelled = matches!(error, FillError::Mkfs(MkfsError::Cancelled(_)));
            assert!(is_cancelled, "{kind} {end_at}: {error}");
            assert_eq!(again.events, end_at, "{kind}: an event followed");
            assert_eq!(volume_on(&device), None, "{kind} {end_at}");
        }
    }
}

//! Power cuts of a volume with logs: synced data survives.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check_devices};
use ubtrfs_device::{BlockDevice, CopyChoice, DeviceSuperblocks, MemDevice, write_superblocks};
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{Error, Fallocate, NewInode, OpenOptions, SetAttr, Volume};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::new_volume_on;
use ubtrfs_sim::record::{CrashPlan, CrashState, Event, Recorder};

use crate::written::pattern;

const VERSIONS: u8 = 12;
const FILE_BYTES: usize = 20_000;

pub(crate) fn made() -> MemDevice {
    made_on(1, &MkfsOptions::default()).remove(0)
}

/// Creates a new volume on `count` devices.
pub(crate) fn made_on(count: usize, options: &MkfsOptions) -> Vec<MemDevice> {
    new_volume_on(options, &vec![1 << 30; count])
}

pub(crate) fn open(device: Arc<dyn BlockDevice>, writable: bool) -> Result<Arc<Volume>, Error> {
    open_all(vec![device], writable)
}

pub(crate) fn named(devices: Vec<Arc<dyn BlockDevice>>) -> Vec<(PathBuf, Arc<dyn BlockDevice>)> {
    let name = |number| PathBuf::from(format!("memory {number}"));
    let numbered = devices.into_iter().enumerate();
    numbered
        .map(|(number, device)| (name(number), device))
        .collect()
}

pub(crate) fn open_all(
    devices: Vec<Arc<dyn BlockDevice>>,
    writable: bool,
) -> Result<Arc<Volume>, Error> {
    let options = OpenOptions::new()
        .writable(writable)
        .commit_interval(None)
        .cache_bytes(4 << 20)
        .fsync_log(true);
    Volume::from_devices(named(devices), &options)
}

fn versions() -> impl Iterator<Item = Vec<u8>> {
    (0..=VERSIONS).map(|version| pattern(version, FILE_BYTES))
}

/// Returns the version of the file, on a volume opened for reading or writing.
fn version(volume: &Volume) -> usize {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = volume.lookup(top, b"file").unwrap().unwrap();
    let mut bytes = vec![0; FILE_BYTES + 1];
    let len = volume.read(file, 0, &mut bytes).unwrap();
    let found = versions().position(|version| version == bytes[..len]);
    let found = found.expect("the file is one of its versions");
    for number in (3..=found).step_by(3) {
        let name = format!("new {number}");
        let new = volume.lookup(top, name.as_bytes()).unwrap();
        let new = new.unwrap_or_else(|| panic!("{name} is gone"));
        let len = volume.read(new, 0, &mut bytes).unwrap();
        assert_eq!(bytes[..len], pattern(number as u8, 100 * number)[..]);
    }
    found
}

/// Returns the device after a cut, and whether the cut tore the first copy of the superblock. A torn copy is
/// repaired from another, as by `btrfs rescue super-recover`.
fn left_by(state: &CrashState) -> (Arc<dyn BlockDevice>, bool) {
    let device = Arc::new(state.devices[0].clone()) as Arc<dyn BlockDevice>;
    let path = Path::new("memory");
    let found = DeviceSuperblocks::read(&*device);
    let is_torn = found.require(&*device, path, CopyChoice::First).is_err();
    if is_torn {
        let copy = found.require(&*device, path, CopyChoice::Any).unwrap();
        write_superblocks(&*device, path, copy).unwrap();
    }
    (device, is_torn)
}

/// Checks the state after a cut, and returns whether it tore a superblock.
fn judge(state: &CrashState) -> bool {
    let (device, is_torn) = left_by(state);
    let synced = state.marks().last().map_or(0, |&mark| mark as usize);
    let read = open(device, false).unwrap_or_else(|error| panic!("{state}: {error}"));
    let found = version(&read);
    assert!(
        found >= synced,
        "{state}: version {found}, and {synced} was synced"
    );
    let written = open(left_by(state).0, true).unwrap_or_else(|error| panic!("{state}: {error}"));
    assert_eq!(version(&written), found, "{state}");
    assert!(!written.superblock().has_log());
    written.close().unwrap();
    is_torn
}

/// LOG-1, LOG-2, LOG-3, LOG-5
#[test]
fn synced_files_survive_every_cut() {
    let recorder = Recorder::new();
    let device = recorder.device(made());
    let volume = open(device, true).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = volume.create(top, b"file", &NewInode::file(0o644)).unwrap();
    volume.write(file, 0, &pattern(0, FILE_BYTES)).unwrap();
    volume.sync().unwrap();
    let before = recorder.recording().flushes();
    recorder.mark(0_u64);
    for version in 1..=VERSIONS {
        if version.is_multiple_of(3) {
            let name = format!("new {version}");
            let new = volume
                .create(top, name.as_bytes(), &NewInode::file(0o644))
                .unwrap();
            volume
                .write(new, 0, &pattern(version, 100 * usize::from(version)))
                .unwrap();
            volume.fsync(new).unwrap();
        }
        volume
            .write(file, 0, &pattern(version, FILE_BYTES))
            .unwrap();
        match version {
            3 | 7 | 10 => volume.sync().unwrap(),
            _ => volume.fsync(file).unwrap(),
        }
        recorder.mark(u64::from(version));
    }
    let stats = volume.writer_stats().unwrap();
    assert!(stats.logs >= 11, "{stats:?}");
    let recording = recorder.recording();
    assert!(recording.flushes() > before);
    let plan = CrashPlan::new(1).since(0_u64).random_states(150);
    let states: Vec<bool> = recording
        .crash_states(&plan)
        .map(|state| judge(&state))
        .collect();
    let torn = states.iter().filter(|is_torn| **is_torn).count();
    println!("{} states, {torn} with a torn superblock", states.len());
    assert!(torn > 0 && torn * 2 < states.len(), "{torn}");
}

/// LOG-7
#[test]
fn logs_write_only_what_differs_from_the_log_before() {
    let recorder = Recorder::new();
    let device = recorder.device(made());
    let volume = open(Arc::clone(&device) as Arc<dyn BlockDevice>, true).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let files: Vec<_> = (0..400)
        .map(|number| {
            let name = format!("file {number}");
            let file = volume.create(top, name.as_bytes(), &NewInode::file(0o644));
            file.unwrap()
        })
        .collect();
    volume.fsync(top).unwrap();
    let log_bytes = || volume.writer_stats().unwrap().log_bytes;
    let mut most = 0;
    for (number, &file) in files.iter().enumerate().step_by(7) {
        let before = log_bytes();
        let mode = SetAttr {
            mode: Some(0o600),
            ..SetAttr::default()
        };
        volume.set_attr(file, &mode).unwrap();
        volume.fsync(file).unwrap();
        if number > 100 {
            most = most.max(log_bytes() - before);
        }
    }
    // A leaf, the root above it and the log root tree, of 16 KiB each.
    assert!((1..3 * 16_384 * 2 / 3).contains(&most), "{most}");
    let after_cut = open(Arc::new(device.snapshot()), false).unwrap();
    let top = after_cut.root_dir(RootId::FS_TREE).unwrap();
    for number in 0..files.len() {
        let name = format!("file {number}");
        let file = after_cut.lookup(top, name.as_bytes()).unwrap().unwrap();
        let mode = after_cut.attr(file).unwrap().mode & 0o777;
        assert_eq!(mode, if number % 7 == 0 { 0o600 } else { 0o644 }, "{name}");
    }
}

/// LOG-2
#[test]
fn logs_take_the_places_of_logs_that_are_void() {
    let recorder = Recorder::new();
    let volume = open(recorder.device(made()), true).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = volume.create(top, b"file", &NewInode::file(0o644)).unwrap();
    volume.sync().unwrap();
    let before = recorder.recording().events().len();
    let syncs = 50;
    for number in 0..syncs {
        let mode = SetAttr {
            mode: Some(0o600 + number % 2),
            ..SetAttr::default()
        };
        volume.set_attr(file, &mode).unwrap();
        volume.fsync(file).unwrap();
    }
    assert_eq!(volume.writer_stats().unwrap().logs, u64::from(syncs));
    let recording = recorder.recording();
    let places: BTreeSet<u64> = recording.events()[before..]
        .iter()
        .filter_map(|event| match event {
            Event::Write { offset, .. } => Some(*offset / 16_384),
            _ => None,
        })
        .collect();
    // A leaf and a root in two places each, both copies, and the superblock.
    assert!(places.len() <= 9, "{places:?}");
}

/// LOG-4
#[test]
fn new_chunks_are_committed() {
    let volume = open(Arc::new(made()), true).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = volume.create(top, b"file", &NewInode::file(0o644)).unwrap();
    volume.sync().unwrap();
    let chunks = || volume.pool().chunk_map().all().len();
    let (before, commits) = (chunks(), volume.writer_stats().unwrap().commits);
    let mut offset = 0;
    while chunks() == before {
        volume.write(file, offset, &pattern(1, 4 << 20)).unwrap();
        offset += 4 << 20;
        assert!(offset < 1 << 30);
    }
    volume.fsync(file).unwrap();
    assert!(volume.writer_stats().unwrap().commits > commits);
    assert!(!volume.superblock().has_log());
    // After the commit the chunk is known. Chunks allocated ahead do not count.
    let logs = volume.writer_stats().unwrap().logs;
    volume.write(file, 0, &pattern(2, 4096)).unwrap();
    volume.fsync(file).unwrap();
    assert_eq!(volume.writer_stats().unwrap().logs, logs + 1);
}

/// Checksums that a replay replaces are not merged with those before them.
#[test]
fn replaced_checksums_join_nothing() {
    let device = Arc::new(made());
    let volume = open(Arc::clone(&device) as Arc<dyn BlockDevice>, true).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let reserve = Fallocate::Reserve { keep_size: false };
    let [before, file] = [&b"before"[..], b"file"].map(|name| {
        let file = volume.create(top, name, &NewInode::file(0o644)).unwrap();
        volume.fallocate(file, reserve, 0, 1 << 20).unwrap();
        file
    });
    // The data before them gets its checksums later, so these begin a new item.
    volume.write_direct(file, 0, &pattern(1, 40_960)).unwrap();
    volume.sync().unwrap();
    volume
        .write_direct(before, 0, &pattern(2, 1 << 20))
        .unwrap();
    volume.sync().unwrap();
    volume
        .write_direct(file, 40_960, &pattern(3, 8192))
        .unwrap();
    let logs = volume.writer_stats().unwrap().logs;
    volume.fsync(file).unwrap();
    assert_eq!(volume.writer_stats().unwrap().logs, logs + 1);

    let cut = Arc::new((*device).clone()) as Arc<dyn BlockDevice>;
    let volume = open(Arc::clone(&cut), true).unwrap();
    let mut bytes = vec![0; 49_152];
    volume.read(file, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [pattern(1, 40_960), pattern(3, 8192)].concat());
    volume.close().unwrap();
    let options = CheckOptions {
        data_csums: true,
        ..CheckOptions::default()
    };
    let report = check_devices(vec![("memory".into(), cut)], &options, &mut ()).unwrap();
    assert!(report.is_spotless(), "{report}");
}

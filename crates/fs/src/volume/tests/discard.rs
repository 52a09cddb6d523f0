//! Discards of a volume, which must never hit used data. The devices fill discarded ranges with garbage.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use ubtrfs_check::{CheckOptions, check_devices};
use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::ids::RootId;
use ubtrfs_sim::fault::{Fault, FaultDevice};
use ubtrfs_sim::record::{RecordDevice, Recorder};
use ubtrfs_sim::{HookedDevice, Request, Rng, seed};
use ubtrfs_storage::DiscardPace;
use ubtrfs_storage::discard::DiscardStep;

use super::{device_of, options};
use crate::{
    DiscardDelays, DiscardLimits, DiscardMode, Error, FileId, NewInode, OpenOptions, Volume,
};

const MIB: u64 = 1 << 20;
const DEVICE_BYTES: u64 = 512 * MIB;
const EIO: i32 = 5;
const EOPNOTSUPP: i32 = 95;

struct Rig {
    volume: Arc<Volume>,
    fault: Arc<FaultDevice>,
    device: Arc<RecordDevice>,
}

fn open_on(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Arc<Volume> {
    Volume::from_devices(vec![(PathBuf::from("recorded"), device)], options).unwrap()
}

fn rig_of(device: MemDevice, options: &OpenOptions) -> Rig {
    let device = Recorder::new().device(device);
    let fault = Arc::new(FaultDevice::new(device.clone()));
    let volume = open_on(fault.clone(), options);
    let rig = Rig {
        volume,
        fault,
        device,
    };
    rig.set_clock(0);
    rig
}

fn rig(options: &OpenOptions) -> Rig {
    let device = device_of(DEVICE_BYTES, "");
    rig_of(MemDevice::clone(&device), options)
}

impl Rig {
    fn set_clock(&self, seconds: u64) {
        let manager = self.volume.inodes.transactions().unwrap();
        manager.discard.set_clock(Duration::from_secs(seconds));
    }

    /// Runs all background discards due at that time, ignoring the limits.
    fn run_at(&self, seconds: u64) {
        let manager = self.volume.inodes.transactions().unwrap();
        self.volume
            .set_discard_limits(DiscardLimits::default())
            .unwrap();
        self.set_clock(seconds);
        let step = || {
            let step = manager.discard_step();
            if step == DiscardStep::Done {
                // A discard delayed by the limits may run at once.
                let limits = self.volume.discard_limits();
                self.volume.set_discard_limits(limits).unwrap();
            }
            step
        };
        while step() == DiscardStep::Done {}
    }

    /// Returns the bytes discarded on the device.
    fn discarded(&self) -> u64 {
        let stats = self.volume.discard_stats();
        stats.discard_extent_bytes + stats.discard_bitmap_bytes + stats.sync_bytes
    }

    fn discards(&self) -> u64 {
        self.fault.counts().discards
    }

    fn top(&self) -> FileId {
        self.volume.root_dir(RootId::FS_TREE).unwrap()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let new = NewInode::file(0o644);
        let file = self.volume.create(self.top(), name.as_bytes(), &new);
        self.volume.write(file.unwrap(), 0, bytes).unwrap();
    }

    fn unlink(&self, name: &str) {
        self.volume.unlink(self.top(), name.as_bytes()).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        let volume = &self.volume;
        let file = volume.resolve(self.top(), name.as_bytes()).unwrap();
        let mut bytes = vec![0; volume.attr(file).unwrap().size as usize];
        assert_eq!(volume.read(file, 0, &mut bytes).unwrap(), bytes.len());
        bytes
    }

    /// Checks the volume and its data in the device's current state.
    fn check(&self) {
        let device: Arc<dyn BlockDevice> = Arc::new(self.device.snapshot());
        let checked = CheckOptions {
            data_csums: true,
            ..CheckOptions::default()
        };
        let devices = vec![(PathBuf::from("recorded"), device)];
        let report = check_devices(devices, &checked, &mut ()).unwrap();
        assert!(report.is_spotless(), "{report}");
    }
}

fn bytes(number: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    Rng::new(number).fill(&mut bytes);
    bytes
}

// ASYNC-DISCARD-1
#[test]
fn freed_space_is_discarded_only_once_its_commit_is_durable() {
    let rig = rig(&options());
    rig.write("kept", &bytes(1, MIB));
    rig.write("gone", &bytes(2, 8 * MIB));
    rig.volume.sync().unwrap();
    rig.run_at(0);
    rig.run_at(500);
    let before = rig.discards();
    rig.unlink("gone");
    rig.run_at(1000);
    rig.run_at(2000);
    assert_eq!(rig.discards(), before);
    // The commit would free it, but its flush fails.
    let flushes = rig.fault.counts().flushes;
    rig.fault.add(Fault::Flush { nth: flushes });
    rig.volume.sync().unwrap_err();
    rig.run_at(3000);
    rig.run_at(5000);
    assert_eq!(rig.discards(), before);
    rig.check();
}

#[test]
fn background_discards_after_its_delays_and_files_stay_whole() {
    let rig = rig(&options());
    for number in 0..40 {
        rig.write(&format!("file{number}"), &bytes(number, 2 * MIB));
    }
    rig.volume.sync().unwrap();
    for number in (0..40).step_by(2) {
        rig.unlink(&format!("file{number}"));
    }
    rig.volume.sync().unwrap();
    let waits = rig.volume.discard_stats().discardable_bytes;
    assert!(waits >= 40 * MIB, "{waits}");
    rig.run_at(0);
    rig.run_at(119);
    let early = rig.discarded();
    rig.run_at(121);
    // The rest is shorter than a region of the first pass.
    let stats = rig.volume.discard_stats();
    assert!(rig.discarded() >= early + 36 * MIB, "{stats:?}");
    rig.run_at(250);
    let stats = rig.volume.discard_stats();
    assert!(stats.discardable_bytes < MIB, "{stats:?}");
    assert_eq!(stats.errors, 0);
    for number in (1..40).step_by(2) {
        assert_eq!(rig.read(&format!("file{number}")), bytes(number, 2 * MIB));
    }
    rig.check();
}

#[test]
fn space_that_is_written_again_is_saved() {
    let rig = rig(&options());
    rig.write("gone", &bytes(1, 20 * MIB));
    rig.volume.sync().unwrap();
    rig.unlink("gone");
    rig.volume.sync().unwrap();
    let saved = rig.volume.discard_stats().discard_bytes_saved;
    // The volume has no other data space left.
    rig.write("all", &bytes(2, 400 * MIB));
    rig.volume.sync().unwrap();
    let stats = rig.volume.discard_stats();
    assert!(stats.discard_bytes_saved >= saved + 16 * MIB, "{stats:?}");
    assert!(stats.discardable_bytes < 4 * MIB, "{stats:?}");
    rig.check();
}

#[test]
fn commit_discards_what_it_frees_in_mode_sync() {
    let rig = rig(&options().discard(Some(DiscardMode::Sync)));
    rig.write("kept", &bytes(1, MIB));
    rig.write("gone", &bytes(2, 64 * MIB));
    rig.volume.sync().unwrap();
    rig.unlink("gone");
    let before = rig.volume.discard_stats().sync_bytes;
    rig.volume.sync().unwrap();
    let stats = rig.volume.discard_stats();
    assert!(stats.sync_bytes >= before + 64 * MIB, "{stats:?}");
    assert_eq!(
        (stats.discardable_bytes, stats.discard_extent_bytes),
        (0, 0)
    );
    rig.check();
    // ASYNC-DISCARD-3
    rig.fault.add(Fault::Discards { errno: EIO });
    rig.unlink("kept");
    rig.volume.sync().unwrap();
    assert!(rig.volume.discard_stats().errors > 0);
    rig.fault.heal();
    rig.fault.add(Fault::Discards { errno: EOPNOTSUPP });
    for number in 0..4 {
        rig.write("again", &bytes(number, MIB));
        rig.volume.sync().unwrap();
        rig.unlink("again");
        rig.volume.sync().unwrap();
    }
    let asked = rig.discards();
    assert!(!rig.volume.can_discard());
    rig.write("again", &bytes(7, MIB));
    rig.volume.sync().unwrap();
    rig.unlink("again");
    rig.volume.sync().unwrap();
    assert_eq!(rig.discards(), asked);
    rig.check();
}

#[test]
fn reads_keep_discards_back_for_a_while() {
    let rig = rig(&options());
    rig.write("kept", &bytes(1, MIB));
    rig.write("gone", &bytes(2, 16 * MIB));
    rig.volume.sync().unwrap();
    rig.unlink("gone");
    rig.volume.sync().unwrap();
    rig.run_at(0);
    rig.set_clock(1000);
    let manager = rig.volume.inodes.transactions().unwrap();
    let mut pace = DiscardPace::default();
    let mut look = || manager.discard_when_idle(&mut pace);
    let mut yields = 0;
    loop {
        // A read that has ended before the check.
        rig.read("kept");
        match look() {
            DiscardStep::Busy => yields += 1,
            step => break assert_eq!(step, DiscardStep::Done),
        }
    }
    assert_eq!(yields, 100);
    let discards = rig.discards();
    assert!(discards > 0);
    // Without other reads, only the reads for discards delay them.
    let looks: Vec<DiscardStep> = (0..3)
        .map(|second| {
            rig.set_clock(2000 + second);
            look()
        })
        .collect();
    assert!(
        looks.contains(&DiscardStep::Done) || looks.contains(&DiscardStep::Idle),
        "{looks:?}"
    );
}

#[test]
fn read_under_way_keeps_discards_back() {
    let inner = device_of(DEVICE_BYTES, "");
    let device = Arc::new(HookedDevice::new(inner));
    let volume = open_on(device.clone(), &options());
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = volume.create(top, b"f", &NewInode::file(0o644)).unwrap();
    volume.write(file, 0, &bytes(1, MIB)).unwrap();
    let gone = volume.create(top, b"g", &NewInode::file(0o644)).unwrap();
    volume.write(gone, 0, &bytes(2, 16 * MIB)).unwrap();
    volume.sync().unwrap();
    volume.unlink(top, b"g").unwrap();
    volume.sync().unwrap();
    let manager = volume.inodes.transactions().unwrap();
    manager.discard.set_clock(Duration::ZERO);
    assert!(matches!(manager.discard_step(), DiscardStep::NotBefore(_)));
    manager.discard.set_clock(Duration::from_secs(1000));
    let (begun, continued) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let is_first = AtomicUsize::new(0);
    device.hook({
        let (begun, continued) = (Arc::clone(&begun), Arc::clone(&continued));
        move |request| {
            if request == Request::Read && is_first.fetch_add(1, Ordering::Relaxed) == 0 {
                begun.wait();
                continued.wait();
            }
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(|| volume.read(file, 0, &mut [0; 4096]).unwrap());
        begun.wait();
        let mut pace = DiscardPace::default();
        let looks = [(); 3].map(|()| manager.discard_when_idle(&mut pace));
        continued.wait();
        assert_eq!(looks, [DiscardStep::Busy; 3]);
    });
    device.unhook();
}

#[test]
fn nothing_is_discarded_without_a_mode() {
    let rig = rig(&options().discard(Some(DiscardMode::None)));
    rig.write("gone", &bytes(1, 64 * MIB));
    rig.volume.sync().unwrap();
    rig.unlink("gone");
    rig.volume.sync().unwrap();
    rig.run_at(1000);
    let stats = rig.volume.discard_stats();
    assert_eq!((stats.discardable_bytes, stats.discard_bytes_saved), (0, 0));
    rig.volume.close().unwrap();
    assert_eq!(rig.discards(), 0);
}

#[test]
fn mode_changes_while_the_volume_is_open() {
    let rig = rig(&options());
    assert_eq!(rig.volume.discard_mode(), DiscardMode::Async);
    rig.write("kept", &bytes(1, MIB));
    rig.write("gone", &bytes(2, 16 * MIB));
    rig.write("next", &bytes(3, 16 * MIB));
    rig.volume.sync().unwrap();
    rig.unlink("gone");
    rig.volume.sync().unwrap();
    let reconfigured = |mode| options().discard(Some(mode));
    let to = |mode| rig.volume.reconfigure(&reconfigured(mode)).unwrap();
    to(DiscardMode::None);
    rig.run_at(1000);
    assert_eq!(rig.discards(), 0);
    assert!(rig.volume.discard_stats().discardable_bytes >= 16 * MIB);
    to(DiscardMode::Sync);
    rig.unlink("next");
    rig.volume.sync().unwrap();
    assert!(rig.volume.discard_stats().sync_bytes >= 16 * MIB);
    to(DiscardMode::Async);
    rig.run_at(1000);
    rig.run_at(2000);
    assert!(rig.volume.discard_stats().discard_extent_bytes >= 16 * MIB);
    assert_eq!(rig.read("kept"), bytes(1, MIB));
    rig.check();
}

#[test]
fn volume_at_rest_discards_nothing() {
    let rig = rig(&options());
    rig.write("kept", &bytes(1, MIB));
    rig.write("gone", &bytes(2, 16 * MIB));
    rig.volume.sync().unwrap();
    rig.unlink("gone");
    rig.volume.quiesce().unwrap();
    rig.run_at(0);
    rig.run_at(1000);
    assert_eq!(rig.discards(), 0);
    rig.write("next", &bytes(3, MIB));
    rig.volume.sync().unwrap();
    rig.run_at(1000);
    rig.run_at(2000);
    assert!(rig.discards() > 0);
    rig.volume.shutdown(&Error::NoSpace);
    let before = rig.discards();
    rig.run_at(10_000);
    assert_eq!(rig.discards(), before);
}

#[test]
fn closing_discards_what_was_freed_if_it_is_told_to() {
    for (at_close, is_small) in [(60, true), (0, false)] {
        let options = options().discard_at_close(Duration::from_secs(at_close));
        let rig = rig(&options);
        rig.write("kept", &bytes(1, MIB));
        rig.volume.sync().unwrap();
        let small = rig.discarded();
        rig.write("gone", &bytes(2, 100 * MIB));
        rig.volume.sync().unwrap();
        rig.unlink("gone");
        rig.volume.close().unwrap();
        assert_eq!(rig.discarded() >= small + 100 * MIB, is_small);
        assert_eq!(rig.discards() > 0, is_small);
        rig.check();
    }
}

#[test]
fn trim_answers_as_fitrim_does() {
    let rig = rig(&options());
    rig.write("kept", &bytes(1, MIB));
    rig.write("gone", &bytes(2, 16 * MIB));
    rig.volume.sync().unwrap();
    rig.unlink("gone");
    let trim = |start, len, min_bytes| rig.volume.trim(start, len, min_bytes, &mut || true);
    // The commit at the start of the trim deletes the file.
    let all = trim(0, u64::MAX, 0).unwrap();
    assert!(all > 400 * MIB, "{all}");
    assert_eq!(rig.volume.discard_stats().discardable_bytes, 0);
    let again = trim(0, u64::MAX, 0).unwrap();
    assert!(again < all, "{again} of {all}");
    assert_eq!(trim(0, u64::MAX, 0).unwrap(), again);
    assert_eq!(trim(100 << 40, u64::MAX, 0).unwrap(), 0);
    assert_eq!(trim(0, u64::MAX, 1 << 40).unwrap(), 0);
    let (most, sector) = (u64::MAX, 4096);
    for (start, len) in [
        (0, 1024),
        (0, 0),
        (most, sector),
        (most, most),
        (1 << 40, most - 1),
    ] {
        let refused = trim(start, len, 0);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    let mut asked = 0;
    let ended = rig.volume.trim(0, u64::MAX, 0, &mut || {
        asked += 1;
        asked < 2
    });
    assert!(ended.unwrap() < again);
    rig.fault.add(Fault::Discards { errno: EIO });
    assert!(matches!(trim(0, u64::MAX, 0), Err(Error::Device(_))));
    rig.fault.heal();
    assert_eq!(trim(0, u64::MAX, 0).unwrap(), again);
    rig.fault.add(Fault::Discards { errno: EOPNOTSUPP });
    let _ = trim(0, u64::MAX, 0);
    assert!(matches!(trim(0, u64::MAX, 0), Err(Error::NoDiscard)));
    assert_eq!(rig.read("kept"), bytes(1, MIB));
    rig.check();
    rig.volume.close().unwrap();
    assert!(matches!(trim(0, u64::MAX, 0), Err(Error::Closed)));
    let read_only = open_on(rig.device.clone(), &OpenOptions::new());
    let refused = read_only.trim(0, u64::MAX, 0, &mut || true);
    assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
}

#[test]
fn small_holes_are_trimmed_on_request() {
    let rig = rig(&options());
    for number in 0..2000 {
        rig.write(&format!("{number}"), &bytes(number, 8192));
    }
    rig.volume.sync().unwrap();
    for number in (0..2000).step_by(2) {
        rig.unlink(&format!("{number}"));
    }
    rig.volume.sync().unwrap();
    let stats = rig.volume.discard_stats();
    assert!(stats.discardable_extents > 900, "{stats:?}");
    rig.run_at(0);
    rig.run_at(1000);
    rig.run_at(2000);
    // Shorter than any region of the background discard.
    let left = rig.volume.discard_stats().discardable_bytes;
    assert!(left > 900 * 8192, "{left}");
    rig.volume.trim(0, u64::MAX, 0, &mut || true).unwrap();
    assert_eq!(rig.volume.discard_stats().discardable_bytes, 0);
    for number in (1..2000).step_by(2) {
        assert_eq!(rig.read(&format!("{number}")), bytes(number, 8192));
    }
    rig.check();
}

#[test]
fn random_files_with_snapshots_survive_discards_of_every_mode() {
    let mut rng = Rng::new(seed("random_files_with_snapshots_survive_discards"));
    let rig = rig(&options().discard_metadata(true));
    let mut files: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut now = 0;
    for round in 0..400 {
        match rng.below(10) {
            0..=3 => {
                let name = rng.below(40);
                if files.remove(&name).is_some() {
                    rig.unlink(&name.to_string());
                }
                let most = if rng.one_in(4) { 3 * MIB } else { 60_000 };
                let len = 1 + rng.below(most);
                rig.write(&name.to_string(), &bytes(round, len));
                files.insert(name, (round, len));
            }
            4..=5 => {
                let name = rng.below(40);
                if files.remove(&name).is_some() {
                    rig.unlink(&name.to_string());
                }
            }
            6 => {
                let (top, name) = (rig.top(), format!("snapshot{}", rng.below(3)));
                let volume = &rig.volume;
                match volume.resolve(top, name.as_bytes()) {
                    Ok(_) => volume.delete_subvolume(top, name.as_bytes()).unwrap(),
                    Err(_) => {
                        let made = volume.snapshot(RootId::FS_TREE, top, name.as_bytes(), false);
                        made.unwrap();
                    }
                }
            }
            7 => rig.volume.sync().unwrap(),
            8 => {
                let modes = [DiscardMode::Async, DiscardMode::Async, DiscardMode::Sync];
                let mode = modes[rng.below(3) as usize];
                rig.volume.set_discard(Some(mode)).unwrap();
            }
            _ if rng.one_in(4) => {
                rig.volume.trim(0, u64::MAX, 0, &mut || true).unwrap();
            }
            _ => {
                now += 130;
                rig.run_at(now);
            }
        }
        if round % 100 == 99 {
            rig.volume.sync().unwrap();
            rig.check();
        }
    }
    for (name, (number, len)) in files {
        assert_eq!(rig.read(&name.to_string()), bytes(number, len));
    }
    rig.volume.close().unwrap();
    rig.check();
    assert!(rig.discards() > 100, "{}", rig.discards());
}

// ASYNC-DISCARD-4
#[test]
fn close_waits_for_one_discard_alone() {
    let inner = device_of(DEVICE_BYTES, "");
    let device = Arc::new(HookedDevice::new(inner));
    let options = options()
        .commit_interval(Some(Duration::from_secs(3600)))
        .discard_at_close(Duration::ZERO)
        .discard_delays(DiscardDelays {
            empty: Duration::ZERO,
            used: Duration::ZERO,
        });
    let volume = open_on(device.clone(), &options);
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    for number in 0..20 {
        let new = NewInode::file(0o644);
        let name = format!("{number}");
        let file = volume.create(top, name.as_bytes(), &new).unwrap();
        volume.write(file, 0, &bytes(number, 2 * MIB)).unwrap();
    }
    volume.sync().unwrap();
    // The first discard begins, and ends after the close has begun.
    let (begun, discards) = (Arc::new(Barrier::new(2)), Arc::new(AtomicUsize::new(0)));
    let lifetime = volume.lifetime().unwrap();
    device.hook({
        let (begun, discards) = (Arc::clone(&begun), Arc::clone(&discards));
        move |request| {
            if request == Request::Discard && discards.fetch_add(1, Ordering::SeqCst) == 0 {
                begun.wait();
                assert!(lifetime.wait_for_close(Duration::from_secs(600)));
            }
        }
    });
    for number in (0..20).step_by(2) {
        volume.unlink(top, format!("{number}").as_bytes()).unwrap();
    }
    volume.sync().unwrap();
    begun.wait();
    volume.close().unwrap();
    assert_eq!(discards.load(Ordering::SeqCst), 1);
    assert!(volume.discard_stats().discardable_bytes > MIB);
}

//! Every step of a replay and its commit fails, or is the last one before the devices stop.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check_devices};
use ubtrfs_device::MemDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{NewInode, OpenOptions, RenameMode, Rescue, Volume, XattrMode};
use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::or_skip;
use ubtrfs_sim::manifest::{Manifest, assert_same};
use ubtrfs_storage::testing::{Failpoint, at_failpoints};

use super::devices::empty_volumes;
use super::{
    STALE_SUPERBLOCKS, StoppingDevices, at_nth, is_durable, is_of_commit, is_of_replay, planted,
    those,
};
use crate::cut::{made, named, open_all};
use crate::shown;
use crate::workloads::{kernel_replays, shared};
use crate::written::pattern;

/// A volume with a log, as after a power cut.
struct Logged {
    name: &'static str,
    devices: Vec<MemDevice>,
    committed: Manifest,
    /// The contents including the log.
    replayed: Manifest,
    /// The steps of opening it for writing.
    points: Vec<Failpoint>,
}

/// The number of files with a large attribute in each subvolume.
const LARGE: u8 = 40;
const SUBVOLUMES: [&[u8]; 2] = [b"one", b"two"];

/// Writes a log for files of three subvolumes, and returns the devices afterwards.
fn with_log(devices: Vec<MemDevice>) -> Vec<MemDevice> {
    let devices: Vec<Arc<MemDevice>> = devices.into_iter().map(Arc::new).collect();
    let volume = open_all(shared(&devices), true).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let mut dirs = vec![top];
    for name in SUBVOLUMES {
        let root = NewInode::directory(0o755);
        let id = volume.create_subvolume(top, name, &root).unwrap();
        dirs.push(volume.root_dir(id).unwrap());
    }
    let file = |dir, name: &[u8], len| {
        let file = volume.create(dir, name, &NewInode::file(0o644)).unwrap();
        volume.write(file, 0, &pattern(len as u8, len)).unwrap();
        file
    };
    for &dir in &dirs {
        file(dir, b"changed", 20_000);
        file(dir, b"moved", 100);
        file(dir, b"gone", 9000);
    }
    volume.sync().unwrap();
    let before = volume.writer_stats().unwrap();
    for &dir in &dirs {
        let changed = volume.lookup(dir, b"changed").unwrap().unwrap();
        volume.write(changed, 5000, &pattern(1, 30_000)).unwrap();
        let to = (dir, &b"elsewhere"[..]);
        let mode = RenameMode::Replace;
        volume.rename(dir, b"moved", to, mode).unwrap();
        volume.unlink(dir, b"gone").unwrap();
        // The commit of the replay needs more blocks than are free below the log's.
        for number in 0..LARGE {
            let large = file(dir, format!("large {number}").as_bytes(), 1);
            let value = pattern(number, 3000);
            volume
                .set_xattr(large, b"user.large", &value, XattrMode::Any)
                .unwrap();
            volume.fsync(large).unwrap();
        }
        for synced in [changed, file(dir, b"new", 50_000), dir] {
            volume.fsync(synced).unwrap();
        }
    }
    let after = volume.writer_stats().unwrap();
    assert_eq!(after.commits, before.commits, "{after:?}");
    let cut = devices.iter().map(|device| (**device).clone()).collect();
    volume.close().unwrap();
    cut
}

fn copied(devices: &[MemDevice]) -> Vec<Arc<MemDevice>> {
    devices.iter().cloned().map(Arc::new).collect()
}

/// Opens the state of the last commit.
fn committed(devices: &[MemDevice]) -> Arc<Volume> {
    let options = OpenOptions::new().rescue(Rescue {
        no_log_replay: true,
        ..Rescue::default()
    });
    Volume::from_devices(named(shared(&copied(devices))), &options).unwrap()
}

fn logged() -> Vec<Logged> {
    let [mirrored, striped] = empty_volumes();
    let empty = [("1 device", vec![made()]), mirrored, striped];
    let log = |(name, devices)| {
        let devices = with_log(devices);
        let points = Rc::new(RefCell::new(Vec::new()));
        let all = Rc::clone(&points);
        let hooked = at_failpoints(move |point| {
            all.borrow_mut().push(point);
            Ok(())
        });
        let volume = open_all(shared(&copied(&devices)), true).unwrap();
        drop(hooked);
        let committed = shown::manifest(&committed(&devices));
        let replayed = shown::manifest(&volume);
        assert_ne!(committed.entries, replayed.entries);
        Logged {
            name,
            devices,
            committed,
            replayed,
            points: points.take(),
        }
    };
    empty.into_iter().map(log).collect()
}

impl Logged {
    /// Asserts that the devices show the result of an uninterrupted replay, both for a reader and after a
    /// replay.
    fn assert_replays(&self, what: &str, devices: &[MemDevice]) {
        let read = open_all(shared(&copied(devices)), false);
        let read = read.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_same(what, &self.replayed, &shown::manifest(&read), &[]);
        let devices = copied(devices);
        let written = open_all(shared(&devices), true);
        let written = written.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(!written.superblock().has_log(), "{what}");
        assert_same(what, &self.replayed, &shown::manifest(&written), &[]);
        written.close().unwrap();
        let options = CheckOptions {
            data_csums: true,
            ..CheckOptions::default()
        };
        let report = check_devices(named(shared(&devices)), &options, &mut ()).unwrap();
        let numbers = report.numbers();
        assert!(
            report.unlisted() == 0
                && numbers
                    .iter()
                    .all(|number| STALE_SUPERBLOCKS.contains(number)),
            "{what}: {report}"
        );
    }

    /// Asserts that the devices have the same commit and log as before.
    fn assert_as_before(&self, what: &str, devices: &[MemDevice]) {
        let volume = committed(devices);
        assert!(volume.superblock().has_log(), "{what}");
        let (old, new) = (committed(&self.devices), volume.superblock());
        assert_eq!(old.superblock().generation, new.generation, "{what}");
        assert_same(what, &self.committed, &shown::manifest(&volume), &[]);
    }

    fn each_point(&self, mut each: impl FnMut(&str, usize, Failpoint)) {
        let is_wanted = |point| {
            let is_several = self.devices.len() > 1;
            is_of_replay(point)
                || is_of_commit(point)
                    && (is_several || point != Failpoint::SuperblockOnSomeDevices)
        };
        let seen = self.points.iter().copied().collect();
        assert_eq!(those(is_wanted), seen, "{}", self.name);
        for (nth, point) in self.points.iter().enumerate() {
            each(
                &format!("{}: {point:?}, failpoint {nth}", self.name),
                nth,
                *point,
            );
        }
    }
}

/// REPLAY-2
#[test]
fn step_of_a_replay_that_fails_is_reported_and_leaves_the_volume_as_it_was() {
    for logged in logged() {
        logged.each_point(|what, nth, point| {
            let devices = StoppingDevices::new(&logged.devices);
            let through = devices.through();
            let opened = at_nth(nth, || Err(planted()), move || open_all(through, true));
            let error = opened.expect_err(what).to_string();
            assert!(error.contains("planted"), "{what}: {error}");
            if is_of_replay(point) || point < Failpoint::BlocksWritten {
                assert!(!devices.is_dirty(), "{what}");
            }
            if is_of_replay(point) || point < Failpoint::SuperblockOnSomeDevices {
                logged.assert_as_before(what, &devices.landed());
            }
            logged.assert_replays(what, &devices.landed());
        });
    }
}

/// REPLAY-1, REPLAY-2
#[test]
fn stop_at_a_step_of_a_replay_is_followed_by_the_same_replay() {
    let test = "stop_at_a_step_of_a_replay_is_followed_by_the_same_replay";
    let asks_kernel = or_skip(test);
    let scratch = Scratch::new().unwrap();
    for logged in logged() {
        logged.each_point(|what, nth, point| {
            let devices = StoppingDevices::new(&logged.devices);
            let through = devices.through();
            // Opening fails if there was more to write.
            let _ = at_nth(nth, devices.stop(), move || open_all(through, true));
            if is_durable(point) {
                assert!(!devices.is_dirty(), "{what}");
            }
            let (landed, durable) = (devices.landed(), devices.durable());
            logged.assert_replays(&format!("{what}, all landed"), &landed);
            logged.assert_replays(&format!("{what}, as flushed"), &durable);
            if asks_kernel {
                kernel_replays(what, &landed, scratch.path());
            }
        });
    }
}

#[test]
fn step_of_a_replay_in_memory_that_fails_is_reported() {
    for logged in logged() {
        for nth in 0..=SUBVOLUMES.len() {
            let devices = StoppingDevices::new(&logged.devices);
            let through = devices.through();
            let opened = at_nth(nth, || Err(planted()), move || open_all(through, false));
            let error = opened.expect_err(logged.name).to_string();
            assert!(error.contains("planted"), "{error}");
            assert!(!devices.is_dirty());
        }
    }
}

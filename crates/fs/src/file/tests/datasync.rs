//! fdatasync without a log: its durability and its cost.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::fault::{Fault, FaultDevice};
use ubtrfs_sim::record::{CrashPlan, CrashState, Event};
use ubtrfs_storage::FileId;

use super::fixture::{self, MIB, Recorded, new_device};
use crate::file::Fallocate;
use crate::inode::{SetAttr, XattrMode};
use crate::namespace::{NewInode, RenameMode};
use crate::{Error, OpenOptions, Volume};

const SECTOR: u64 = 4096;

fn options() -> OpenOptions {
    fixture::options().fsync_log(false)
}

fn nocow() -> OpenOptions {
    options().no_data_cow(true)
}

#[test]
fn without_barriers_no_cache_is_flushed() {
    let flushes = |options: OpenOptions| {
        let (recorded, file) = recorded(&options);
        let volume = &recorded.volume;
        volume.append(file, &[1; 100]).unwrap();
        volume.fsync(file).unwrap();
        volume.sync().unwrap();
        recorded.flushes()
    };
    assert_eq!(flushes(fixture::options().barriers(false)), 0);
    assert!(flushes(fixture::options()) > 0);
}

/// Creates a volume with a file of 1 MiB, all durable.
fn recorded(options: &OpenOptions) -> (Recorded, FileId) {
    let recorded = Recorded::open(options);
    let file = recorded.file("file", MIB);
    recorded.volume.sync().unwrap();
    (recorded, file)
}

fn commits(volume: &Volume) -> u64 {
    volume.writer_stats().unwrap().commits
}

/// Returns every state that a power cut after `mark` may leave.
fn states_after(recorded: &Recorded, mark: u64) -> Vec<(CrashState, Arc<Volume>)> {
    let plan = CrashPlan::new(1).since(mark).random_states(20);
    let states = recorded.recorder.recording().crash_states(&plan);
    let opened = states
        .filter(|state| state.marks().contains(&mark))
        .map(|state| {
            let device: Arc<dyn BlockDevice> = Arc::new(state.devices[0].clone());
            let devices = vec![(PathBuf::from("memory"), device)];
            let volume = Volume::from_devices(devices, &OpenOptions::new()).unwrap();
            (state, volume)
        });
    opened.collect()
}

fn find(volume: &Volume, name: &str) -> FileId {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    volume.lookup(top, name.as_bytes()).unwrap().unwrap()
}

fn sector(volume: &Volume, file: FileId, at: u64) -> Vec<u8> {
    let mut buf = vec![0xaa; SECTOR as usize];
    volume.read(file, at, &mut buf).unwrap();
    buf
}

#[test]
fn a_nocow_write_is_a_flush() {
    for lazy in [false, true] {
        let (recorded, file) = recorded(&nocow().lazy_times(lazy));
        let volume = &recorded.volume;
        let before = commits(volume);
        for round in 2..5 {
            volume
                .write(file, SECTOR, &[round; SECTOR as usize])
                .unwrap();
            recorded.recorder.mark(round);
            volume.fdatasync(file).unwrap();
            let events = recorded.requests_since(round.into());
            let [Event::Write { data, .. }, Event::Flush { .. }] = &events[..] else {
                panic!("{events:?}");
            };
            assert_eq!(data[..], [round; SECTOR as usize]);
        }
        assert_eq!(commits(volume), before);
        // Only fsync persists times.
        let newest = volume.attr(file).unwrap().mtime;
        volume.fsync(file).unwrap();
        assert_eq!(commits(volume), before + 1);
        recorded.recorder.mark(9u64);
        for (state, cut) in states_after(&recorded, 9) {
            assert_eq!(
                cut.attr(find(&cut, "file")).unwrap().mtime,
                newest,
                "{state}"
            );
        }
    }
}

#[test]
fn a_nocow_write_to_a_logged_file_is_a_flush() {
    let (recorded, file) = recorded(&nocow().fsync_log(true));
    let volume = &recorded.volume;
    let logs = || volume.writer_stats().unwrap().logs;
    let flushes = || volume.writer_stats().unwrap().data_flushes;
    let before = commits(volume);
    volume.append(file, &[1; 100]).unwrap();
    volume.fdatasync(file).unwrap();
    assert_eq!(logs(), 1);
    for round in 2..5 {
        volume
            .write(file, SECTOR, &[round; SECTOR as usize])
            .unwrap();
        recorded.recorder.mark(round);
        volume.fdatasync(file).unwrap();
        let events = recorded.requests_since(round.into());
        let [Event::Write { data, .. }, Event::Flush { .. }] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!(data[..], [round; SECTOR as usize]);
    }
    assert_eq!((logs(), flushes()), (1, 3));
    // Only fsync persists times, and everything else is logged.
    volume.fsync(file).unwrap();
    assert_eq!(logs(), 2);
    volume.append(file, &[2; 100]).unwrap();
    volume.fdatasync(file).unwrap();
    assert_eq!((logs(), commits(volume)), (3, before));
    recorded.recorder.mark(9u64);
    let newest = volume.attr(file).unwrap();
    for (state, cut) in states_after(&recorded, 9) {
        let found = find(&cut, "file");
        assert_eq!(cut.attr(found).unwrap().size, newest.size, "{state}");
        assert_eq!(sector(&cut, found, SECTOR), [4; SECTOR as usize], "{state}");
    }
}

#[test]
fn an_overwrite_in_place_outlives_a_power_cut() {
    let (recorded, file) = recorded(&nocow());
    let volume = &recorded.volume;
    for round in 2..6u8 {
        volume
            .write(file, SECTOR, &[round; SECTOR as usize])
            .unwrap();
        volume
            .write_direct(file, 4 * SECTOR, &[round; SECTOR as usize])
            .unwrap();
        volume.fdatasync(file).unwrap();
        recorded.recorder.mark(round);
        for (state, cut) in states_after(&recorded, round.into()) {
            let found = find(&cut, "file");
            for at in [SECTOR, 4 * SECTOR] {
                assert_eq!(sector(&cut, found, at), [round; SECTOR as usize], "{state}");
            }
        }
    }
}

#[test]
fn changes_beside_times_are_committed() {
    type Change = fn(&Volume, FileId);
    let changes: [(&str, Change); 9] = [
        ("append", |volume, file| {
            volume.append(file, &[2; 100]).unwrap();
        }),
        ("truncate", |volume, file| {
            volume.truncate(file, 77).unwrap()
        }),
        ("hole", |volume, file| {
            volume
                .fallocate(file, Fallocate::PunchHole, 0, 2 * SECTOR)
                .unwrap();
        }),
        ("reserve", |volume, file| {
            let reserve = Fallocate::Reserve { keep_size: true };
            volume.fallocate(file, reserve, 2 * MIB, SECTOR).unwrap();
        }),
        ("mode", |volume, file| {
            let set = SetAttr {
                mode: Some(0o600),
                ..SetAttr::default()
            };
            volume.set_attr(file, &set).unwrap();
        }),
        ("xattr", |volume, file| {
            volume
                .set_xattr(file, b"user.a", b"b", XattrMode::default())
                .unwrap();
        }),
        ("flags", |volume, file| {
            volume
                .set_inode_flags(file, InodeFlags::NODATACOW | InodeFlags::NOATIME)
                .unwrap();
        }),
        ("link", |volume, file| {
            let top = volume.root_dir(RootId::FS_TREE).unwrap();
            volume.link(file, top, b"second").unwrap();
        }),
        ("rename", |volume, _| {
            let top = volume.root_dir(RootId::FS_TREE).unwrap();
            volume
                .rename(top, b"file", (top, b"other"), RenameMode::NoReplace)
                .unwrap();
        }),
    ];
    for (name, change) in changes {
        let (recorded, file) = recorded(&nocow());
        let volume = &recorded.volume;
        volume.write(file, SECTOR, &[2; SECTOR as usize]).unwrap();
        volume.fdatasync(file).unwrap();
        let before = commits(volume);
        change(volume, file);
        // A later change of only times hides nothing.
        volume.write(file, 0, &[3; 16]).unwrap();
        volume.fdatasync(file).unwrap();
        assert_eq!(commits(volume), before + 1, "{name}");
        volume.write(file, 0, &[4; 16]).unwrap();
        volume.fdatasync(file).unwrap();
        let again = commits(volume) - before - 1;
        // The second write allocates the range of the hole.
        assert_eq!(again, 0, "{name}");
    }
}

#[test]
fn the_changes_of_others_stay_uncommitted() {
    let (recorded, file) = recorded(&nocow());
    let volume = &recorded.volume;
    let before = commits(volume);
    let other = recorded.file("other", SECTOR);
    volume.write(file, 0, &[2; SECTOR as usize]).unwrap();
    volume.fdatasync(file).unwrap();
    assert_eq!(commits(volume), before);
    volume.fdatasync(other).unwrap();
    assert_eq!(commits(volume), before + 1);
}

#[test]
fn a_file_that_was_not_in_use_is_a_flush_after_its_first_commit() {
    let (recorded, _) = recorded(&nocow());
    let device: Arc<dyn BlockDevice> = {
        recorded.volume.close().unwrap();
        recorded.device.clone()
    };
    let devices = vec![(PathBuf::from("memory"), device)];
    let volume = Volume::from_devices(devices, &nocow()).unwrap();
    let file = find(&volume, "file");
    let overwrite = |byte| {
        volume.write(file, 0, &[byte; SECTOR as usize]).unwrap();
        volume.fdatasync(file).unwrap();
        commits(&volume)
    };
    let first = overwrite(2);
    assert_eq!(overwrite(3), first);
    assert_eq!(overwrite(4), first);
}

/// A sync of a file with nothing to commit does not wait for a commit in progress.
#[test]
fn a_sync_of_what_is_committed_waits_for_no_commit() {
    type Sync = fn(&Volume, FileId) -> crate::Result<()>;
    let syncs: [(&str, bool, Sync); 3] = [
        ("fdatasync", false, |volume, file| volume.fdatasync(file)),
        ("logged fdatasync", true, |volume, file| {
            volume.fdatasync(file)
        }),
        ("logged fsync", true, |volume, _| {
            volume.fsync(find(volume, "unchanged"))
        }),
    ];
    for (name, logs, sync) in syncs {
        let recorded = Recorded::open(&nocow().fsync_log(logs));
        let (device, volume) = (&recorded.device, &recorded.volume);
        let file = recorded.file("file", MIB);
        recorded.file("unchanged", MIB);
        volume.sync().unwrap();
        let overwrite = |byte| {
            volume
                .write(file, SECTOR, &[byte; SECTOR as usize])
                .unwrap();
            volume.fdatasync(file).unwrap();
        };
        overwrite(2);
        volume.sync().unwrap();
        recorded.file("other", MIB);
        volume.files.write_back_all().unwrap();
        device.hold_next();
        let in_time = thread::scope(|scope| {
            scope.spawn(|| volume.sync().unwrap());
            device.wait_for_waiter();
            let (done, is_done) = mpsc::channel();
            scope.spawn(move || {
                volume
                    .write(file, SECTOR, &[3; SECTOR as usize])
                    .and_then(|()| sync(volume, file))
                    .unwrap();
                done.send(()).unwrap();
            });
            let in_time = is_done.recv_timeout(Duration::from_secs(20));
            device.release();
            in_time
        });
        assert!(in_time.is_ok(), "{name}");
    }
}

/// WRITER-5
#[test]
fn a_flush_that_fails_lets_no_later_sync_succeed() {
    let memory = new_device(&MkfsOptions::default(), 512 * MIB);
    let device = Arc::new(FaultDevice::new(memory));
    let devices = vec![(PathBuf::from("memory"), device.clone() as _)];
    let volume = Volume::from_devices(devices, &nocow().fsync_log(true)).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let files = [b"a", b"b"].map(|name| {
        let file = volume.create(top, name, &NewInode::file(0o644)).unwrap();
        volume.write(file, 0, &[1; SECTOR as usize]).unwrap();
        file
    });
    volume.sync().unwrap();
    for file in files {
        // A direct write in place.
        volume.write_direct(file, 0, &[2; SECTOR as usize]).unwrap();
    }
    device.add(Fault::Flush {
        nth: device.counts().flushes,
    });
    for file in files {
        let synced = volume.fdatasync(file);
        assert!(synced.is_err(), "{file:?}");
    }
    assert!(matches!(volume.sync(), Err(Error::Aborted(_))));
}

//! Threads that must not wait: refused calls, which change nothing, and calls that never wait.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ubtrfs_device::nonblocking::scope;
use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::SlowDevice;

use super::fixture::{MIB, Rig, assert_sound, options};
use crate::{
    Error, Fallocate, FileId, NewInode, OpenOptions, RenameMode, Rescue, Result, SetAttr, Volume,
    XattrMode,
};

/// Opens a volume on a device whose reads always block.
fn open_cold(device: &Arc<MemDevice>, options: &OpenOptions) -> Arc<Volume> {
    let slow = SlowDevice::new(device.clone(), Duration::ZERO);
    let device: Arc<dyn BlockDevice> = Arc::new(slow);
    Volume::from_devices(vec![(PathBuf::from("memory"), device)], options).unwrap()
}

fn top(volume: &Volume) -> FileId {
    volume.root_dir(RootId::FS_TREE).unwrap()
}

/// Creates a volume with a directory `dir` of enough files for several blocks, and a file `data` with
/// contents on the device.
fn filled() -> Arc<MemDevice> {
    let rig = Rig::on(&MkfsOptions::default(), 512 * MIB, options());
    let volume = rig.volume();
    let dir = volume
        .create(top(volume), b"dir", &NewInode::directory(0o755))
        .unwrap();
    for number in 0..2000 {
        let name = format!("file {number}");
        volume
            .create(dir, name.as_bytes(), &NewInode::file(0o644))
            .unwrap();
    }
    let data = volume
        .create(top(volume), b"data", &NewInode::file(0o644))
        .unwrap();
    volume.write(data, 0, &vec![7; 1 << 16]).unwrap();
    volume.sync().unwrap();
    Arc::clone(&rig.device)
}

type Call = fn(&Volume) -> Result<()>;

fn in_top(volume: &Volume, name: &str) -> Result<FileId> {
    volume
        .lookup(top(volume), name.as_bytes())?
        .ok_or(Error::NotFound)
}

const CALLS: &[(&str, Call)] = &[
    ("lookup", |v| in_top(v, "dir").map(drop)),
    ("attr", |v| v.attr(top(v)).map(drop)),
    ("readdir", |v| {
        v.readdir(top(v), 0, &mut |_| ControlFlow::Continue(()))
    }),
    ("read", |v| {
        let mut buf = [0; 100];
        let len = v.read(in_top(v, "data")?, 5000, &mut buf)?;
        assert_eq!(buf[..len], [7; 100]);
        Ok(())
    }),
    ("create", |v| {
        let new = NewInode::file(0o644);
        v.create(top(v), b"new", &new).map(drop)
    }),
    ("link", |v| v.link(in_top(v, "data")?, top(v), b"link")),
    ("rename", |v| {
        let to = (top(v), &b"moved"[..]);
        v.rename(top(v), b"data", to, RenameMode::Replace)
    }),
    ("unlink", |v| v.unlink(top(v), b"data")),
    ("rmdir", |v| match v.rmdir(top(v), b"dir") {
        Err(Error::NotEmpty(_)) => Ok(()),
        other => other,
    }),
    ("set_attr", |v| {
        let set = SetAttr {
            mode: Some(0o600),
            ..SetAttr::default()
        };
        v.set_attr(top(v), &set)
    }),
    ("set_xattr", |v| {
        v.set_xattr(top(v), b"user.a", b"b", XattrMode::Any)
    }),
    ("write", |v| v.write(in_top(v, "data")?, 3, b"bytes")),
    ("truncate", |v| v.truncate(in_top(v, "data")?, 10)),
    ("fallocate", |v| {
        v.fallocate(in_top(v, "data")?, Fallocate::PunchHole, 0, 4096)
    }),
    ("sync", |v| v.sync()),
    ("fsync", |v| v.fsync(in_top(v, "data")?)),
    ("create_subvolume", |v| {
        let root = NewInode::directory(0o755);
        v.create_subvolume(top(v), b"sub", &root).map(drop)
    }),
    ("snapshot", |v| {
        v.snapshot(RootId::FS_TREE, top(v), b"snap", true).map(drop)
    }),
];

#[test]
fn with_nothing_at_hand_every_call_would_wait_and_does_nothing() {
    let device = filled();
    for (name, call) in CALLS {
        let volume = open_cold(&device, &options());
        let before = volume.superblock().generation.get();
        let refused = scope(|| call(&volume));
        assert!(
            refused.as_ref().is_err_and(Error::is_would_block),
            "{name}: {refused:?}"
        );
        volume.sync().unwrap();
        assert_eq!(volume.superblock().generation.get(), before, "{name}");
        assert_eq!(volume.pool().read_error_count(), 0, "{name}");
        // Continue with a copy, so that the next call finds the same state.
        drop(volume);
        let copy = Arc::new(MemDevice::clone(&device));
        let volume = open_cold(&copy, &options());
        call(&volume).unwrap_or_else(|error| panic!("{name}: {error}"));
        volume.close().unwrap();
        assert_sound(&copy);
    }
}

#[test]
fn with_everything_at_hand_no_call_would_wait() {
    let device = filled();
    let volume = open_cold(&device, &options());
    let top = top(&volume);
    let dir = in_top(&volume, "dir").unwrap();
    // Their later errors would follow the reads.
    let mut all = Vec::new();
    volume
        .readdir(dir, 0, &mut |entry| {
            all.push(entry);
            ControlFlow::Continue(())
        })
        .unwrap();
    let data = in_top(&volume, "data").unwrap();
    for entry in &all {
        assert_eq!(volume.lookup(dir, &entry.name).unwrap(), Some(entry.id));
        volume.attr(entry.id).unwrap();
    }
    let new = NewInode::file(0o644);
    volume.create(dir, b"first", &new).unwrap();
    volume.unlink(dir, b"first").unwrap();
    scope(|| {
        for (number, entry) in all.iter().enumerate() {
            let name = format!("new {number}");
            let made = volume.create(dir, name.as_bytes(), &new).unwrap();
            volume.write(made, 0, &vec![1; 5000]).unwrap();
            let mut read = [0; 5000];
            assert_eq!(volume.read(made, 0, &mut read).unwrap(), 5000);
            assert_eq!(read, [1; 5000]);
            let held = volume.open_file(made).unwrap();
            assert!(held.close().is_ok());
            volume.attr(entry.id).unwrap();
            let moved = format!("moved {number}");
            let to = (top, moved.as_bytes());
            let mode = RenameMode::Replace;
            volume.rename(dir, &entry.name, to, mode).unwrap();
            volume.link(entry.id, dir, &entry.name).unwrap();
            volume.unlink(dir, &entry.name).unwrap();
            volume.unlink(top, moved.as_bytes()).unwrap();
            volume
                .set_xattr(made, b"user.a", b"b", XattrMode::Any)
                .unwrap();
        }
        let mut left = 0;
        volume
            .readdir(dir, 0, &mut |_| {
                left += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(left, all.len());
        let mut buf = [0; 10];
        assert!(
            volume
                .read(data, 0, &mut buf)
                .is_err_and(|e| e.is_would_block())
        );
    });
    volume.sync().unwrap();
    assert_eq!(volume.read(data, 0, &mut [0; 10]).unwrap(), 10);
}

#[test]
fn data_that_a_device_has_at_hand_is_read_without_waiting() {
    let rig = Rig::on(&MkfsOptions::default(), 256 * MIB, options());
    let volume = rig.volume();
    let file = rig.file(InodeFlags::empty());
    volume.write(file, 0, &vec![9; 300_000]).unwrap();
    volume.sync().unwrap();
    let mut buf = vec![0; 300_000];
    scope(|| volume.read(file, 0, &mut buf)).unwrap();
    assert!(buf.iter().all(|&byte| byte == 9));
}

#[test]
fn a_lock_of_another_thread_would_have_to_be_waited_for() {
    let rig = Rig::on(&MkfsOptions::default(), 256 * MIB, options());
    let volume = rig.volume();
    let file = rig.file(InodeFlags::empty());
    let inode = volume.inodes.get(file).unwrap();
    let held = inode.lock.write();
    let refused = scope(|| volume.attr(file));
    assert!(refused.is_err_and(|error| error.is_would_block()));
    let refused = scope(|| volume.unlink(top(volume), b"f0"));
    assert!(refused.is_err_and(|error| error.is_would_block()));
    drop(held);
    // As a write-back does.
    let held = inode.extents.lock().unwrap();
    let refused = scope(|| volume.unlink(top(volume), b"f0"));
    assert!(refused.is_err_and(|error| error.is_would_block()));
    assert_eq!(volume.attr(file).unwrap().nlink, 1);
    drop(held);
    scope(|| volume.unlink(top(volume), b"f0")).unwrap();
}

#[test]
fn last_hold_on_a_file_without_a_name_is_released() {
    let rig = Rig::on(&MkfsOptions::default(), 256 * MIB, options());
    let volume = rig.volume();
    let file = rig.file(InodeFlags::empty());
    let first = volume.open_file(file).unwrap();
    let second = volume.open_file(file).unwrap();
    volume.unlink(top(volume), b"f0").unwrap();
    assert!(scope(|| first.close()).is_ok());
    let second = scope(|| second.close()).unwrap_err();
    assert_eq!(volume.attr(file).unwrap().nlink, 0);
    assert!(second.close().is_ok());
    assert!(matches!(volume.attr(file), Err(Error::NoSuchInode(_))));
    rig.assert_sound();
}

#[test]
fn writes_beyond_the_buffers_budget_would_wait() {
    let rig = Rig::on(
        &MkfsOptions::default(),
        256 * MIB,
        options().buffer_bytes(MIB),
    );
    let volume = rig.volume();
    let file = rig.file(InodeFlags::empty());
    let part = vec![3; 100_000];
    let mut written = 0;
    let refused = loop {
        match scope(|| volume.write(file, written, &part)) {
            Ok(()) => written += part.len() as u64,
            Err(error) => break error,
        }
        assert!(written < 10 * MIB);
    };
    assert!(refused.is_would_block(), "{refused}");
    assert_eq!(volume.attr(file).unwrap().size, written);
    volume.write(file, written, &part).unwrap();
    scope(|| volume.write(file, 0, &part)).unwrap();
    rig.assert_sound();
}

#[test]
fn changes_beyond_the_budget_of_a_transaction_would_wait() {
    let rig = Rig::on(
        &MkfsOptions::default(),
        256 * MIB,
        options().delta_bytes(200_000),
    );
    let volume = rig.volume();
    let new = NewInode::file(0o644);
    let mut made = 0;
    rig.file(InodeFlags::empty());
    let create = |number: u32| {
        let name = format!("name {number}");
        volume.create(top(volume), name.as_bytes(), &new)
    };
    let refused = loop {
        match scope(|| create(made)) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
        assert!(made < 10_000);
    };
    assert!(refused.is_would_block(), "{refused}");
    create(made).unwrap();
    scope(|| create(made + 1)).unwrap();
    rig.assert_sound();
}

#[test]
fn tree_that_is_not_at_hand_is_not_passed_over_as_damaged() {
    let device = filled();
    let rescue = Rescue {
        ignore_bad_roots: true,
        ..Rescue::default()
    };
    let volume = open_cold(&device, &OpenOptions::new().rescue(rescue));
    let refused = scope(|| volume.statfs());
    assert!(refused.is_err_and(|error| error.is_would_block()));
    assert!(volume.statfs().unwrap().available_bytes > 0);
}

/// Less than a sector, and too long to be copied as small data: no whole sector can be shared.
#[test]
fn a_copy_of_less_than_a_large_sector_ends_where_it_was_to_end() {
    let mkfs = MkfsOptions {
        sectorsize: 64 << 10,
        nodesize: Some(64 << 10),
        ..MkfsOptions::default()
    };
    let rig = Rig::on(&mkfs, 512 * MIB, options());
    let volume = rig.volume();
    let (from, copy) = (rig.file(InodeFlags::empty()), rig.file(InodeFlags::empty()));
    volume.write(from, 0, &[6; 100_000]).unwrap();
    assert_eq!(volume.copy_range(from, 0, 40_000, copy, 0).unwrap(), 40_000);
    assert_eq!(volume.attr(copy).unwrap().size, 40_000);
    rig.assert_sound();
}

#[test]
fn a_small_copy_of_what_is_buffered_waits_for_nothing() {
    let rig = Rig::on(&MkfsOptions::default(), 256 * MIB, options());
    let volume = rig.volume();
    let (small, large, copy) = (
        rig.file(InodeFlags::empty()),
        rig.file(InodeFlags::empty()),
        rig.file(InodeFlags::empty()),
    );
    let bytes: Vec<u8> = (0..20_000).map(|at: u32| at as u8).collect();
    volume.write(small, 0, &bytes).unwrap();
    volume.write(large, 0, &[9; 1 << 16]).unwrap();
    let copied = scope(|| volume.copy_range(small, 0, 1 << 20, copy, 0));
    assert_eq!(copied.unwrap(), 20_000);
    let refused = scope(|| volume.copy_range(large, 0, 1 << 16, copy, 0));
    assert!(refused.unwrap_err().is_would_block());
    let mut found = vec![0; bytes.len()];
    volume.read(copy, 0, &mut found).unwrap();
    assert!(found == bytes);
    rig.assert_sound();
}

#[test]
fn a_file_with_extents_is_shared_without_waiting_and_to_its_end() {
    let rig = Rig::on(&MkfsOptions::default(), 256 * MIB, options());
    let volume = rig.volume();
    let (from, copy) = (rig.file(InodeFlags::empty()), rig.file(InodeFlags::empty()));
    let bytes: Vec<u8> = (0..50_000).map(|at: u32| (at % 251) as u8).collect();
    volume.write(from, 0, &bytes).unwrap();
    volume.sync().unwrap();
    let written = || volume.writer_stats().unwrap().data_bytes;
    let (before, old) = (written(), volume.attr(copy).unwrap());
    let copied = scope(|| volume.copy_range(from, 0, 1 << 20, copy, 0));
    assert_eq!(copied.unwrap(), 50_000);
    let now = volume.attr(copy).unwrap();
    assert_eq!(now.size, 50_000);
    assert!(now.mtime > old.mtime && now.ctime > old.ctime);
    // In the middle of a longer file only whole sectors can be shared. The rest must be read.
    let refused = scope(|| volume.copy_range(from, 0, 20_000, copy, 4096));
    assert!(refused.unwrap_err().is_would_block());
    volume.sync().unwrap();
    assert_eq!(written(), before);
    let mut found = vec![0; bytes.len()];
    volume.read(copy, 0, &mut found).unwrap();
    assert!(found == bytes);
    rig.assert_sound();
}

/// Returns the wait counters of a mount.
fn waits(volume: &Volume) -> (u64, u64) {
    let stats = volume.writer_stats().unwrap();
    for waits in [stats.delta_waits, stats.buffer_waits] {
        assert_eq!(waits.count > 0, waits.ns > 0);
    }
    (stats.delta_waits.count, stats.buffer_waits.count)
}

fn fill(rig: &Rig) {
    let file = rig.file(InodeFlags::empty());
    for at in 0..64 {
        rig.volume()
            .write(file, at << 16, &vec![at as u8; 1 << 16])
            .unwrap();
    }
}

#[test]
fn writers_that_wait_for_room_in_the_buffer_are_counted() {
    for (buffer_bytes, are_many) in [(1 << 20, true), (64 << 20, false)] {
        let options = options().buffer_bytes(buffer_bytes);
        let rig = Rig::on(&MkfsOptions::default(), 512 * MIB, options);
        fill(&rig);
        let (for_delta, for_buffer) = waits(rig.volume());
        assert_eq!(for_delta, 0);
        // Each wait has written back all buffered data.
        let most = if are_many { 4 } else { 0 };
        assert!(
            for_buffer <= most && (for_buffer > 0) == are_many,
            "{for_buffer}"
        );
        rig.assert_sound();
    }
}

/// With and without a committing thread.
#[test]
fn operations_that_wait_for_room_in_the_delta_are_counted() {
    const NEVER: Duration = Duration::from_secs(1 << 20);
    for interval in [None, Some(NEVER)] {
        for (delta_bytes, are_some) in [(64 << 10, true), (64 << 20, false)] {
            let options = options().commit_interval(interval).delta_bytes(delta_bytes);
            let rig = Rig::on(&MkfsOptions::default(), 512 * MIB, options);
            for _ in 0..2000 {
                rig.file(InodeFlags::empty());
            }
            let (for_delta, for_buffer) = waits(rig.volume());
            assert_eq!((for_delta > 0, for_buffer), (are_some, 0), "{interval:?}");
            rig.assert_sound();
        }
    }
}

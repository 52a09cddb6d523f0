//! Lazy times: always visible, written with any other change or sync, and lost at most by a crash.

use std::sync::Arc;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_fs::{AtimePolicy, FileId, FileTime, SetAttr, SetTime, Volume};

use crate::fixture::{World, attr, find};

/// Creates a volume with a synced file. Times are lazy afterwards.
fn lazy_world() -> (World, FileId) {
    let world = World::new();
    let id = world.file("file");
    let volume = world.volume();
    volume.write(id, 0, &[1; 4096]).unwrap();
    volume.sync().unwrap();
    volume.set_lazy_times(true).unwrap();
    (world, id)
}

fn read(volume: &Volume, id: FileId) -> FileTime {
    volume.touch_atime(id, AtimePolicy::Always).unwrap();
    volume.attr(id).unwrap().atime
}

/// Commits without a sync.
fn commit(world: &World) {
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let root = ubtrfs_fs::NewInode::directory(0o755);
    let name = format!("subvolume{number}");
    let volume = world.volume();
    volume
        .create_subvolume(world.top(), name.as_bytes(), &root)
        .unwrap();
}

fn durable_atime(world: &World, path: &str) -> FileTime {
    attr(&world.after_a_crash(), path).atime
}

#[test]
fn times_alone_are_shown_and_stay_out_of_commits() {
    let (world, id) = lazy_world();
    let old = world.volume().attr(id).unwrap();
    let new = read(world.volume(), id);
    assert!(new > old.atime);
    commit(&world);
    assert_eq!(world.volume().attr(id).unwrap().atime, new);
    assert_eq!(world.volume().stored_attr(id).unwrap().atime, new);
    assert_eq!(attr(&world.after_a_crash(), "file"), old);
    world.assert_sound();
}

#[test]
fn sync_writes_them_all_and_fsync_those_of_the_file() {
    let (world, id) = lazy_world();
    let other = world.file("other");
    let (volume, old) = (world.volume(), world.volume().attr(other).unwrap().atime);
    volume.sync().unwrap();
    let (new, new_of_other) = (read(volume, id), read(volume, other));
    volume.fsync(id).unwrap();
    assert_eq!(durable_atime(&world, "file"), new);
    assert_eq!(durable_atime(&world, "other"), old);
    volume.sync().unwrap();
    assert_eq!(durable_atime(&world, "other"), new_of_other);
    assert_eq!(volume.attr(other).unwrap().atime, new_of_other);
}

type Change = dyn Fn(&World, FileId);

/// LAZY-1
#[test]
fn any_other_change_of_the_inode_writes_them() {
    let changes: [&Change; 5] = [
        &|world, id| {
            let mode = SetAttr {
                mode: Some(0o600),
                ..SetAttr::default()
            };
            world.volume().set_attr(id, &mode).unwrap();
        },
        &|world, id| {
            let volume = world.volume();
            volume.link(id, world.top(), b"link").unwrap();
        },
        &|world, id| {
            let mode = ubtrfs_fs::XattrMode::Any;
            world.volume().set_xattr(id, b"user.a", b"b", mode).unwrap();
        },
        &|world, id| world.volume().truncate(id, 5).unwrap(),
        &|world, id| {
            let time = SetAttr {
                mtime: Some(SetTime::Now),
                ..SetAttr::default()
            };
            world.volume().set_attr(id, &time).unwrap();
        },
    ];
    for change in changes {
        let (world, id) = lazy_world();
        let new = read(world.volume(), id);
        change(&world, id);
        commit(&world);
        assert_eq!(durable_atime(&world, "file"), new);
        world.assert_sound();
    }
}

#[test]
fn overwriting_in_place_changes_times_alone() {
    let (world, _) = lazy_world();
    let id = world.file("in place");
    let volume = world.volume();
    volume.set_inode_flags(id, InodeFlags::NODATACOW).unwrap();
    volume.write(id, 0, &[1; 8192]).unwrap();
    volume.sync().unwrap();
    let old = volume.attr(id).unwrap();
    let overwrites: [&dyn Fn(); 2] = [
        &|| {
            volume.write(id, 0, &[2; 4096]).unwrap();
            volume.write_direct(id, 4096, &[2; 4096]).unwrap();
        },
        // Like a kernel that collects writes and keeps their times.
        &|| {
            let of_writes = SetAttr {
                mtime: Some(SetTime::Now),
                of_writes: true,
                ..SetAttr::default()
            };
            volume.set_attr(id, &of_writes).unwrap();
        },
    ];
    for overwrite in overwrites {
        let before = volume.attr(id).unwrap();
        overwrite();
        let new = volume.attr(id).unwrap();
        assert!(new.mtime > before.mtime && new.ctime > before.ctime);
        commit(&world);
        let crashed = world.after_a_crash();
        assert_eq!(attr(&crashed, "in place"), old);
    }
    let newest = volume.attr(id).unwrap();
    volume.fsync(id).unwrap();
    let crashed = world.after_a_crash();
    assert_eq!(attr(&crashed, "in place").mtime, newest.mtime);
    let mut found = [0; 8192];
    crashed.read(id, 0, &mut found).unwrap();
    assert_eq!(found, [2; 8192]);
}

#[test]
fn data_brings_the_times_of_its_write() {
    let (world, id) = lazy_world();
    let volume = world.volume();
    volume.append(id, b"more").unwrap();
    let new = volume.attr(id).unwrap().mtime;
    volume.sync().unwrap();
    let crashed = attr(&world.after_a_crash(), "file");
    assert_eq!((crashed.mtime, crashed.size), (new, 4100));
}

#[test]
fn closing_writes_them() {
    let (mut world, id) = lazy_world();
    let new = read(world.volume(), id);
    world.reopen();
    assert_eq!(attr(world.volume(), "file").atime, new);
}

#[test]
fn snapshots_and_subvolumes_that_become_read_only_have_them() {
    let (world, id) = lazy_world();
    let volume = world.volume();
    let new = read(volume, id);
    volume
        .snapshot(RootId::FS_TREE, world.top(), b"snapshot", true)
        .unwrap();
    let crashed = world.after_a_crash();
    assert_eq!(attr(&crashed, "snapshot/file").atime, new);
    assert_eq!(attr(volume, "snapshot/file").atime, new);
    let newer = read(volume, id);
    volume.set_read_only(RootId::FS_TREE, true).unwrap();
    volume.set_read_only(RootId::FS_TREE, false).unwrap();
    commit(&world);
    assert_eq!(durable_atime(&world, "file"), newer);
}

#[test]
fn deleted_files_and_subvolumes_leave_none_behind() {
    let (world, id) = lazy_world();
    let volume = world.volume();
    commit(&world);
    let root = ubtrfs_fs::NewInode::directory(0o755);
    let subvolume = volume.create_subvolume(world.top(), b"s", &root).unwrap();
    let inner = world.file("s/inner");
    read(volume, inner);
    read(volume, id);
    volume.unlink(world.top(), b"file").unwrap();
    volume.delete_subvolume(world.top(), b"s").unwrap();
    volume.free_deleted_subvolumes().unwrap();
    volume.sync().unwrap();
    world.assert_sound();
    assert!(find(volume, "file").is_err() && volume.attr(inner).is_err());
    assert_eq!(inner.root, subvolume);
}

#[test]
fn they_are_written_when_they_are_not_wanted_any_more() {
    let (world, id) = lazy_world();
    let volume = world.volume();
    let new = read(volume, id);
    volume.set_lazy_times(false).unwrap();
    commit(&world);
    assert_eq!(durable_atime(&world, "file"), new);
    let newer = read(volume, id);
    commit(&world);
    assert_eq!(durable_atime(&world, "file"), newer);
}

#[test]
fn no_more_than_some_stay_in_memory_and_the_oldest_go_first() {
    const FILES: usize = 12_000;
    let (world, _) = lazy_world();
    let volume: &Arc<Volume> = world.volume();
    let ids: Vec<FileId> = (0..FILES).map(|n| world.file(&format!("f{n}"))).collect();
    volume.sync().unwrap();
    let new: Vec<FileTime> = ids.iter().map(|&id| read(volume, id)).collect();
    commit(&world);
    let crashed = world.after_a_crash();
    let is_durable: Vec<bool> = ids
        .iter()
        .zip(&new)
        .map(|(&id, new)| crashed.attr(id).unwrap().atime == *new)
        .collect();
    let kept = is_durable.iter().filter(|durable| !**durable).count();
    assert!((6000..=8192).contains(&kept), "{kept}");
    assert!(is_durable.is_sorted_by(|earlier, later| earlier >= later));
    for (&id, new) in ids.iter().zip(&new) {
        assert_eq!(volume.attr(id).unwrap().atime, *new);
    }
    volume.sync().unwrap();
    let crashed = world.after_a_crash();
    for (&id, new) in ids.iter().zip(&new) {
        assert_eq!(crashed.attr(id).unwrap().atime, *new);
    }
}

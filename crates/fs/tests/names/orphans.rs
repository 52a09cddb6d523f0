//! Unnamed inodes: held, temporary, or left by a crash.

use ubtrfs_format::ids::{RootId, objectid};
use ubtrfs_format::key::KeyType;
use ubtrfs_fs::{Error, NewInode, SetAttr, XattrMode};

use crate::fixture::{World, at, is_missing, keys, keys_of};

fn orphans(volume: &ubtrfs_fs::Volume) -> Vec<u64> {
    let keys = keys(volume, RootId::FS_TREE, objectid::ORPHAN);
    assert!(keys.iter().all(|key| key.item_type == KeyType::ORPHAN_ITEM));
    keys.iter().map(|key| key.offset).collect()
}

/// ORPHAN-1
#[test]
fn held_file_outlives_its_last_name() {
    let world = World::new();
    let id = world.file("file");
    let volume = world.volume();
    let first = volume.open_file(id).unwrap();
    let second = volume.open_file(id).unwrap();
    volume.unlink(world.top(), b"file").unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.attr(id).unwrap().nlink, 0);
    assert_eq!(orphans(volume), [id.ino.0]);
    volume
        .set_xattr(id, b"user.a", b"x", XattrMode::Any)
        .unwrap();
    drop(first);
    assert_eq!(volume.attr(id).unwrap().nlink, 0);
    assert!(matches!(
        volume.link(id, world.top(), b"back"),
        Err(Error::NotFound)
    ));
    drop(second);
    assert!(keys_of(volume, id).is_empty());
    assert!(orphans(volume).is_empty());
    assert!(matches!(volume.open_file(id), Err(Error::NoSuchInode(_))));
}

#[test]
fn nothing_is_made_in_a_directory_without_a_name() {
    let world = World::new();
    let dir = world.dir("dir");
    let volume = world.volume();
    let held = volume.open_file(dir).unwrap();
    volume.rmdir(world.top(), b"dir").unwrap();
    let new = NewInode::file(0o600);
    assert!(matches!(
        volume.create(dir, b"x", &new),
        Err(Error::NotFound)
    ));
    drop(held);
    assert!(keys_of(volume, dir).is_empty());
}

#[test]
fn file_without_a_name_goes_with_its_handle_or_gets_one() {
    let mut world = World::new();
    let top = world.top();
    let new = NewInode::file(0o640);
    let volume = world.volume();
    let gone = volume.tmpfile(top, &new, true).unwrap();
    let gone_id = gone.id();
    assert_eq!(volume.attr(gone_id).unwrap().nlink, 0);
    assert_eq!(orphans(volume), [gone_id.ino.0]);
    drop(gone);
    assert!(keys_of(volume, gone_id).is_empty());
    let kept = volume.tmpfile(top, &new, true).unwrap();
    let id = kept.id();
    volume.link(id, top, b"kept").unwrap();
    drop(kept);
    let private = volume.tmpfile(top, &new, false).unwrap();
    assert!(matches!(
        volume.link(private.id(), top, b"x"),
        Err(Error::NotFound)
    ));
    // The error for another subvolume has priority.
    let root = NewInode::directory(0o755);
    let other = volume.create_subvolume(top, b"other", &root).unwrap();
    let other = volume.root_dir(other).unwrap();
    assert!(matches!(
        volume.link(private.id(), other, b"x"),
        Err(Error::NotFound)
    ));
    drop(private);
    world.shows(|volume| {
        assert_eq!(at(volume, "kept"), id);
        assert_eq!(volume.attr(id).unwrap().nlink, 1);
        assert!(orphans(volume).is_empty());
    });
}

#[test]
fn files_that_a_crash_left_without_a_name_go_when_the_subvolume_is_written_to() {
    let mut world = World::new();
    let (file, dir) = (world.file("file"), world.dir("dir"));
    let volume = world.volume();
    // Prevents the reuse of the inode numbers below.
    world.file("last");
    let held = [file, dir].map(|id| volume.open_file(id).unwrap());
    volume.unlink(world.top(), b"file").unwrap();
    volume.rmdir(world.top(), b"dir").unwrap();
    let temporary = volume
        .tmpfile(world.top(), &NewInode::file(0o600), true)
        .unwrap();
    let ids = [file.ino.0, dir.ino.0, temporary.id().ino.0];
    volume.sync().unwrap();
    let bytes = world.snapshot_of_device();
    drop((held, temporary));
    world = World::from_bytes(bytes);
    assert_eq!(orphans(world.volume()), ids);
    world.volume().unlink(world.top(), b"last").unwrap();
    world.shows(|volume| {
        assert!(orphans(volume).is_empty());
        for id in [file, dir] {
            assert!(keys_of(volume, id).is_empty());
        }
        assert!(is_missing(volume, "file"));
    });
}

#[test]
fn inode_with_many_items_goes_in_steps() {
    let mut world = World::with_features("", 4 << 10);
    let id = world.file("file");
    for number in 0..1000 {
        let name = format!("user.{number}");
        let volume = world.volume();
        volume
            .set_xattr(id, name.as_bytes(), &[7; 200], XattrMode::Any)
            .unwrap();
    }
    world.volume().sync().unwrap();
    world.volume().unlink(world.top(), b"file").unwrap();
    world.shows(|volume| {
        assert!(keys_of(volume, id).is_empty());
        assert!(orphans(volume).is_empty());
    });
}

#[test]
fn file_with_many_extents_goes_in_steps() {
    const EXTENTS: u64 = 700;
    let mut world = World::new();
    let id = world.file("file");
    let volume = world.volume();
    for extent in 0..EXTENTS {
        volume
            .write(id, extent * 8192, &[extent as u8; 4096])
            .unwrap();
    }
    volume.sync().unwrap();
    assert!(keys_of(volume, id).len() as u64 > EXTENTS);
    let held = volume.open_file(id).unwrap();
    volume.unlink(world.top(), b"file").unwrap();
    let mut byte = [0];
    volume.read(id, 8192, &mut byte).unwrap();
    assert_eq!(byte, [1]);
    drop(held);
    world.shows(|volume| {
        assert!(keys_of(volume, id).is_empty());
        assert!(orphans(volume).is_empty());
    });
}

#[test]
fn data_written_to_a_file_without_a_name_goes_with_it() {
    let mut world = World::new();
    let new = NewInode::file(0o600);
    let volume = world.volume();
    let held = volume.tmpfile(world.top(), &new, true).unwrap();
    let id = held.id();
    volume.write(id, 0, &[1; 100_000]).unwrap();
    volume.sync().unwrap();
    volume.write(id, 50_000, &[2; 100_000]).unwrap();
    drop(held);
    world.shows(|volume| assert!(keys_of(volume, id).is_empty()));
}

#[test]
fn attributes_of_a_file_without_a_name_can_be_set() {
    let world = World::new();
    let volume = world.volume();
    let held = volume
        .tmpfile(world.top(), &NewInode::file(0o600), true)
        .unwrap();
    let set = SetAttr {
        mode: Some(0o444),
        ..SetAttr::default()
    };
    volume.set_attr(held.id(), &set).unwrap();
    assert_eq!(volume.attr(held.id()).unwrap().mode, 0o100_444);
}

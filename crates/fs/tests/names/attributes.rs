//! Modes, owners and times.

use ubtrfs_device::nonblocking;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_fs::{AtimePolicy, Error, FileTime, SetAttr, SetTime};

use crate::fixture::{World, attr};

const OLD: FileTime = FileTime { sec: -5, nsec: 3 };

#[test]
fn attributes_are_set_each_by_itself() {
    let mut world = World::new();
    let id = world.file("file");
    let before = attr(world.volume(), "file");
    let set = |set: SetAttr| world.volume().set_attr(id, &set).unwrap();
    set(SetAttr {
        mode: Some(0o4711),
        ..SetAttr::default()
    });
    set(SetAttr {
        uid: Some(12),
        ..SetAttr::default()
    });
    set(SetAttr {
        gid: Some(13),
        ..SetAttr::default()
    });
    set(SetAttr {
        atime: Some(SetTime::At(OLD)),
        mtime: Some(SetTime::Now),
        ..SetAttr::default()
    });
    world.shows(|volume| {
        let attr = attr(volume, "file");
        assert_eq!((attr.mode, attr.uid, attr.gid), (0o104_711, 12, 13));
        assert_eq!(attr.atime, OLD);
        assert!(attr.mtime > before.mtime && attr.ctime > before.ctime);
        assert_eq!(attr.otime, before.otime);
    });
}

#[test]
fn setuid_and_setgid_go_when_asked() {
    let world = World::new();
    let id = world.file("file");
    let set = |mode, clear_setid| {
        let set = SetAttr {
            mode,
            clear_setid,
            ..SetAttr::default()
        };
        world.volume().set_attr(id, &set).unwrap();
        world.volume().attr(id).unwrap().mode & 0o7777
    };
    assert_eq!(set(Some(0o6755), false), 0o6755);
    assert_eq!(set(None, true), 0o755);
    // Setgid without the group's execute bit means mandatory locking.
    assert_eq!(set(Some(0o6745), true), 0o2745);
}

#[test]
fn immutable_files_keep_their_attributes_and_append_only_ones_are_touched() {
    let world = World::new();
    let id = world.file("file");
    let volume = world.volume();
    let touch = SetAttr {
        mtime: Some(SetTime::Now),
        atime: Some(SetTime::Now),
        ..SetAttr::default()
    };
    let set_time = SetAttr {
        mtime: Some(SetTime::At(OLD)),
        ..SetAttr::default()
    };
    volume.set_inode_flags(id, InodeFlags::APPEND).unwrap();
    volume.set_attr(id, &touch).unwrap();
    assert!(matches!(
        volume.set_attr(id, &set_time),
        Err(Error::NotPermitted(_))
    ));
    volume.set_inode_flags(id, InodeFlags::IMMUTABLE).unwrap();
    assert!(matches!(
        volume.set_attr(id, &touch),
        Err(Error::NotPermitted(_))
    ));
}

#[test]
fn access_time_follows_the_policy() {
    let world = World::new();
    let id = world.file("file");
    let volume = world.volume();
    let atime = || volume.attr(id).unwrap().atime;
    let set = |time| {
        let set = SetAttr {
            atime: Some(SetTime::At(time)),
            mtime: Some(SetTime::At(OLD)),
            ctime: Some(OLD),
            ..SetAttr::default()
        };
        volume.set_attr(id, &set).unwrap();
    };
    let hour_ago = FileTime {
        sec: FileTime::now().sec - 3600,
        nsec: 0,
    };
    let week_ago = FileTime {
        sec: hour_ago.sec - 7 * 24 * 3600,
        nsec: 0,
    };
    set(hour_ago);
    volume.touch_atime(id, AtimePolicy::Relative).unwrap();
    volume.touch_atime(id, AtimePolicy::Never).unwrap();
    assert_eq!(atime(), hour_ago);
    volume.touch_atime(id, AtimePolicy::Always).unwrap();
    assert!(atime() > hour_ago);
    set(week_ago);
    volume.touch_atime(id, AtimePolicy::Relative).unwrap();
    assert!(atime() > hour_ago);
    set(OLD);
    volume.touch_atime(id, AtimePolicy::Relative).unwrap();
    assert!(atime() > hour_ago);
    set(hour_ago);
    volume.set_inode_flags(id, InodeFlags::NOATIME).unwrap();
    volume.touch_atime(id, AtimePolicy::Always).unwrap();
    assert_eq!(atime(), hour_ago);
}

/// A reader waits for nothing, and may be the first to change the subvolume.
#[test]
fn access_times_are_noted_before_anything_is_written() {
    let mut world = World::new();
    let id = world.file("file");
    let set = SetAttr {
        atime: Some(SetTime::At(OLD)),
        ..SetAttr::default()
    };
    world.volume().set_attr(id, &set).unwrap();
    world.reopen();
    assert_eq!(attr(world.volume(), "file").atime, OLD);
    let volume = world.volume();
    nonblocking::scope(|| volume.touch_atime(id, AtimePolicy::Relative)).unwrap();
    world.shows(|volume| assert!(attr(volume, "file").atime > OLD));
}

//! Removing names and inodes.

use ubtrfs_fs::{Error, NewInode, Volume, XattrMode};

use crate::fixture::{World, at, attr, indices, is_missing, keys_of, names};

#[test]
fn nothing_is_left_of_a_file() {
    let mut world = World::new();
    let id = world.file("file");
    let volume = world.volume();
    volume
        .set_xattr(id, b"user.a", b"value", XattrMode::Any)
        .unwrap();
    volume.sync().unwrap();
    volume.unlink(world.top(), b"file").unwrap();
    world.shows(|volume| {
        assert!(is_missing(volume, "file"));
        assert!(names(volume, "").is_empty());
        assert_eq!(attr(volume, "").size, 0);
        assert!(keys_of(volume, id).is_empty());
        assert!(matches!(volume.attr(id), Err(Error::NoSuchInode(_))));
    });
}

#[test]
fn calls_take_away_the_kind_they_are_for() {
    let world = World::new();
    world.dir("dir");
    world.file("file");
    let (volume, top) = (world.volume(), world.top());
    assert!(matches!(
        volume.unlink(top, b"dir"),
        Err(Error::IsADirectory(_))
    ));
    assert!(matches!(
        volume.rmdir(top, b"file"),
        Err(Error::NotADirectory(_))
    ));
    assert!(matches!(volume.unlink(top, b"none"), Err(Error::NotFound)));
    assert!(matches!(volume.rmdir(top, b"none"), Err(Error::NotFound)));
    let file = volume.lookup(top, b"file").unwrap().unwrap();
    assert!(matches!(
        volume.unlink(file, b"x"),
        Err(Error::NotADirectory(_))
    ));
}

#[test]
fn only_an_empty_directory_goes() {
    let mut world = World::new();
    let dir = world.dir("dir");
    world.file("dir/file");
    let top = world.top();
    assert!(matches!(
        world.volume().rmdir(top, b"dir"),
        Err(Error::NotEmpty(_))
    ));
    world.volume().sync().unwrap();
    assert!(matches!(
        world.volume().rmdir(top, b"dir"),
        Err(Error::NotEmpty(_))
    ));
    world.volume().unlink(dir, b"file").unwrap();
    world.volume().rmdir(top, b"dir").unwrap();
    world.shows(|volume| {
        assert!(is_missing(volume, "dir"));
        assert!(keys_of(volume, dir).is_empty());
    });
}

#[test]
fn index_of_the_last_entry_is_not_used_again() {
    let world = World::new();
    for round in 2..6 {
        world.file("file");
        assert_eq!(indices(world.volume(), ""), [round]);
        world.volume().unlink(world.top(), b"file").unwrap();
    }
}

#[test]
fn number_of_a_deleted_inode_is_not_used_again() {
    let world = World::new();
    let first = world.file("file");
    world.volume().unlink(world.top(), b"file").unwrap();
    assert!(world.file("file").ino > first.ino);
}

#[test]
fn directory_ends_before_what_is_made_later() {
    let mut world = World::new();
    world.file("a");
    world.file("b");
    world.volume().unlink(world.top(), b"b").unwrap();
    let end = |volume: &Volume| volume.dir_end(at(volume, "")).unwrap();
    assert_eq!(end(world.volume()), 4);
    world.file("c");
    assert_eq!(indices(world.volume(), ""), [2, 4]);
    world.shows(|volume| assert_eq!(end(volume), 5));
}

#[test]
fn listing_continues_while_entries_come_and_go() {
    let world = World::new();
    let (volume, top) = (world.volume(), world.top());
    for number in 0..100 {
        world.file(&format!("{number:03}"));
    }
    volume.sync().unwrap();
    let mut seen = Vec::new();
    let mut from = 0;
    loop {
        let mut more = false;
        volume
            .readdir(top, from, &mut |entry| {
                seen.push(String::from_utf8(entry.name).unwrap());
                from = entry.index + 1;
                more = true;
                std::ops::ControlFlow::Break(())
            })
            .unwrap();
        if !more {
            break;
        }
        let turn = seen.len();
        // Remove an entry that has been listed, and add another.
        volume.unlink(top, seen[turn - 1].as_bytes()).unwrap();
        if turn <= 50 {
            let name = format!("new{turn:03}");
            volume
                .create(top, name.as_bytes(), &NewInode::file(0o600))
                .unwrap();
        }
    }
    let old: Vec<String> = (0..100).map(|number| format!("{number:03}")).collect();
    let new: Vec<String> = (1..=50).map(|number| format!("new{number:03}")).collect();
    assert_eq!(seen, [old, new].concat());
    assert!(names(volume, "").is_empty());
}

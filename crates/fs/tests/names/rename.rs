//! Moving, replacing and exchanging names.

use ubtrfs_fs::{Error, FileKind, NewInode, RenameMode};

use crate::fixture::{World, at, attr, is_missing, keys_of, names};

use RenameMode::{Exchange, NoReplace, Replace};

fn rename(world: &World, from: &str, to: &str, mode: RenameMode) -> Result<(), Error> {
    let (dir, name) = world.place(from);
    world.volume().rename(dir, name, world.place(to), mode)
}

#[test]
fn file_moves_within_and_between_directories() {
    let mut world = World::new();
    let id = world.file("file");
    world.dir("dir");
    rename(&world, "file", "other", Replace).unwrap();
    world.shows(|volume| {
        assert_eq!(at(volume, "other"), id);
        assert!(is_missing(volume, "file"));
        assert_eq!(attr(volume, "").size, 2 * (5 + 3));
    });
    rename(&world, "other", "dir/deep", Replace).unwrap();
    world.shows(|volume| {
        assert_eq!(at(volume, "dir/deep"), id);
        assert_eq!(names(volume, ""), ["dir"]);
        assert_eq!((attr(volume, "").size, attr(volume, "dir").size), (6, 8));
        assert_eq!(attr(volume, "dir/deep").nlink, 1);
    });
}

#[test]
fn directory_moves_with_what_is_in_it() {
    let mut world = World::new();
    world.dir("a");
    let deep = world.dir("a/b");
    world.file("a/b/file");
    world.dir("c");
    rename(&world, "a/b", "c/d", Replace).unwrap();
    world.shows(|volume| {
        assert_eq!(at(volume, "c/d"), deep);
        assert_eq!(volume.parent(deep).unwrap(), at(volume, "c"));
        assert_eq!(names(volume, "c/d"), ["file"]);
        assert!(names(volume, "a").is_empty());
    });
}

#[test]
fn directory_does_not_move_into_itself() {
    let world = World::new();
    world.dir("a");
    world.dir("a/b");
    world.dir("a/b/c");
    for to in ["a/x", "a/b/x", "a/b/c/x"] {
        assert!(matches!(
            rename(&world, "a", to, Replace),
            Err(Error::Invalid(_))
        ));
    }
    assert!(matches!(
        rename(&world, "a/b/c", "a", Replace),
        Err(Error::NotEmpty(_))
    ));
    assert!(matches!(
        rename(&world, "a/b/c", "a", Exchange),
        Err(Error::Invalid(_))
    ));
    assert!(matches!(
        rename(&world, "a", "a/b/c", Exchange),
        Err(Error::Invalid(_))
    ));
}

#[test]
fn replaced_file_is_gone() {
    let mut world = World::new();
    let (old, new) = (world.file("old"), world.file("new"));
    world.dir("dir");
    rename(&world, "old", "new", Replace).unwrap();
    world.shows(|volume| {
        assert_eq!(at(volume, "new"), old);
        assert_eq!(names(volume, ""), ["dir", "new"]);
        assert!(keys_of(volume, new).is_empty());
        assert_eq!(attr(volume, "").size, 12);
    });
}

#[test]
fn replaced_name_of_two_leaves_the_other() {
    let mut world = World::new();
    let old = world.file("old");
    let new = world.file("new");
    world.volume().link(new, world.top(), b"kept").unwrap();
    rename(&world, "old", "new", Replace).unwrap();
    world.shows(|volume| {
        assert_eq!((at(volume, "new"), at(volume, "kept")), (old, new));
        assert_eq!(attr(volume, "kept").nlink, 1);
    });
}

#[test]
fn kinds_of_old_and_new_must_agree() {
    let world = World::new();
    world.dir("dir");
    world.dir("full");
    world.file("full/file");
    world.file("file");
    let replace = |from, to| rename(&world, from, to, Replace);
    assert!(matches!(
        replace("file", "dir"),
        Err(Error::IsADirectory(_))
    ));
    assert!(matches!(
        replace("dir", "file"),
        Err(Error::NotADirectory(_))
    ));
    assert!(matches!(replace("dir", "full"), Err(Error::NotEmpty(_))));
    assert!(matches!(replace("none", "x"), Err(Error::NotFound)));
    replace("full", "dir").unwrap();
    assert_eq!(names(world.volume(), "dir"), ["file"]);
}

#[test]
fn names_of_one_file_stay_both() {
    let world = World::new();
    let id = world.file("one");
    world.volume().link(id, world.top(), b"two").unwrap();
    for mode in [Replace, Exchange] {
        rename(&world, "one", "two", mode).unwrap();
        assert_eq!(names(world.volume(), ""), ["one", "two"]);
    }
    rename(&world, "one", "one", Replace).unwrap();
    assert!(matches!(
        rename(&world, "one", "one", NoReplace),
        Err(Error::Exists)
    ));
}

#[test]
fn new_name_must_not_exist_if_so_asked() {
    let world = World::new();
    world.file("one");
    world.file("two");
    assert!(matches!(
        rename(&world, "one", "two", NoReplace),
        Err(Error::Exists)
    ));
    rename(&world, "one", "three", NoReplace).unwrap();
    assert_eq!(names(world.volume(), ""), ["two", "three"]);
}

#[test]
fn exchange_swaps_files_and_directories() {
    let mut world = World::new();
    let (file, dir) = (world.file("file"), world.dir("dir"));
    world.dir("other");
    let inner = world.file("other/inner");
    assert!(matches!(
        rename(&world, "file", "none", Exchange),
        Err(Error::NotFound)
    ));
    rename(&world, "file", "dir", Exchange).unwrap();
    world.shows(|volume| {
        assert_eq!((at(volume, "dir"), at(volume, "file")), (file, dir));
        assert_eq!(attr(volume, "file").kind, FileKind::Directory);
    });
    rename(&world, "file", "other/inner", Exchange).unwrap();
    world.shows(|volume| {
        assert_eq!(
            (at(volume, "other/inner"), at(volume, "file")),
            (dir, inner)
        );
        assert_eq!(volume.parent(dir).unwrap(), at(volume, "other"));
        assert_eq!(attr(volume, "").size, 2 * (4 + 3 + 5));
    });
}

#[test]
fn whiteout_takes_the_old_name() {
    let mut world = World::new();
    let id = world.file("old");
    world.dir("dir");
    let whiteout = NewInode::with_mode(0o020_000);
    let volume = world.volume();
    let to = world.place("dir/new");
    volume
        .rename_leaving(world.top(), b"old", to, Replace, &whiteout)
        .unwrap();
    let to = world.place("next");
    volume
        .rename_leaving(world.top(), b"old", to, NoReplace, &whiteout)
        .unwrap();
    world.shows(|volume| {
        assert_eq!(at(volume, "dir/new"), id);
        for path in ["old", "next"] {
            let left = attr(volume, path);
            assert_eq!((left.kind, left.rdev), (FileKind::CharDevice, 0));
        }
        assert_eq!(names(volume, ""), ["dir", "next", "old"]);
    });
}

#[test]
fn times_of_all_concerned_change() {
    let world = World::new();
    let top = world.top();
    let id = world.file("file");
    let dir = world.dir("dir");
    let volume = world.volume();
    let before = [top, dir, id].map(|id| volume.attr(id).unwrap());
    rename(&world, "file", "dir/file", Replace).unwrap();
    let after = [top, dir, id].map(|id| volume.attr(id).unwrap());
    for at in 0..3 {
        assert!(after[at].ctime > before[at].ctime, "{at}");
        assert_eq!(after[at].mtime > before[at].mtime, at < 2, "{at}");
    }
}

//! Several names for one inode, and the items that store them.

use ubtrfs_format::key::KeyType;
use ubtrfs_fs::{Error, NewInode};

use crate::fixture::{World, at, attr, is_missing, keys_of, names};

#[test]
fn all_names_of_a_file_lead_to_it() {
    let mut world = World::new();
    let id = world.file("one");
    let dir = world.dir("dir");
    let volume = world.volume();
    volume.link(id, world.top(), b"two").unwrap();
    volume.link(id, dir, b"three").unwrap();
    world.shows(|volume| {
        for path in ["one", "two", "dir/three"] {
            assert_eq!(at(volume, path), id);
        }
        assert_eq!(attr(volume, "one").nlink, 3);
        let refs = keys_of(volume, id);
        let refs = refs
            .iter()
            .filter(|key| key.item_type == KeyType::INODE_REF);
        assert_eq!(refs.count(), 2);
    });
    world.volume().unlink(world.top(), b"one").unwrap();
    world.shows(|volume| {
        assert!(is_missing(volume, "one"));
        assert_eq!(attr(volume, "two").nlink, 2);
    });
}

#[test]
fn files_that_cannot_have_another_name_are_refused() {
    let world = World::new();
    let (dir, file) = (world.dir("dir"), world.file("file"));
    let volume = world.volume();
    let top = world.top();
    assert!(matches!(
        volume.link(dir, top, b"x"),
        Err(Error::NotPermitted(_))
    ));
    assert!(matches!(
        volume.link(dir, dir, b"x"),
        Err(Error::NotPermitted(_))
    ));
    assert!(matches!(volume.link(file, top, b"dir"), Err(Error::Exists)));
    let root = NewInode::directory(0o755);
    volume.create_subvolume(top, b"sub", &root).unwrap();
    let other = world.file("sub/file");
    assert!(matches!(
        volume.link(other, top, b"x"),
        Err(Error::CrossSubvolume)
    ));
}

#[test]
fn names_beyond_one_item_go_to_extended_references() {
    let mut world = World::with_features("", 4 << 10);
    let top = world.top();
    let id = world.file("first");
    let name = |number: usize| format!("{number:0>100}").into_bytes();
    for number in 0..100 {
        world.volume().link(id, top, &name(number)).unwrap();
    }
    world.shows(|volume| {
        assert_eq!(volume.attr(id).unwrap().nlink, 101);
        let keys = keys_of(volume, id);
        let extrefs = keys
            .iter()
            .filter(|key| key.item_type == KeyType::INODE_EXTREF);
        assert!(extrefs.count() > 50);
        for number in 0..100 {
            assert_eq!(volume.lookup(top, &name(number)).unwrap(), Some(id));
        }
    });
    for number in (0..100).rev() {
        world.volume().unlink(top, &name(number)).unwrap();
    }
    world.shows(|volume| {
        assert_eq!(names(volume, ""), ["first"]);
        let types: Vec<KeyType> = keys_of(volume, id).iter().map(|k| k.item_type).collect();
        assert_eq!(types, [KeyType::INODE_ITEM, KeyType::INODE_REF]);
    });
}

#[test]
fn names_beyond_one_item_are_refused_without_extended_references() {
    let world = World::with_features("^extref", 4 << 10);
    let top = world.top();
    let id = world.file("first");
    let link = |number: usize| {
        let name = format!("{number:0>100}").into_bytes();
        world.volume().link(id, top, &name)
    };
    let fit = (4096 - 101 - 2 * 25 - 15) / 110;
    (0..fit).for_each(|number| link(number).unwrap());
    assert!(matches!(link(fit), Err(Error::TooManyLinks)));
    let dir = world.dir("dir");
    world.volume().link(id, dir, b"elsewhere").unwrap();
}

#[test]
fn links_are_limited_in_number() {
    let world = World::new();
    let id = world.file("file");
    let mut dirs = Vec::new();
    for number in 0..66 {
        dirs.push(world.dir(&format!("dir{number}")));
    }
    let mut made = 1;
    let refused = loop {
        let name = format!("{made}");
        match world.volume().link(id, dirs[made / 1000], name.as_bytes()) {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::TooManyLinks));
    assert_eq!(made, 65_535);
    assert_eq!(world.volume().attr(id).unwrap().nlink, 65_535);
    let new = NewInode::file(0o600);
    world
        .volume()
        .create(world.top(), b"another", &new)
        .unwrap();
}

//! New inodes of every file type, and their names.

use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::key::KeyType;
use ubtrfs_fs::{Error, FileId, FileKind, FileTime, NewInode};

use crate::fixture::{World, at, attr, colliding_names, indices, keys_of, names};

const TIME: FileTime = FileTime {
    sec: 1_000,
    nsec: 7,
};

#[test]
fn new_file_has_what_was_asked_for() {
    let mut world = World::new();
    let new = NewInode {
        uid: 7,
        gid: 8,
        umask: 0o027,
        time: Some(TIME),
        ..NewInode::file(0o666)
    };
    let id = world.make("name", &new);
    assert_eq!(id, FileId::new(RootId::FS_TREE, InodeNr(257)));
    world.shows(|volume| {
        let attr = attr(volume, "name");
        assert_eq!(attr.kind, FileKind::Regular);
        assert_eq!(attr.mode, 0o100_640);
        assert_eq!((attr.nlink, attr.uid, attr.gid), (1, 7, 8));
        assert_eq!((attr.size, attr.nbytes), (0, 0));
        assert_eq!([attr.atime, attr.mtime, attr.ctime, attr.otime], [TIME; 4]);
        assert_eq!(attr.generation, attr.transid.0);
        let types: Vec<KeyType> = keys_of(volume, id).iter().map(|k| k.item_type).collect();
        assert_eq!(types, [KeyType::INODE_ITEM, KeyType::INODE_REF]);
        assert_eq!(names(volume, ""), ["name"]);
        assert_eq!(indices(volume, ""), [2]);
    });
}

#[test]
fn directory_counts_its_names_twice_and_notes_the_change() {
    let mut world = World::new();
    let before = attr(world.volume(), "");
    world.dir("abc");
    world.file("defgh");
    world.shows(|volume| {
        let after = attr(volume, "");
        assert_eq!((after.size, after.nlink), (16, 1));
        assert!(after.mtime > before.mtime && after.ctime == after.mtime);
        assert_eq!(attr(volume, "abc").nlink, 1);
        assert_eq!(names(volume, ""), ["abc", "defgh"]);
    });
}

#[test]
fn every_kind_of_file_is_made() {
    let mut world = World::new();
    let rdev = 5 << 20 | 300;
    for (name, format) in [
        ("char", 0o020_000),
        ("block", 0o060_000),
        ("fifo", 0o010_000),
        ("socket", 0o140_000),
    ] {
        let new = NewInode {
            rdev,
            ..NewInode::with_mode(format | 0o600)
        };
        world.make(name, &new);
    }
    world.make("link", &NewInode::symlink(b"a/target"));
    world.shows(|volume| {
        assert_eq!(attr(volume, "char").rdev, rdev);
        assert_eq!(attr(volume, "block").rdev, rdev);
        assert_eq!(attr(volume, "fifo").rdev, 0);
        assert_eq!(attr(volume, "socket").kind, FileKind::Socket);
        let link = attr(volume, "link");
        assert_eq!((link.size, link.nbytes, link.mode), (8, 8, 0o120_777));
        assert_eq!(volume.readlink(at(volume, "link")).unwrap(), b"a/target");
    });
}

#[test]
fn target_of_a_link_is_limited_by_path_and_leaf() {
    let long = vec![b'x'; 4095];
    let world = World::new();
    world.make("longest", &NewInode::symlink(&long));
    let volume = world.volume();
    let link = |target: &[u8]| volume.create(world.top(), b"link", &NewInode::symlink(target));
    assert!(matches!(link(&[b'x'; 4096]), Err(Error::NameTooLong)));
    assert!(matches!(link(b""), Err(Error::NotFound)));
    assert!(matches!(link(b"a\0b"), Err(Error::Invalid(_))));
    let small = World::with_features("", 4 << 10);
    let link = |len| {
        let target = &long[..len];
        small
            .volume()
            .create(small.top(), b"link", &NewInode::symlink(target))
    };
    assert!(matches!(
        link(4096 - 101 - 25 - 20),
        Err(Error::NameTooLong)
    ));
    link(4096 - 101 - 25 - 21).unwrap();
}

#[test]
fn bad_names_are_refused() {
    let world = World::new();
    let create = |name: &[u8]| {
        world
            .volume()
            .create(world.top(), name, &NewInode::file(0o600))
    };
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        assert!(matches!(create(name), Err(Error::Invalid(_))));
    }
    assert!(matches!(create(&[b'n'; 256]), Err(Error::NameTooLong)));
    create(&[b'n'; 255]).unwrap();
    assert!(matches!(create(&[b'n'; 255]), Err(Error::Exists)));
}

#[test]
fn nothing_is_made_in_what_is_no_directory() {
    let world = World::new();
    let file = world.file("file");
    let new = NewInode::file(0o600);
    let volume = world.volume();
    assert!(matches!(
        volume.create(file, b"x", &new),
        Err(Error::NotADirectory(_))
    ));
    let missing = FileId::new(RootId::FS_TREE, InodeNr(999));
    assert!(matches!(
        volume.create(missing, b"x", &new),
        Err(Error::NoSuchInode(_))
    ));
    let subvolume = FileId::new(RootId(999), InodeNr(256));
    assert!(matches!(
        volume.create(subvolume, b"x", &new),
        Err(Error::NoSuchSubvolume(_))
    ));
}

#[test]
fn setgid_directory_hands_its_group_on() {
    let mut world = World::new();
    let new = NewInode {
        gid: 42,
        ..NewInode::directory(0o2755)
    };
    world.make("dir", &new);
    world.dir("dir/dir");
    world.file("dir/file");
    world.shows(|volume| {
        let dir = attr(volume, "dir/dir");
        assert_eq!((dir.gid, dir.mode), (42, 0o042_755));
        let file = attr(volume, "dir/file");
        assert_eq!((file.gid, file.mode), (42, 0o100_644));
    });
}

#[test]
fn names_with_one_hash_share_an_item_until_it_is_full() {
    let mut world = World::with_features("", 4 << 10);
    let names = colliding_names(32, 250);
    let dir = world.top();
    let mut made = 0;
    for name in &names {
        match world.volume().create(dir, name, &NewInode::file(0o600)) {
            Ok(_) => made += 1,
            Err(Error::NameHashFull) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let room = 4096 - 101 - 2 * 25;
    assert_eq!(made, room / (30 + names[0].len()));
    world.shows(|volume| {
        for (at, name) in names.iter().enumerate() {
            let found = volume.lookup(dir, name).unwrap();
            assert_eq!(found.is_some(), at < made, "{at}");
        }
    });
    for name in &names[..made] {
        world.volume().unlink(dir, name).unwrap();
    }
    world.shows(|volume| assert_eq!(volume.attr(dir).unwrap().size, 0));
}

//! Extended attributes and properties.

use ubtrfs_format::item::InodeFlags;
use ubtrfs_fs::{Error, NewInode, XattrMode};

use crate::fixture::World;

use XattrMode::{Any, Create, Replace};

#[test]
fn attributes_are_set_replaced_and_removed() {
    let mut world = World::new();
    let id = world.file("file");
    let volume = world.volume();
    volume.set_xattr(id, b"user.a", b"1", Any).unwrap();
    volume.set_xattr(id, b"user.b", b"", Any).unwrap();
    volume.set_xattr(id, b"user.a", b"longer", Any).unwrap();
    world.shows(|volume| {
        assert_eq!(volume.xattr(id, b"user.a").unwrap().unwrap(), b"longer");
        assert_eq!(volume.xattr(id, b"user.b").unwrap().unwrap(), b"");
        assert_eq!(volume.xattrs(id).unwrap().len(), 2);
    });
    world.volume().remove_xattr(id, b"user.a").unwrap();
    world.shows(|volume| {
        assert_eq!(volume.xattr(id, b"user.a").unwrap(), None);
        assert_eq!(volume.xattrs(id).unwrap().len(), 1);
    });
}

#[test]
fn attribute_must_exist_or_not_as_asked() {
    let world = World::new();
    let id = world.file("file");
    let volume = world.volume();
    let set = |mode| volume.set_xattr(id, b"user.a", b"x", mode);
    assert!(matches!(set(Replace), Err(Error::NoXattr)));
    set(Create).unwrap();
    assert!(matches!(set(Create), Err(Error::Exists)));
    set(Replace).unwrap();
    volume.remove_xattr(id, b"user.a").unwrap();
    assert!(matches!(
        volume.remove_xattr(id, b"user.a"),
        Err(Error::NoXattr)
    ));
}

#[test]
fn attribute_is_as_large_as_a_leaf_allows() {
    let mut world = World::new();
    let id = world.file("file");
    let most = 16384 - 101 - 25 - 30 - b"user.a".len();
    let volume = world.volume();
    let set = |len| volume.set_xattr(id, b"user.a", &vec![1; len], Any);
    assert!(matches!(set(most + 1), Err(Error::XattrTooBig)));
    assert!(matches!(set(1 << 20), Err(Error::XattrTooBig)));
    set(most).unwrap();
    world.shows(|volume| {
        assert_eq!(volume.xattr(id, b"user.a").unwrap().unwrap().len(), most);
    });
}

#[test]
fn names_are_those_of_the_kernel() {
    let world = World::new();
    let id = world.file("file");
    let set = |name: &[u8]| world.volume().set_xattr(id, name, b"x", Any);
    for name in [&b"user.a/b"[..], b"trusted.x", b"security.y", b"user.\xff"] {
        set(name).unwrap();
    }
    for name in [&b"other.x"[..], b"user.", b"x", b"system.x"] {
        assert!(matches!(set(name), Err(Error::XattrNamespace)));
    }
    assert!(matches!(set(b""), Err(Error::Invalid(_))));
    let long = [&b"user."[..], &[b'x'; 251]].concat();
    assert!(matches!(set(&long), Err(Error::NameTooLong)));
    set(&long[..255]).unwrap();
}

#[test]
fn guarded_files_keep_their_attributes() {
    let world = World::new();
    let id = world.file("file");
    let volume = world.volume();
    for flag in [InodeFlags::APPEND, InodeFlags::IMMUTABLE] {
        volume.set_inode_flags(id, flag).unwrap();
        let set = volume.set_xattr(id, b"user.a", b"x", Any);
        assert!(matches!(set, Err(Error::NotPermitted(_))));
    }
}

#[test]
fn compression_property_goes_with_its_flags_and_to_new_files() {
    let mut world = World::new();
    let dir = world.dir("dir");
    let name = b"btrfs.compression";
    let flags = |world: &World, id| world.volume().attr(id).unwrap().flags;
    let set = |value: &[u8]| world.volume().set_xattr(dir, name, value, Any);
    assert!(matches!(set(b"lzma"), Err(Error::Invalid(_))));
    set(b"zstd:9").unwrap();
    assert_eq!(flags(&world, dir), InodeFlags::COMPRESS);
    let file = world.file("dir/file");
    let below = world.dir("dir/dir");
    world.make("dir/link", &NewInode::symlink(b"x"));
    world.shows(|volume| {
        for id in [file, below] {
            assert_eq!(volume.attr(id).unwrap().flags, InodeFlags::COMPRESS);
            assert_eq!(volume.xattr(id, name).unwrap().unwrap(), b"zstd");
        }
    });
    let set = |value: &[u8]| world.volume().set_xattr(dir, name, value, Any);
    set(b"none").unwrap();
    assert_eq!(flags(&world, dir), InodeFlags::NOCOMPRESS);
    let file = world.file("dir/never");
    assert_eq!(flags(&world, file), InodeFlags::NOCOMPRESS);
    assert_eq!(world.volume().xattr(file, name).unwrap(), None);
    world.volume().remove_xattr(dir, name).unwrap();
    assert_eq!(flags(&world, dir), InodeFlags::empty());
    let unset = |mode| world.volume().set_xattr(dir, name, b"", mode);
    assert!(matches!(unset(Replace), Err(Error::NoXattr)));
    unset(Any).unwrap();
    let other = world.volume().set_xattr(dir, b"btrfs.other", b"x", Any);
    assert!(matches!(other, Err(Error::Invalid(_))));
}

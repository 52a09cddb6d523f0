//! ACLs: their effect on modes, and their inheritance.

use ubtrfs_fs::{Error, NewInode, SetAttr, XattrMode};

use crate::fixture::{World, at};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
const NOBODY: u32 = u32::MAX;
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const MASK: u16 = 16;
const OTHER: u16 = 32;

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn named(user: u16, mask: u16) -> Vec<u8> {
    acl(&[
        (USER_OBJ, 7, NOBODY),
        (USER, user, 1),
        (GROUP_OBJ, 5, NOBODY),
        (MASK, mask, NOBODY),
        (OTHER, 5, NOBODY),
    ])
}

fn plain(owner: u16, group: u16, other: u16) -> Vec<u8> {
    acl(&[
        (USER_OBJ, owner, NOBODY),
        (GROUP_OBJ, group, NOBODY),
        (OTHER, other, NOBODY),
    ])
}

#[test]
fn access_acl_sets_the_mode_and_a_plain_one_is_not_kept() {
    let mut world = World::new();
    let id = world.file("file");
    let set = |value: &[u8]| world.volume().set_xattr(id, ACCESS, value, XattrMode::Any);
    set(&named(6, 6)).unwrap();
    world.shows(|volume| {
        assert_eq!(volume.attr(id).unwrap().mode, 0o100_765);
        assert_eq!(volume.xattr(id, ACCESS).unwrap().unwrap(), named(6, 6));
    });
    let set = |value: &[u8]| world.volume().set_xattr(id, ACCESS, value, XattrMode::Any);
    set(&plain(6, 4, 0)).unwrap();
    world.shows(|volume| {
        assert_eq!(volume.attr(id).unwrap().mode, 0o100_640);
        assert_eq!(volume.xattr(id, ACCESS).unwrap(), None);
    });
}

#[test]
fn unsound_acls_are_refused() {
    let world = World::new();
    let (file, dir) = (world.file("file"), world.dir("dir"));
    let link = world.make("link", &NewInode::symlink(b"x"));
    let set = |id, name, value: &[u8]| world.volume().set_xattr(id, name, value, XattrMode::Any);
    let good = named(7, 7);
    for bad in [
        &good[..good.len() - 1],
        &good[..4 + 8],
        &good[..2],
        b"\x01\0\0\0",
    ] {
        assert!(matches!(set(file, ACCESS, bad), Err(Error::Invalid(_))));
    }
    assert!(matches!(set(file, DEFAULT, &good), Err(Error::Invalid(_))));
    assert!(matches!(
        set(link, ACCESS, &good),
        Err(Error::XattrNamespace)
    ));
    set(dir, DEFAULT, &good).unwrap();
    // Setting an ACL without entries removes it, even if it does not exist.
    for _ in 0..2 {
        set(dir, DEFAULT, &2u32.to_le_bytes()).unwrap();
        world.volume().remove_xattr(dir, DEFAULT).unwrap();
    }
    assert_eq!(world.volume().xattr(dir, DEFAULT).unwrap(), None);
}

#[test]
fn default_acl_is_inherited_in_place_of_the_umask() {
    // The kernel returns these values for the same calls.
    let mut world = World::new();
    let dir = world.dir("dir");
    let volume = world.volume();
    volume
        .set_xattr(dir, DEFAULT, &named(7, 7), XattrMode::Any)
        .unwrap();
    let with_umask = |new: NewInode<'static>| NewInode {
        umask: 0o022,
        ..new
    };
    world.make("dir/file", &with_umask(NewInode::file(0o666)));
    world.make("dir/sub", &with_umask(NewInode::directory(0o777)));
    world.make("dir/link", &with_umask(NewInode::symlink(b"x")));
    world.shows(|volume| {
        let shown = |path, name| {
            let id = at(volume, path);
            (
                volume.attr(id).unwrap().mode,
                volume.xattr(id, name).unwrap(),
            )
        };
        let file = acl(&[
            (USER_OBJ, 6, NOBODY),
            (USER, 7, 1),
            (GROUP_OBJ, 5, NOBODY),
            (MASK, 6, NOBODY),
            (OTHER, 4, NOBODY),
        ]);
        assert_eq!(shown("dir/file", ACCESS), (0o100_664, Some(file)));
        assert_eq!(shown("dir/file", DEFAULT).1, None);
        assert_eq!(shown("dir/sub", ACCESS), (0o040_775, Some(named(7, 7))));
        assert_eq!(shown("dir/sub", DEFAULT).1, Some(named(7, 7)));
        assert_eq!(shown("dir/link", ACCESS), (0o120_777, None));
    });
    let volume = world.volume();
    volume
        .set_xattr(dir, DEFAULT, &plain(7, 5, 1), XattrMode::Any)
        .unwrap();
    let file = world.make("dir/plain", &with_umask(NewInode::file(0o666)));
    let attr = world.volume().attr(file).unwrap();
    assert_eq!(attr.mode, 0o100_640);
    assert_eq!(world.volume().xattr(file, ACCESS).unwrap(), None);
}

#[test]
fn new_mode_goes_into_the_acl() {
    let mut world = World::new();
    let id = world.file("file");
    let volume = world.volume();
    volume
        .set_xattr(id, ACCESS, &named(6, 6), XattrMode::Any)
        .unwrap();
    let set = SetAttr {
        mode: Some(0o431),
        ..SetAttr::default()
    };
    volume.set_attr(id, &set).unwrap();
    world.shows(|volume| {
        let expected = acl(&[
            (USER_OBJ, 4, NOBODY),
            (USER, 6, 1),
            (GROUP_OBJ, 5, NOBODY),
            (MASK, 3, NOBODY),
            (OTHER, 1, NOBODY),
        ]);
        assert_eq!(volume.xattr(id, ACCESS).unwrap().unwrap(), expected);
        assert_eq!(volume.attr(id).unwrap().mode, 0o100_431);
    });
}

#[test]
fn setgid_goes_with_an_acl_set_by_a_stranger_to_the_group() {
    let world = World::new();
    let id = world.file("file");
    let volume = world.volume();
    let mode = |bits| {
        let set = SetAttr {
            mode: Some(bits),
            ..SetAttr::default()
        };
        volume.set_attr(id, &set).unwrap();
    };
    let has = |bits| assert_eq!(volume.attr(id).unwrap().mode & 0o7777, bits);
    mode(0o2755);
    volume.set_access_acl(id, &named(7, 7), false).unwrap();
    has(0o2775);
    // Removing an ACL does not change the mode.
    volume.set_access_acl(id, b"", true).unwrap();
    has(0o2775);
    volume.set_access_acl(id, &named(7, 5), true).unwrap();
    has(0o755);
    mode(0o2755);
    volume.set_access_acl(id, &plain(7, 5, 0), true).unwrap();
    has(0o750);
}

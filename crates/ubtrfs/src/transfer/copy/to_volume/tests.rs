//! ACLs of copies.

use std::path::Path;

use ubtrfs_fs::{FileTime, PreservedAttributes, Times, XattrMode};

use super::*;
use crate::Volume;

/// Returns an ACL of owner, one user, group, mask and others, as in `linux/posix_acl_xattr.h`.
fn acl_bytes() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 7, u32::MAX),
        (0x02, 7, 1000),
        (0x04, 5, u32::MAX),
        (0x10, 7, u32::MAX),
        (0x20, 5, u32::MAX),
    ];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn attributes(mode: u32, xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> Attributes {
    let time = FileTime { sec: 5, nsec: 0 };
    Attributes {
        kind: FileKind::from_mode(mode).unwrap(),
        file: PreservedAttributes {
            mode,
            times: Times::all(time),
            ..PreservedAttributes::default()
        },
        nlink: 1,
        size: 0,
        xattrs,
    }
}

/// TO-VOLUME-1
#[test]
fn copy_inherits_no_acl_that_the_original_lacks() {
    let volume = Volume::in_memory(256 << 20).unwrap();
    let engine = volume.engine();
    let root = volume.root().resolve(Path::new("/")).unwrap();
    let acl = acl_bytes();
    engine
        .set_xattr(root, acl::DEFAULT, &acl, XattrMode::Any)
        .unwrap();
    let options = CopyOptions {
        preserve: true,
        umask: 0o022,
        ..CopyOptions::default()
    };
    let mut destination = ToVolume::new(engine, options);

    let plain = attributes(0o100_640, Vec::new());
    let file = destination.file(&root, b"plain", &plain, None).unwrap();
    assert!(engine.xattr(file, acl::ACCESS).unwrap().is_some());
    assert!(destination.keep(&file, &plain).is_empty());
    assert_eq!(engine.xattr(file, acl::ACCESS).unwrap(), None);
    assert_eq!(engine.attr(file).unwrap().mode & 0o7777, 0o640);

    let plain = attributes(0o040_750, Vec::new());
    let (dir, _) = destination.directory(&root, b"dir", &plain).unwrap();
    assert!(destination.keep_directory(&dir, &plain).is_empty());
    assert_eq!(engine.xattr(dir, acl::DEFAULT).unwrap(), None);
    assert_eq!(engine.xattr(dir, acl::ACCESS).unwrap(), None);

    let own = attributes(0o100_775, vec![(acl::ACCESS.to_vec(), acl.clone())]);
    let file = destination.file(&root, b"own", &own, None).unwrap();
    assert!(destination.keep(&file, &own).is_empty());
    assert_eq!(engine.xattr(file, acl::ACCESS).unwrap(), Some(acl));
}

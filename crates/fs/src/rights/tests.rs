//! Rights by modes, ACLs and capabilities.

use ubtrfs_format::ids::{InodeNr, Transid};
use ubtrfs_format::item::{FileTime, InodeFlags};

use super::*;
use crate::inode::Attr;

fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
    Caller::new(uid, gid).groups(groups.to_vec())
}

fn attr(mode: u32, uid: u32, gid: u32) -> Attr {
    Attr {
        ino: InodeNr(257),
        kind: FileKind::Directory,
        mode,
        uid,
        gid,
        nlink: 1,
        rdev: 0,
        size: 0,
        nbytes: 0,
        generation: 1,
        transid: Transid(1),
        flags: InodeFlags::empty(),
        atime: FileTime::default(),
        mtime: FileTime::default(),
        ctime: FileTime::default(),
        otime: FileTime::default(),
    }
}

/// Returns the value of an ACL with entries given as tag, permissions and id.
fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(bits.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

const NOBODY: u32 = u32::MAX;

#[test]
fn the_first_class_that_fits_decides() {
    let dir = attr(0o40_057, 1000, 100);
    assert_eq!(caller(1000, 100, &[]).class_bits(&dir), 0);
    assert_eq!(caller(1, 100, &[]).class_bits(&dir), 5);
    assert_eq!(caller(1, 1, &[7, 100]).class_bits(&dir), 5);
    assert_eq!(caller(1, 1, &[7]).class_bits(&dir), 7);
}

#[test]
fn an_acl_is_asked_in_its_order() {
    let dir = attr(0o40_770, 1000, 100);
    let acl = value(&[
        (0x01, 7, NOBODY),
        (0x02, 7, 2000),
        (0x04, 1, NOBODY),
        (0x08, 6, 300),
        (0x10, 5, NOBODY),
        (0x20, 0, NOBODY),
    ]);
    let acl = acl::entries(&acl).unwrap();
    let grants = |who: &Caller, mask| who.is_granted_by(&acl, &dir, mask);
    assert!(grants(&caller(1000, 1, &[]), 7));
    // The mask removes the write right of all but the owner and others.
    assert!(grants(&caller(2000, 1, &[]), 5));
    assert!(!grants(&caller(2000, 1, &[]), 2));
    assert!(grants(&caller(1, 300, &[]), 4));
    // No single group grants both.
    assert!(!grants(&caller(1, 300, &[100]), 5));
    assert!(!grants(&caller(1, 1, &[]), 1));
}

#[test]
fn bytes_that_are_no_acl_leave_the_mode() {
    assert_eq!(acl::entries(b""), None);
    assert_eq!(acl::entries(&value(&[])), None);
    assert_eq!(acl::entries(&[2, 0, 0, 0, 1]), None);
    assert_eq!(acl::entries(&value(&[(3, 7, 0)])), None);
}

//! Extended attributes: names, namespaces, sizes, and rights.

use super::calls;
use super::stage::{Kind, Stage};

const CREATE: i32 = libc::XATTR_CREATE;
const REPLACE: i32 = libc::XATTR_REPLACE;

/// Creates an ACL in the kernel's format: version 2, then tag, permissions and id of each entry.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

const NOBODY: u32 = u32::MAX;

pub(crate) fn names_and_kinds(stage: &mut Stage) {
    let long = |len: usize| [b"user.".as_slice(), &vec![b'n'; len - 5]].concat();
    let keys: Vec<Vec<u8>> = vec![
        b"user.a".to_vec(),
        b"user.".to_vec(),
        b"user".to_vec(),
        b"".to_vec(),
        b"a".to_vec(),
        b".a".to_vec(),
        b"trusted.a".to_vec(),
        b"security.a".to_vec(),
        b"security.capability".to_vec(),
        b"system.a".to_vec(),
        b"system.nfs4_acl".to_vec(),
        b"btrfs.a".to_vec(),
        b"btrfs.compression".to_vec(),
        b"other.a".to_vec(),
        b"user.\xff\n".to_vec(),
        long(254),
        long(255),
        long(256),
        long(1000),
    ];
    for kind in Kind::ALL {
        let name = format!("{kind:?}");
        kind.make(stage.dir(), &name);
        let path = stage.path(&name);
        for key in &keys {
            let what = format!(
                "{kind:?} {} of {}",
                key[..key.len().min(20)].escape_ascii(),
                key.len()
            );
            stage.note(format!("get {what}"), calls::get_xattr(&path, key, 100));
            stage.note(format!("remove {what}"), calls::remove_xattr(&path, key));
            stage.note(
                format!("replace {what}"),
                calls::set_xattr(&path, key, b"0", REPLACE),
            );
            stage.note(
                format!("both, of none, {what}"),
                calls::set_xattr(&path, key, b"1", CREATE | REPLACE),
            );
            stage.note(
                format!("create {what}"),
                calls::set_xattr(&path, key, b"11", CREATE),
            );
            stage.note(
                format!("create again {what}"),
                calls::set_xattr(&path, key, b"2", CREATE),
            );
            stage.note(
                format!("both {what}"),
                calls::set_xattr(&path, key, b"3", CREATE | REPLACE),
            );
            stage.note(
                format!("unknown {what}"),
                calls::set_xattr(&path, key, b"4", 8),
            );
            stage.note(format!("get {what}"), calls::get_xattr(&path, key, 100));
            stage.note(
                format!("get without room {what}"),
                calls::get_xattr(&path, key, 1),
            );
            stage.note(format!("size {what}"), calls::get_xattr(&path, key, 0));
            stage.note(
                format!("empty {what}"),
                calls::set_xattr(&path, key, b"", 0),
            );
            stage.note(format!("get {what}"), calls::get_xattr(&path, key, 100));
        }
        // An invalid value cannot be read.
        let _ = calls::remove_xattr(&path, b"security.capability");
        let sizes = [0, 1, 100, 65_536].map(|room| calls::list_xattr(&path, room));
        let sorted = sizes.map(|list| {
            list.map(|(len, names)| {
                let mut names: Vec<_> =
                    names.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
                names.sort();
                (len, names)
            })
        });
        stage.note(format!("list {kind:?}"), sorted);
    }
}

pub(crate) fn sizes(stage: &mut Stage) {
    drop(stage.file("file", b""));
    let path = stage.path("file");
    for len in [
        0, 1, 255, 3900, 4096, 8000, 16_000, 16_200, 16_236, 16_237, 16_300, 20_000, 65_535,
        65_536, 65_537,
    ] {
        let value = vec![b'v'; len];
        let came = calls::set_xattr(&path, b"user.a", &value, 0);
        let found = calls::get_xattr(&path, b"user.a", 70_000).map(|(len, _)| len);
        stage.note(format!("a value of {len} bytes"), (came, found));
        let _ = calls::remove_xattr(&path, b"user.a");
    }
    for number in 0..200 {
        let key = format!("user.number{number}");
        let came = calls::set_xattr(&path, key.as_bytes(), key.repeat(20).as_bytes(), 0);
        stage.note(format!("{key}, of many"), came);
    }
    stage.note(
        "list of many",
        calls::list_xattr(&path, 65_536).map(|(len, _)| len),
    );
    let all = (0..200).filter(|number| {
        let key = format!("user.number{number}");
        calls::get_xattr(&path, key.as_bytes(), 1000)
            == Ok((key.len() as i64 * 20, key.repeat(20).into_bytes()))
    });
    stage.note("those that can be read", all.count());
}

pub(crate) fn rights(stage: &mut Stage) {
    calls::mkdir(stage.dir(), b"sticky", 0o777).unwrap();
    calls::chmod(stage.dir(), b"sticky", 0o1777, 0).unwrap();
    for (name, mode) in [
        ("private", 0o600),
        ("readable", 0o644),
        ("writable", 0o666),
        ("writeonly", 0o222),
    ] {
        drop(stage.file(name, b""));
        calls::chmod(stage.dir(), name.as_bytes(), mode, 0).unwrap();
        let path = stage.path(name);
        for key in [&b"user.there"[..], b"trusted.there", b"security.there"] {
            calls::set_xattr(&path, key, b"root's", 0).unwrap();
        }
    }
    for name in ["private", "readable", "writable", "writeonly", "sticky"] {
        let path = stage.path(name);
        stage.as_user((1, 1, &[]), |stage| {
            for key in [
                "user.there",
                "user.new",
                "trusted.there",
                "trusted.new",
                "security.there",
                "security.new",
                "security.capability",
                "system.posix_acl_access",
                "btrfs.compression",
            ] {
                let key = key.as_bytes();
                let what = format!("{name} {}", key.escape_ascii());
                stage.note(format!("get {what}"), calls::get_xattr(&path, key, 100));
                stage.note(format!("set {what}"), calls::set_xattr(&path, key, b"1", 0));
                stage.note(format!("remove {what}"), calls::remove_xattr(&path, key));
            }
            let listed = calls::list_xattr(&path, 1000).map(|(len, _)| len);
            stage.note(format!("list {name}"), listed);
        });
    }
}

pub(crate) fn properties(stage: &mut Stage) {
    drop(stage.file("file", b""));
    calls::mkdir(stage.dir(), b"dir", 0o755).unwrap();
    calls::symlink(b"x", stage.dir(), b"link").unwrap();
    for name in ["file", "dir", "link"] {
        let path = stage.path(name);
        for value in [
            "zlib", "lzo", "zstd", "zstd:3", "none", "no", "", "ZLIB", "zlibx", "bogus",
        ] {
            let key = b"btrfs.compression";
            let came = calls::set_xattr(&path, key, value.as_bytes(), 0);
            stage.note(
                format!("{name} compression {value}"),
                (came, calls::get_xattr(&path, key, 100)),
            );
        }
        stage.note("remove", calls::remove_xattr(&path, b"btrfs.compression"));
        stage.note(
            "remove again",
            calls::remove_xattr(&path, b"btrfs.compression"),
        );
    }
}

pub(crate) fn acls(stage: &mut Stage) {
    const ACCESS: &[u8] = b"system.posix_acl_access";
    const DEFAULT: &[u8] = b"system.posix_acl_default";
    let minimal = [(1, 6, NOBODY), (4, 4, NOBODY), (0x20, 0, NOBODY)];
    let values = [
        ("minimal", acl(&minimal)),
        (
            "extended",
            acl(&[
                (1, 7, NOBODY),
                (2, 6, 1),
                (4, 4, NOBODY),
                (0x10, 7, NOBODY),
                (0x20, 0, NOBODY),
            ]),
        ),
        (
            "without a mask",
            acl(&[(1, 7, NOBODY), (2, 6, 1), (4, 4, NOBODY), (0x20, 0, NOBODY)]),
        ),
        (
            "out of order",
            acl(&[(4, 4, NOBODY), (1, 6, NOBODY), (0x20, 0, NOBODY)]),
        ),
        ("none", acl(&[])),
        ("cut", acl(&minimal)[..10].to_vec()),
        ("empty", Vec::new()),
        (
            "of version 1",
            [&1u32.to_le_bytes()[..], &acl(&minimal)[4..]].concat(),
        ),
        (
            "with unknown rights",
            acl(&[(1, 0xff, NOBODY), (4, 4, NOBODY), (0x20, 0, NOBODY)]),
        ),
        (
            "twice a user",
            acl(&[
                (1, 7, NOBODY),
                (2, 6, 1),
                (2, 4, 1),
                (4, 4, NOBODY),
                (0x10, 7, NOBODY),
                (0x20, 0, NOBODY),
            ]),
        ),
    ];
    for kind in [Kind::File, Kind::Dir, Kind::LinkToFile, Kind::Fifo] {
        let name = format!("{kind:?}");
        kind.make(stage.dir(), &name);
        let path = stage.path(&name);
        for key in [ACCESS, DEFAULT] {
            for (what, value) in &values {
                let came = calls::set_xattr(&path, key, value, 0);
                let found = calls::get_xattr(&path, key, 200);
                let what = format!("{name} {} {what}", key.escape_ascii());
                stage.note(what, (came, found, stage.state(name.as_bytes())));
            }
            stage.note(format!("{name} remove"), calls::remove_xattr(&path, key));
        }
    }
    // New files below inherit it; chmod changes the mask.
    calls::mkdir(stage.dir(), b"heir", 0o777).unwrap();
    let given = acl(&[
        (1, 7, NOBODY),
        (2, 7, 1),
        (4, 5, NOBODY),
        (8, 6, 9),
        (0x10, 7, NOBODY),
        (0x20, 5, NOBODY),
    ]);
    calls::set_xattr(&stage.path("heir"), DEFAULT, &given, 0).unwrap();
    drop(
        calls::open(
            stage.dir(),
            b"heir/file",
            libc::O_CREAT | libc::O_RDWR,
            0o640,
        )
        .unwrap(),
    );
    calls::mkdir(stage.dir(), b"heir/dir", 0o755).unwrap();
    calls::mknod(stage.dir(), b"heir/fifo", libc::S_IFIFO | 0o666, 0).unwrap();
    calls::symlink(b"x", stage.dir(), b"heir/link").unwrap();
    for name in ["heir/file", "heir/dir", "heir/fifo", "heir/link"] {
        let path = stage.path(name);
        for key in [ACCESS, DEFAULT] {
            stage.note(
                format!("inherited by {name}"),
                calls::get_xattr(&path, key, 200),
            );
        }
        stage.note_state(name);
    }
    for mode in [0o700, 0o070, 0o777] {
        calls::chmod(stage.dir(), b"heir/file", mode, 0).unwrap();
        let shown = calls::get_xattr(&stage.path("heir/file"), ACCESS, 200);
        stage.note(
            format!("after chmod {mode:o}"),
            (shown, stage.state(b"heir/file")),
        );
        for user in [(1, 1, &[][..]), (2, 2, &[9]), (2, 2, &[])] {
            stage.as_user(user, |stage| {
                for wanted in [libc::R_OK, libc::W_OK, libc::X_OK] {
                    let may = calls::access(stage.dir(), b"heir/file", wanted, libc::AT_EACCESS);
                    stage.note(format!("{user:?} may {wanted} with {mode:o}"), may);
                }
            });
        }
    }
}

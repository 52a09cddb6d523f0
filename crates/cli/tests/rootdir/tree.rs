//! A folder with the hard cases that any file system supports.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, mknodat, utimensat};
use ubtrfs_sim::Rng;
use ubtrfs_sim::fill::{Kind, bytes, colliding_names};

/// Deeper than the number of directories kept open.
const DEPTH: usize = 90;
/// Names of one file in one directory that fit into one item.
const HARD_LINKS: usize = 100;
const CROWD: usize = 1500;

/// Fills `dir`, which exists.
pub(crate) fn fill(dir: &Path, seed: u64) {
    let mut rng = Rng::new(seed);
    let place = |name: &str| {
        let path = dir.join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    contents(&place("contents"), &mut rng);
    holes(&place("holes"), &mut rng);
    names(&place("names"));
    links(&place("links"));
    special(&place("special"));
    deep(&place("deep"));
    crowd(&place("crowd"));
    place("empty");
    attributes(&place("attributes"));
    // Files that sort between the directories.
    for name in ["a-file", "h-file", "z-file"] {
        fs::write(dir.join(name), name).unwrap();
    }
    set_times(dir, 1_600_000_000, 987_654_321);
}

/// Creates files of sizes around all limits, some that compress and some that do not.
fn contents(dir: &Path, rng: &mut Rng) {
    for size in [
        0, 1, 100, 2047, 2048, 2049, 4095, 4096, 4097, 8192, 65_536, 131_071, 131_072, 131_073,
        300_000, 1_048_576, 1_048_581, 3_500_000,
    ] {
        for (name, kind) in [("text", Kind::Text), ("noise", Kind::Random)] {
            fs::write(dir.join(format!("{name}-{size}")), bytes(kind, size, rng)).unwrap();
        }
    }
    // One compresses well at first and badly later, the other vice versa.
    let (text, noise) = (
        bytes(Kind::Text, 700_000, rng),
        bytes(Kind::Random, 700_000, rng),
    );
    fs::write(dir.join("text-then-noise"), [&text[..], &noise].concat()).unwrap();
    fs::write(dir.join("noise-then-text"), [&noise[..], &text].concat()).unwrap();
}

fn holes(dir: &Path, rng: &mut Rng) {
    for (name, size, parts) in [
        ("all", 1 << 30, &[][..]),
        ("small", 1500, &[]),
        ("start", 400_000, &[(300_000, 100_000)]),
        ("end", 5_000_000, &[(0, 10_000)]),
        (
            "many",
            64 << 20,
            &[
                (1, 1),
                (70_000, 5000),
                (1 << 20, 1 << 20),
                (63 << 20, 12_345),
            ],
        ),
    ] {
        let file = File::create(dir.join(name)).unwrap();
        for (offset, len) in parts {
            file.write_all_at(&bytes(Kind::Text, *len, rng), *offset)
                .unwrap();
        }
        file.set_len(size).unwrap();
    }
}

fn names(dir: &Path) {
    let long = [b'n'; 255];
    let odd: [&[u8]; 6] = [
        b"\xff\xfe not utf-8",
        b" ",
        b"-rf",
        b"new\nline",
        b"\x01",
        &long,
    ];
    for name in odd
        .into_iter()
        .map(<[u8]>::to_vec)
        .chain(colliding_names(b"c-", 9))
    {
        fs::write(dir.join(OsStr::from_bytes(&name)), &name).unwrap();
    }
}

fn links(dir: &Path) {
    symlink("target", dir.join("short")).unwrap();
    symlink("/no/such/place", dir.join("dangling")).unwrap();
    symlink("x/".repeat(1500), dir.join("long")).unwrap();
    let first = dir.join("many-000");
    fs::write(&first, "a file of many names").unwrap();
    for number in 1..HARD_LINKS {
        fs::hard_link(&first, dir.join(format!("many-{number:03}"))).unwrap();
    }
    let other = dir.join("z");
    fs::create_dir(&other).unwrap();
    fs::hard_link(&first, other.join("elsewhere")).unwrap();
    fs::hard_link(dir.join("short"), other.join("link-to-a-link")).unwrap();
    let large = dir.join("large");
    fs::write(&large, vec![7; 500_000]).unwrap();
    fs::hard_link(&large, other.join("large-too")).unwrap();
}

fn special(dir: &Path) {
    let node = |name: &str, kind, device| {
        let mode = Mode::from_raw_mode(0o640);
        mknodat(CWD, dir.join(name), kind, mode, device)
    };
    node("pipe", FileType::Fifo, 0).unwrap();
    drop(UnixListener::bind(dir.join("socket")).unwrap());
    if ubtrfs_sim::is_root() {
        let device = rustix::fs::makedev(259, 70_000);
        node("block", FileType::BlockDevice, device).unwrap();
        node("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3)).unwrap();
    }
}

fn deep(dir: &Path) {
    let mut path = dir.to_owned();
    for level in 0..DEPTH {
        // Files that sort before and after the subdirectory.
        fs::write(path.join("a"), level.to_string()).unwrap();
        fs::write(path.join("z"), level.to_string()).unwrap();
        path.push("down");
        fs::create_dir(&path).unwrap();
    }
}

fn crowd(dir: &Path) {
    for number in 0..CROWD {
        fs::write(dir.join(format!("file-{number}")), vec![b'c'; number % 300]).unwrap();
    }
}

fn attributes(dir: &Path) {
    let file = dir.join("file");
    fs::write(&file, "attributes").unwrap();
    let large = vec![b'v'; 2500];
    let colliding = colliding_names(b"user.c-", 3);
    let names = ["user.empty", "user.b", "user.large"].map(|name| name.as_bytes().to_vec());
    for (name, value) in
        names
            .into_iter()
            .chain(colliding)
            .zip([&b""[..], b"\0\xff", &large, b"1", b"2", b"3"])
    {
        // The test's file system may not support attributes.
        let _ = xattr::set(&file, OsStr::from_bytes(&name), value);
    }
    // u::rwx, u:1000:r--, g::r-x, m::r-x, o::---
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in [
        (1, 7, u32::MAX),
        (2, 4, 1000),
        (4, 5, u32::MAX),
        (16, 5, u32::MAX),
        (32, 0, u32::MAX),
    ] {
        acl.extend([tag, 0, perm, 0]);
        acl.extend(id.to_le_bytes());
    }
    for name in ["system.posix_acl_access", "system.posix_acl_default"] {
        let _ = xattr::set(dir, name, &acl);
    }
    for mode in [0o000, 0o644, 0o1777, 0o2755, 0o4711] {
        // Other users cannot read files without permission, even their own.
        if mode == 0 && !ubtrfs_sim::is_root() {
            continue;
        }
        let path = dir.join(format!("mode-{mode:04o}"));
        fs::write(&path, "").unwrap();
        if ubtrfs_sim::is_root() {
            lchown(&path, Some(mode * 7), Some(4_000_000_000)).unwrap();
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    for (name, sec, nsec) in [
        ("old", -12_345_678, 5),
        ("epoch", 0, 0),
        ("late", 4_000_000_000, 999_999_999),
    ] {
        let path = dir.join(name);
        fs::write(&path, name).unwrap();
        set_times(&path, sec, nsec);
    }
}

fn set_times(path: &Path, sec: i64, nsec: i64) {
    let time = |sec| Timespec {
        tv_sec: sec,
        tv_nsec: nsec,
    };
    let times = Timestamps {
        last_access: time(sec + 1),
        last_modification: time(sec),
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

//! With a crafted volume the command does not walk forever, and does not create names outside the
//! destination.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use ubtrfs::Volume;
use ubtrfs_sim::craft;
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, or_skip};

use crate::process::{empty_volume, fail, location, succeed, ubtrfs};

const INODE_ITEM: u8 = 1;
const INODE_REF: u8 = 12;

fn made(fill: impl FnOnce(&Path)) -> KernelVolume {
    let volume = KernelVolume::make(&MkfsSpec::default()).unwrap();
    let mount = volume.mount("").unwrap();
    fill(mount.path());
    mount.unmount().unwrap();
    volume
}

/// ENTRIES-1
#[test]
fn a_walk_that_begins_in_a_loop_of_directories_ends() {
    if !or_skip("a_walk_that_begins_in_a_loop_of_directories_ends") {
        return;
    }
    let made = made(|dir| fs::create_dir_all(dir.join("a/b/c")).unwrap());
    let image = &made.devices()[0];
    // In b, c becomes a; and a has an entry that says that its parent is b.
    let inode = |ino| craft::key(ino, INODE_ITEM, 0);
    assert!(craft::replace_in_items(image, &inode(259), &inode(257)).unwrap() > 0);
    let parent = |ino| craft::key(257, INODE_REF, ino);
    assert!(craft::replace_in_keys(image, &parent(256), &parent(258)).unwrap() > 0);
    let out = tempfile::tempdir().unwrap();
    let a = location(image, "a");
    let refusal = "has more than one name";
    for words in [
        &["ls", "-R"][..],
        &["ls", "-R", "--json"],
        &["tree"],
        &["filesystem", "du"],
    ] {
        let args = words.iter().map(|word| word.as_ref());
        fail(args.chain([a.as_os_str()]), refusal);
    }
    fail(
        [
            "cp".as_ref(),
            "-a".as_ref(),
            a.as_os_str(),
            out.path().as_os_str(),
        ],
        refusal,
    );
    fail(
        ["export".as_ref(), "--tar".as_ref(), a.as_os_str()],
        refusal,
    );
}

/// EXPORT-3
#[test]
fn an_archive_has_no_name_that_leads_out_of_it() {
    if !or_skip("an_archive_has_no_name_that_leads_out_of_it") {
        return;
    }
    let made = made(|dir| {
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("d/aaa_escape"), "x").unwrap();
    });
    let image = &made.devices()[0];
    assert!(craft::rename(image, 257, b"aaa_escape", b"../../esca").unwrap() > 0);
    let d = location(image, "d");
    let output = fail(
        ["export".as_ref(), "--tar".as_ref(), d.as_os_str()],
        "not a name that a directory can hold",
    );
    let archive = made.dir().join("archive.tar");
    fs::write(&archive, output.stdout).unwrap();
    let list = Command::new("tar")
        .arg("-tf")
        .arg(&archive)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&list.stdout), "d/\n");
    // A listing shows the name nevertheless.
    let shown = ubtrfs().args(["ls", "-A"]).arg(&d).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&shown.stdout), "../../esca\n");
}

/// ENTRY-PATH-1
#[test]
fn a_long_listing_has_the_dots_of_a_directory_whose_name_is_none() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let volume = Volume::create(&image, 256 << 20).unwrap();
    volume.root().create_dir_all("/d/entry").unwrap();
    let ino = volume.root().metadata("/d").unwrap().ino();
    volume.close().unwrap();
    assert!(craft::rename(&image, ino, b"entry", b"../..").unwrap() > 0);
    let listed = succeed([OsString::from("ls"), "-laRi".into(), location(&image, "d")]);
    let listed = String::from_utf8(listed).unwrap();
    let lines = |end: &str| listed.lines().filter(|line| line.ends_with(end)).count();
    assert_eq!((lines(" ."), lines(" ..")), (2, 2), "{listed}");
}

#[test]
fn file_of_a_size_that_cannot_be_is_left_out() {
    let (scratch, image) = empty_volume();
    let at = |path: &str| location(&image, path);
    succeed(["mkdir".into(), at("d")]);
    let host = scratch.path().join("host");
    fs::write(&host, vec![7; 5000]).unwrap();
    for name in ["d/a", "d/huge", "d/z"] {
        succeed(["cp".into(), host.clone().into(), at(name)]);
    }
    const SIZE: u64 = 0x1122_3344_5566_7788;
    let size = OsString::from(SIZE.to_string());
    succeed(["truncate".into(), "-s".into(), size, at("d/huge")]);
    let (old, new) = (SIZE.to_le_bytes(), u64::MAX.to_le_bytes());
    assert!(craft::replace_in_items(&image, &old, &new).unwrap() > 0);
    let message = "a size of 18446744073709551615 bytes";
    let out = scratch.path().join("out");
    for option in ["-a", "-r"] {
        let _ = fs::remove_dir_all(&out);
        fail(
            ["cp".into(), option.into(), at("d"), out.clone().into()],
            message,
        );
        let mut names: Vec<_> = fs::read_dir(&out)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["a", "z"]);
    }
    fail(["cp".into(), at("d/huge"), host.clone().into()], message);
    assert_eq!(host.metadata().unwrap().len(), 5000);
    let output = fail(["export".into(), "--tar".into(), at("d")], message);
    let archive = scratch.path().join("archive.tar");
    fs::write(&archive, output.stdout).unwrap();
    let list = Command::new("tar").arg("-tf").arg(&archive).output();
    let list = list.unwrap();
    assert!(list.status.success());
    assert_eq!(String::from_utf8_lossy(&list.stdout), "d/\nd/a\nd/z\n");
}

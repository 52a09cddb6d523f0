//! `cp` into volumes, within one, and between two: the kernel shows the copied files.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use ubtrfs_sim::Scratch;
use ubtrfs_sim::fill::Scale;
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, Profile, or_skip};
use ubtrfs_sim::manifest::{Field, Manifest, assert_same};
use ubtrfs_sim::matrix::Case;
use ubtrfs_sim::seed;

use crate::edits::write;
use crate::process::{empty_volume, fail, judged, location, succeed, ubtrfs};

/// Fields in which a copy differs from its original.
const NOT_COPIED: [Field; 4] = [Field::Ino, Field::Ctime, Field::Btime, Field::DirSize];

fn cp<const N: usize>(words: [OsString; N]) {
    succeed(std::iter::once("cp".into()).chain(words));
}

#[test]
fn a_tree_goes_into_volumes_and_out_again_unchanged() {
    if !or_skip("a_tree_goes_into_volumes_and_out_again_unchanged") {
        return;
    }
    let seed = seed("copies in");
    let filled = Case::of_profile(Profile::Single)
        .build(&Scale::small(), seed)
        .unwrap();
    let expected = &filled.manifest;
    let mount = filled.volume.mount_ro().unwrap();
    let (_scratch, first) = empty_volume();
    let (_second_scratch, second) = empty_volume();

    // Copy the contents of a folder of this machine into the root directory.
    cp([
        "-a".into(),
        mount.path().join(".").into(),
        location(&first, ""),
    ]);
    mount.unmount().unwrap();
    let copy = judged(&first);
    assert_same("into a volume", expected, &copy, &NOT_COPIED);

    // Copy within a volume, with and without sharing data.
    cp(["-a".into(), location(&first, "."), location(&second, "")]);
    let copy = judged(&second);
    assert_same("between volumes", expected, &copy, &NOT_COPIED);
    for (name, reflink) in [("shared", "--reflink=always"), ("again", "--reflink=never")] {
        succeed(["mkdir".into(), location(&second, name)]);
        for dir in ["names", "layout", "links", "attributes", "content"] {
            let from = location(&second, dir);
            // Files without checksums share data only with other such files.
            let reflink = if dir == "content" {
                "--reflink=auto"
            } else {
                reflink
            };
            cp(["-a".into(), reflink.into(), from, location(&second, name)]);
        }
    }
    let whole = judged(&second);
    for name in ["shared", "again"] {
        let copy = whole.below(name.as_bytes());
        for dir in ["names", "layout", "links", "attributes", "content"] {
            let (left, right) = (expected.below(dir.as_bytes()), copy.below(dir.as_bytes()));
            assert_same(name, &left, &right, &NOT_COPIED);
        }
    }

    // Copy out again.
    let empty = KernelVolume::make(&MkfsSpec::default()).unwrap();
    let out = empty.mount("").unwrap();
    let copy = out.path().join("out");
    cp(["-a".into(), first.clone().into(), copy.clone().into()]);
    let copy = Manifest::of_dir(&copy).unwrap();
    assert_same("out of a volume", expected, &copy, &NOT_COPIED);
}

/// Returns the bytes on disk of a file in a mounted volume.
fn allocated(mount: &Path, name: &str) -> u64 {
    mount.join(name).metadata().unwrap().blocks() * 512
}

#[test]
fn holes_are_kept_made_and_filled() {
    if !or_skip("holes_are_kept_made_and_filled") {
        return;
    }
    let (scratch, image) = empty_volume();
    let source = scratch.path().join("source");
    let file = fs::File::create(&source).unwrap();
    file.set_len(4 << 20).unwrap();
    file.write_all_at(&[1; 8192], 1 << 20).unwrap();
    file.write_all_at(&[0; 1 << 20], 2 << 20).unwrap();
    file.write_all_at(&[2; 10], (3 << 20) + 5000).unwrap();
    drop(file);
    let expected = fs::read(&source).unwrap();
    for (name, option) in [
        ("kept", "--sparse=auto"),
        ("made", "--sparse"),
        ("filled", "--sparse=never"),
    ] {
        cp([option.into(), source.clone().into(), location(&image, name)]);
    }
    let from = |name| location(&image, name);
    cp(["--sparse=never".into(), from("kept"), from("filled within")]);
    cp([
        "--sparse=always".into(),
        from("filled"),
        from("made within"),
    ]);
    cp(["--reflink=always".into(), from("filled"), from("shared")]);
    let volume = KernelVolume::of_files(vec![image.clone()], Scratch::new().unwrap());
    volume.check().unwrap();
    let mount = volume.mount_ro().unwrap();
    let cases = [
        ("kept", 0..2 << 20),
        ("made", 0..64 << 10),
        ("filled", 4 << 20..5 << 20),
        ("filled within", 4 << 20..5 << 20),
        ("made within", 0..64 << 10),
        ("shared", 4 << 20..5 << 20),
    ];
    for (name, range) in cases {
        assert_eq!(
            fs::read(mount.path().join(name)).unwrap(),
            expected,
            "{name}"
        );
        let bytes = allocated(mount.path(), name);
        assert!(range.contains(&bytes), "{name}: {bytes}");
    }
    let df = Command::new("btrfs")
        .args(["filesystem", "du", "-s", "--raw"])
        .arg(mount.path().join("shared"))
        .output()
        .unwrap();
    let df = String::from_utf8(df.stdout).unwrap();
    let exclusive = df.lines().nth(1).unwrap().split_whitespace().nth(1);
    assert_eq!(exclusive, Some("0"), "{df}");
}

#[test]
fn without_a_copies_belong_to_root_and_existing_files_keep_what_they_are() {
    let (scratch, image) = empty_volume();
    let at = |path: &str| location(&image, path);
    let source = scratch.path().join("source");
    fs::write(&source, "new").unwrap();
    let _ = std::os::unix::fs::chown(&source, Some(1000), Some(1000));
    fs::set_permissions(&source, fs::Permissions::from_mode(0o4755)).unwrap();
    let facts = |path: &str| {
        let listed = succeed(["stat".into(), "--format".into(), "json".into(), at(path)]);
        let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
        let file = &listed["stat"][0];
        (
            file["mode"].as_str().unwrap().to_owned(),
            file["uid"].as_u64().unwrap(),
            file["nlink"].as_u64().unwrap(),
        )
    };
    cp([source.clone().into(), at("made")]);
    let (mode, uid, _) = facts("made");
    assert_eq!(u32::from_str_radix(&mode, 8).unwrap() & !0o755, 0);
    assert_eq!(uid, 0);

    // An existing file is overwritten in place, so that its other names see the new content.
    write(&image, "old", b"something longer");
    succeed(["chmod".into(), "600".into(), at("old")]);
    succeed(["chown".into(), "5".into(), at("old")]);
    succeed(["ln".into(), at("old"), at("other")]);
    cp([source.clone().into(), at("old")]);
    assert_eq!(facts("old"), ("0600".to_owned(), 5, 2));
    assert_eq!(succeed(["cat".into(), at("other")]), b"new");
    // With -a it is replaced.
    cp(["-a".into(), source.clone().into(), at("old")]);
    assert_eq!(facts("old").2, 1);
    assert_eq!(facts("old").0, "4755");

    // Nothing is written through a link, and a directory is not replaced, or entered through a link.
    write(&image, "victim", b"untouched");
    succeed(["ln".into(), "-s".into(), "victim".into(), at("link")]);
    let dir = scratch.path().join("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("link"), "new").unwrap();
    cp(["-r".into(), dir.join(".").into(), at("")]);
    assert_eq!(succeed(["cat".into(), at("victim")]), b"untouched");
    assert_eq!(succeed(["cat".into(), at("link")]), b"new");
    succeed(["mkdir".into(), at("d"), at("d/link")]);
    fail(
        ["cp".into(), "-r".into(), dir.join(".").into(), at("d")],
        "would replace a directory",
    );
    succeed(["ln".into(), "-s".into(), "d".into(), at("e")]);
    fs::rename(&dir, scratch.path().join("e")).unwrap();
    let args = [
        "cp".into(),
        "-r".into(),
        scratch.path().join("e").into(),
        at(""),
    ];
    fail(args, "would replace a file that is no directory");
}

#[test]
fn destinations_are_named_as_for_cp() {
    let (scratch, image) = empty_volume();
    let at = |path: &str| location(&image, path);
    let tree = scratch.path().join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("sub/file"), "x").unwrap();
    symlink("sub/file", tree.join("link")).unwrap();
    let from = |path: &str| OsString::from(tree.join(path));
    succeed(["mkdir".into(), at("dir")]);
    // A directory copied under its own name, under a new name, only its contents, and a link as the file it
    // points to.
    cp(["-r".into(), tree.clone().into(), at("dir")]);
    cp(["-r".into(), tree.clone().into(), at("new")]);
    cp(["-r".into(), from("."), at("dir")]);
    cp([from("link"), from("sub/file"), at("dir")]);
    cp(["-r".into(), at("new"), at("dir")]);
    cp(["-r".into(), at("new/."), at("newer")]);
    let listed = succeed(["ls".into(), "-R".into(), at("dir")]);
    let listed = String::from_utf8(listed).unwrap();
    let listed = listed.replace(at("").to_str().unwrap(), "/");
    let expected = "/dir:\nfile\nlink\nnew\nsub\ntree\n\n/dir/new:\nlink\nsub\n\n/dir/new/sub:\nfile\n\n\
                    /dir/sub:\nfile\n\n/dir/tree:\nlink\nsub\n\n/dir/tree/sub:\nfile\n";
    assert_eq!(listed, expected);
    assert_eq!(succeed(["cat".into(), at("newer/link")]), b"x");

    let cases: [(&[OsString], &str); 9] = [
        (&[tree.clone().into(), at("x")], "is a directory: -r or -a"),
        (&[at("dir"), at("x")], "is a directory: -r or -a"),
        (&[from("none"), at("x")], "No such file or directory"),
        (&[at("none"), at("x")], "no such file or directory"),
        (
            &[from("sub/file"), at("none/x")],
            "no such file or directory",
        ),
        (
            &[from("link"), from("sub/file"), at("x")],
            "is not a directory",
        ),
        (&["-r".into(), at("dir"), at("dir/sub")], "into itself"),
        (&[at("dir/file"), at("dir/file")], "onto itself"),
        (
            &["-r".into(), tree.clone().into(), "/nowhere/x".into()],
            "is a directory, not an image",
        ),
    ];
    for (args, message) in cases {
        let words = std::iter::once("cp".into()).chain(args.iter().cloned());
        fail(words, message);
    }
    // An image is not copied into itself.
    let here = scratch.path().join(".");
    let args = ["cp".into(), "-r".into(), here.into(), at("dir")];
    fail(args, "it is the image that is written");
    succeed(["check".as_ref(), "-q".as_ref(), image.as_os_str()]);
}

#[test]
fn volumes_of_several_devices_are_copied_into() {
    if !or_skip("volumes_of_several_devices_are_copied_into") {
        return;
    }
    let make = |profile| KernelVolume::make(&Case::of_profile(profile).spec()).unwrap();
    let (from, to) = (make(Profile::Raid1), make(Profile::Raid10));
    let data: Vec<u8> = (0..3_000_000u32).map(|at| (at >> 8) as u8).collect();
    let mount = from.mount("").unwrap();
    fs::write(mount.path().join("file"), &data).unwrap();
    mount.unmount().unwrap();
    // Each volume takes its own devices from those named.
    let devices = from.devices()[1..].iter().chain(&to.devices()[1..]);
    let output = ubtrfs()
        .args([
            "cp".into(),
            location(&from.devices()[0], "file"),
            location(&to.devices()[0], ""),
        ])
        .args(devices.flat_map(|device| ["--device".into(), OsString::from(device)]))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    to.check().unwrap();
    let mount = to.mount_ro().unwrap();
    assert_eq!(fs::read(mount.path().join("file")).unwrap(), data);
}

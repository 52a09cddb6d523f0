//! The owner of all files of a new volume, subvolumes given by absolute paths, and files that boot loaders
//! read.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ubtrfs_sim::Scratch;

use crate::process::{assert_success, make, mkfs};

fn text(args: &[&str], image: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ubtrfs"));
    let output = command.args(args).arg(image).output().unwrap();
    assert_success(args[0], &output);
    String::from_utf8(output.stdout).unwrap()
}

fn folder(scratch: &Scratch) -> PathBuf {
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("live/sub")).unwrap();
    fs::write(source.join("file"), "content").unwrap();
    std::os::unix::fs::symlink("file", source.join("live/link")).unwrap();
    source
}

#[test]
fn all_files_belong_to_the_owner_that_is_named() {
    let scratch = Scratch::new().unwrap();
    let source = folder(&scratch);
    let archive = scratch.path().join("v.tar");
    let tar = Command::new("tar")
        .args(["--owner=5", "--group=6", "-cf"])
        .arg(&archive)
        .arg("-C")
        .args([&source, Path::new(".")])
        .status();
    assert!(tar.unwrap().success());
    for rootdir in [&source, &archive] {
        for (words, owner) in [
            ("--owner 1234:77", ["1234", "77"]),
            ("--owner 1234", ["1234", "1234"]),
            ("--all-root", ["0", "0"]),
            ("--owner 9:9 --all-root", ["0", "0"]),
            ("--all-root --owner 9:9", ["9", "9"]),
        ] {
            let images = make(scratch.path(), words, 1, rootdir);
            let listed = text(&["ls", "-lnaR"], &images[0]);
            let lines: Vec<Vec<&str>> = listed
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>())
                .filter(|fields| fields.len() > 6)
                .collect();
            assert!(lines.len() >= 5, "{listed}");
            for fields in lines {
                assert_eq!(fields[2..4], owner, "{words}: {listed}");
            }
        }
    }
}

#[test]
fn fakeroot_is_told_that_its_owners_are_not_seen() {
    let scratch = Scratch::new().unwrap();
    let source = folder(&scratch);
    for (options, is_warned) in [(&[][..], true), (&["--all-root"], false)] {
        let output = mkfs()
            .arg("-qf")
            .args(options)
            .arg("--rootdir")
            .args([&source, &scratch.path().join("v.img")])
            .env("FAKEROOTKEY", "1")
            .output()
            .unwrap();
        assert_success("fakeroot", &output);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.contains("fakeroot"), is_warned, "{said}");
    }
}

#[test]
fn paths_in_the_volume_may_begin_with_a_slash() {
    let scratch = Scratch::new().unwrap();
    let source = folder(&scratch);
    let words =
        "--subvol rw:/live --subvol ro:live//sub --inode-flags nodatasum:/file --dense /file";
    let images = make(scratch.path(), words, 1, &source);
    let listed = text(&["subvolume", "list"], &images[0]);
    assert!(listed.contains("path live\n"), "{listed}");
    assert!(listed.contains("path live/sub\n"), "{listed}");
    // A path of this machine is not accepted as a path in the volume, as in mkfs.btrfs.
    let output = mkfs()
        .arg("-qf")
        .args(["--subvol".into(), source.join("live").into_os_string()])
        .arg("--rootdir")
        .args([&source, &images[0]])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("could not get canonical path"), "{said}");
}

const SPARSE_BYTES: u64 = 1 << 20;

/// Creates a file with data at its start and at its end, and a hole between.
fn sparse(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = File::create(path).unwrap();
    file.write_all_at(b"kernel", 0).unwrap();
    file.write_all_at(b"end", SPARSE_BYTES - 3).unwrap();
}

fn allocated(image: &Path, path: &str) -> u64 {
    let place = PathBuf::from(format!("{}:/{path}", image.display()));
    let shown = text(&["filesystem", "du", "--raw"], &place);
    let line = shown.lines().last().unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn files_of_boot_loaders_have_no_holes() {
    let scratch = Scratch::new().unwrap();
    let source = scratch.path().join("source");
    let dense = [
        "boot/vmlinuz",
        "boot/deep/initrd",
        "@/boot/vmlinuz",
        "efi/loader",
    ];
    let others = ["var/disk", "@/var/disk", "bootstrap/file"];
    for path in dense.iter().chain(&others) {
        sparse(&source.join(path));
    }
    let archive = scratch.path().join("v.tar");
    let tar = Command::new("tar")
        .args(["--sparse", "-cf"])
        .arg(&archive)
        .arg("-C")
        .args([&source, Path::new(".")])
        .status();
    assert!(tar.unwrap().success());
    for rootdir in [&source, &archive] {
        let images = make(scratch.path(), "--subvol @ --dense efi", 1, rootdir);
        let image = &images[0];
        for path in dense {
            assert_eq!(allocated(image, path), SPARSE_BYTES, "{path}");
        }
        for path in others {
            assert!(allocated(image, path) < SPARSE_BYTES / 2, "{path}");
        }
        let place = PathBuf::from(format!("{}:/boot/vmlinuz", image.display()));
        let mut cat = Command::new(env!("CARGO_BIN_EXE_ubtrfs"));
        let copy = cat.arg("cat").arg(place).output().unwrap().stdout;
        assert!(copy == fs::read(source.join("boot/vmlinuz")).unwrap());
        assert_success("check", &check(image));
        // An independent reader, which boots from such files.
        let by_grub = Command::new("grub-fstest")
            .arg(image)
            .args(["cat", "/boot/vmlinuz"])
            .output();
        match by_grub {
            Ok(output) => assert!(
                output.stdout == copy,
                "{}",
                String::from_utf8_lossy(&output.stderr)
            ),
            Err(_) => ubtrfs_sim::skip("no grub-fstest"),
        }
    }
}

fn check(image: &Path) -> std::process::Output {
    let mut check = Command::new(env!("CARGO_BIN_EXE_ubtrfs"));
    check.args(["check", "-q"]).arg(image).output().unwrap()
}

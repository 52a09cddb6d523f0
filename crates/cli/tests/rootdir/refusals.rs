//! Impossible requests are refused with a reason, and leave no image that looks like a volume.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use ubtrfs_sim::kernel::{self, LoopDevice};
use ubtrfs_sim::{Scratch, share_program};

use crate::judges::assert_sound;
use crate::process::{assert_success, mkfs, refusal};

fn folder(scratch: &Scratch) -> std::path::PathBuf {
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("sub/below")).unwrap();
    fs::write(source.join("file"), "contents").unwrap();
    source
}

#[test]
fn options_are_refused_in_the_words_of_mkfs_btrfs() {
    let scratch = Scratch::new().unwrap();
    let source = folder(&scratch);
    let image = scratch.path().join("v.img");
    let file = source.join("file");
    let source = source.to_str().unwrap();
    for (words, error) in [
        (
            "--shrink",
            "the option --shrink must be used with --rootdir",
        ),
        (
            "--subvol sub",
            "option --subvol must be used with --rootdir",
        ),
        (
            "--compress zstd",
            "--compression must be used with --rootdir",
        ),
        (
            "--inode-flags nodatacow:sub",
            "option --inode-flags must be used with --rootdir",
        ),
        ("--reflink", "--reflink must be used with --rootdir"),
        ("--owner 0:0", "option --owner must be used with --rootdir"),
        (
            "--all-root",
            "option --all-root must be used with --rootdir",
        ),
        (
            "--rootdir nowhere",
            "could not get canonical path to nowhere",
        ),
        (
            "--rootdir SOURCE --subvol x",
            "could not get canonical path: x",
        ),
        (
            "--rootdir SOURCE --subvol foo:sub",
            "could not get canonical path: foo:sub",
        ),
        (
            "--rootdir SOURCE --subvol /etc",
            "could not get canonical path: /etc",
        ),
        (
            "--rootdir SOURCE --subvol file",
            "subvolume is not a directory: file",
        ),
        (
            "--rootdir SOURCE --subvol sub --subvol ./sub/",
            "subvolume specified more than once: sub",
        ),
        (
            "--rootdir SOURCE --subvol default:sub --subvol default-ro:sub/below",
            "default subvolume can only be specified once",
        ),
        (
            "--rootdir SOURCE --compress foo",
            "unrecognized compression type foo",
        ),
        (
            "--rootdir SOURCE --compress zstd:16",
            "compression level 16 out of range [1..15]",
        ),
        (
            "--rootdir SOURCE --compress lzo:2",
            "compression level 2 out of range [1..1]",
        ),
        (
            "--rootdir SOURCE --compress zlib:x",
            "x is not a valid numeric value",
        ),
        (
            "--rootdir SOURCE --inode-flags immutable:sub",
            "unknown inode flag: immutable",
        ),
        (
            "--rootdir SOURCE --inode-flags nodatacow",
            "no inode flags in nodatacow",
        ),
        (
            "--rootdir SOURCE -d raid5 -m raid1 OTHER",
            "RAID5 block groups cannot be filled",
        ),
        ("--rootdir FILE", "not a tar archive: no header at byte 0"),
        ("--rootdir FILE --reflink", "--reflink needs a directory"),
    ] {
        let other = scratch.path().join("w.img");
        let words: Vec<String> = words
            .split(' ')
            .map(|word| match word {
                "SOURCE" => source.to_owned(),
                "FILE" => file.to_str().unwrap().to_owned(),
                "OTHER" => other.to_str().unwrap().to_owned(),
                word => word.to_owned(),
            })
            .collect();
        let said = refusal(
            words
                .iter()
                .map(String::as_str)
                .chain([image.to_str().unwrap()]),
        );
        assert!(said.contains(error), "{words:?}: {said}");
    }
}

#[test]
fn image_in_the_folder_is_not_read() {
    let scratch = Scratch::new().unwrap();
    let source = folder(&scratch);
    let image = source.join("v.img");
    let said = refusal(["--rootdir".as_ref(), source.as_os_str(), image.as_os_str()]);
    assert!(
        said.contains("v.img is the image that is being made"),
        "{said}"
    );
    assert_no_volume(&image);
}

/// Asserts that no reader takes the image for a btrfs.
fn assert_no_volume(image: &Path) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_ubtrfs"))
        .args(["ls"])
        .arg(image)
        .output()
        .unwrap();
    assert!(!output.status.success());
}

#[test]
fn file_that_cannot_be_read_is_named() {
    if !ubtrfs_sim::is_root_or_skip() {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let source = folder(&scratch);
    let locked = source.join("sub/locked");
    fs::write(&locked, "").unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    let program = share_program(env!("CARGO_BIN_EXE_ubtrfs"), scratch.path()).unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let image = scratch.path().join("v.img");
    let mut command = Command::new(program);
    command
        .arg("mkfs")
        .uid(65534)
        .gid(65534)
        .env("TMPDIR", scratch.path());
    command.arg("--rootdir").arg(&source).arg(&image);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("cannot open") && said.contains("sub/locked"),
        "{said}"
    );
    assert_no_volume(&image);
}

#[test]
fn device_that_is_too_small_is_left_without_a_volume() {
    if !kernel::or_skip("device_that_is_too_small_is_left_without_a_volume") {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let source = folder(&scratch);
    File::create(source.join("large")).unwrap();
    let mut noise = vec![0; 150 << 20];
    ubtrfs_sim::Rng::new(9).fill(&mut noise);
    fs::write(source.join("large"), &noise).unwrap();
    let least = |bytes: u64| {
        let image = scratch.path().join(format!("{bytes}.img"));
        File::create(&image).unwrap().set_len(bytes).unwrap();
        let device = LoopDevice::attach(&image).unwrap();
        let output = mkfs()
            .args(["-q", "-f", "--rootdir"])
            .arg(&source)
            .arg(device.path())
            .output();
        (output.unwrap(), device, image)
    };
    let (output, device, image) = least(120 << 20);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    drop(device);
    assert_no_volume(&image);
    // The size in the message is sufficient.
    let needed = said
        .split("the files need ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    assert!(said.contains("there are 125829120"), "{said}");
    let needed: u64 = needed.parse().unwrap();
    assert!((150 << 20..200 << 20).contains(&needed), "{said}");
    let (output, device, image) = least(needed.next_multiple_of(1 << 20));
    assert_success("the size that was named", &output);
    drop(device);
    assert_sound("the size that was named", &[image]);
}

#[test]
fn images_that_were_made_for_a_volume_that_fails_are_removed() {
    let scratch = Scratch::new().unwrap();
    let source = folder(&scratch);
    let at = |name: &str| scratch.path().join(name);
    let (made, absent) = (at("made.img"), at("none/other.img"));
    refusal([
        "-b".as_ref(),
        "256M".as_ref(),
        made.as_os_str(),
        absent.as_os_str(),
    ]);
    assert!(!made.exists());
    // One that was there is left, as its owner made it.
    File::create(&made).unwrap().set_len(256 << 20).unwrap();
    let rootdir = ["-b", "256M", "--rootdir"].map(AsRef::as_ref);
    let args = [source.as_os_str(), made.as_os_str(), absent.as_os_str()];
    refusal(rootdir.into_iter().chain(args));
    assert!(made.exists());
}

#[test]
fn signal_ends_the_filling_and_removes_the_image() {
    for signal in [Signal::INT, Signal::TERM] {
        let scratch = Scratch::new().unwrap();
        let image = scratch.path().join("v.img");
        let mut child = mkfs()
            .args(["-q", "--rootdir", "-"])
            .arg(&image)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_path("file").unwrap();
        header.set_size(1 << 40);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_cksum();
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(header.as_bytes()).unwrap();
        // The filling reads, so that the signals are handled.
        pipe.write_all(&[0; 4 << 20]).unwrap();
        assert!(image.exists());
        kill_process(Pid::from_child(&child), signal).unwrap();
        while pipe.write_all(&[0; 1 << 20]).is_ok() {}
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(!image.exists(), "{said}");
    }
}

//! Volumes of several devices of which one is named, and the others lie beside it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use ubtrfs_sim::images;
use ubtrfs_sim::kernel::KernelVolume;

use crate::process::{fail, location, succeed, ubtrfs};

/// Commands that read, and what comes behind the device.
const READING: &[&str] = &[
    "ls -lR",
    "filesystem show",
    "filesystem usage",
    "filesystem label",
    "device usage",
    "subvolume list",
    "inspect-internal dump-tree",
    "inspect-internal list-chunks",
    "check -q",
];

fn words(command: &str, device: &Path) -> Vec<OsString> {
    let words = command.split(' ').map(OsString::from);
    words.chain([device.into()]).collect()
}

/// Two devices of one volume in a folder of their own.
struct Two {
    _image: images::Image,
    devices: Vec<PathBuf>,
}

impl Two {
    fn new() -> Two {
        let image = images::image("raid1").unwrap();
        let devices = image.devices.clone();
        assert_eq!(devices.len(), 2);
        Two {
            _image: image,
            devices,
        }
    }
}

#[test]
fn one_device_stands_for_all_that_lie_beside_it() {
    let two = Two::new();
    let [first, second] = [&two.devices[0], &two.devices[1]];
    for command in READING {
        let mut with_both = words(command, first);
        // Those that list devices do it in the order of their numbers.
        with_both.extend(["--device".into(), second.into()]);
        let expected = match command.contains("dump-tree") {
            true => succeed([words(command, first), vec![second.into()]].concat()),
            false => succeed(with_both),
        };
        assert_eq!(succeed(words(command, first)), expected, "{command}");
    }
    succeed([OsStr::new("mkdir"), &location(second, "made")]);
    succeed([
        OsStr::new("filesystem"),
        OsStr::new("label"),
        first.as_os_str(),
        OsStr::new("name"),
    ]);
    for device in [first, second] {
        let label = succeed(words("filesystem label", device));
        assert_eq!(label, b"name\n");
    }
    succeed(words("check -q", first));
    if ubtrfs_sim::kernel::or_skip("one_device_stands_for_all_that_lie_beside_it") {
        let scratch = ubtrfs_sim::Scratch::new().unwrap();
        let volume = KernelVolume::of_files(two.devices.clone(), scratch);
        volume.check().unwrap();
        assert!(volume.mount_ro().unwrap().path().join("made").is_dir());
    }
}

#[test]
fn clone_beside_the_device_is_not_guessed_about() {
    let two = Two::new();
    let copy = two.devices[1].with_extension("copy");
    fs::copy(&two.devices[1], &copy).unwrap();
    let first = &two.devices[0];
    for command in ["ls", "check", "inspect-internal dump-tree"] {
        fail(
            words(command, first),
            "may both be device 2: name the one that is meant",
        );
    }
    fail(
        [OsStr::new("mkdir"), &location(first, "made")],
        "may both be device 2",
    );
    let mut named = words("ls", first);
    named.extend(["--device".into(), copy.into()]);
    succeed(named);
}

#[test]
fn device_that_is_missing_is_said() {
    let two = Two::new();
    let first = &two.devices[0];
    fs::remove_file(&two.devices[1]).unwrap();
    fail(words("ls", first), "device 2");
    let shown = String::from_utf8(succeed(words("filesystem show", first))).unwrap();
    assert!(shown.contains("*** Some devices missing\n"), "{shown}");
    let dump = ubtrfs()
        .args(words("inspect-internal dump-tree", first))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&dump.stderr).into_owned();
    assert!(dump.status.success(), "{said}");
    assert!(said.contains("device 2"), "{said}");
    assert!(dump.stdout.ends_with(b"\n") && dump.stdout.len() > 1000);
}

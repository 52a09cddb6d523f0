//! Volumes of several devices. One is named, and the others are in the same folder.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use ubtrfs_device::{Access, FileDevice};
use ubtrfs_sim::images;
use ubtrfs_sim::kernel::{KernelVolume, LoopDevice, MkfsSpec, or_skip};

use crate::process::{fail, location, succeed, ubtrfs};

/// Commands that read, and the operands that follow the device.
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
        // Commands that list devices sort them by number.
        with_both.extend(["--device".into(), second.into()]);
        let expected = if command.contains("dump-tree") {
            succeed([words(command, first), vec![second.into()]].concat())
        } else {
            succeed(with_both)
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
    if or_skip("one_device_stands_for_all_that_lie_beside_it") {
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

fn show(device: &Path) -> String {
    String::from_utf8(succeed(words("filesystem show", device))).unwrap()
}

#[test]
fn devices_of_a_seed_are_shown_as_by_btrfs_progs() {
    if !or_skip("devices_of_a_seed_are_shown_as_by_btrfs_progs") {
        return;
    }
    let mut volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    volume.sprout(512 << 20).unwrap().unmount().unwrap();
    let images = volume.devices();
    let [sprout, seed] = images else {
        panic!("{images:?}");
    };
    let written = |image| fs::metadata(image).unwrap().modified().unwrap();
    let before: Vec<_> = images.iter().map(written).collect();
    let loops = images.iter().map(|image| LoopDevice::attach(image));
    let loops: Vec<LoopDevice> = loops.collect::<Result<_, _>>().unwrap();
    for (device, image) in loops.iter().zip(images) {
        // btrfs-progs complains about loop devices of other tests that disappear during its scan.
        let mut progs = Command::new("btrfs");
        let by_progs = progs.args(words("filesystem show", device.path())).output();
        let by_progs = String::from_utf8(by_progs.unwrap().stdout).unwrap();
        assert_eq!(show(device.path()).trim_end(), by_progs.trim_end());
        let replaced = |text: String, (device, image): (&LoopDevice, &PathBuf)| {
            let [device, image] = [device.path(), image].map(|path| path.to_str().unwrap());
            text.replace(&format!("{device}\n"), &format!("{image}\n"))
        };
        let of_images = loops.iter().zip(images).fold(by_progs, replaced);
        assert_eq!(show(image).trim_end(), of_images.trim_end());
    }
    drop(loops);
    let json = succeed(words("--format json filesystem show", sprout));
    let json: Value = serde_json::from_slice(&json).unwrap();
    let shown = &json["filesystem-show"][0];
    assert_eq!(shown["total_devices"], 2);
    assert_eq!(shown["missing"], false);
    for (index, device) in [seed, sprout].into_iter().enumerate() {
        assert_eq!(shown["devices"][index]["path"], device.to_str().unwrap());
    }
    let after: Vec<_> = images.iter().map(written).collect();
    assert_eq!(after, before, "show only reads");

    let all = show(sprout);
    let held = images
        .iter()
        .map(|image| FileDevice::open(image, Access::Write));
    let held: Vec<FileDevice> = held.collect::<Result<_, _>>().unwrap();
    assert_eq!(show(sprout), all, "it takes no lock");
    drop(held);
    let of_seed = |line: &&str| !line.starts_with("\tdevid    1 ");
    let expected: Vec<&str> = all.lines().filter(of_seed).collect();
    let expected = format!("{}\n\t*** Some devices missing\n", expected.join("\n"));
    // SIBLING-2
    let clone = seed.with_extension("clone");
    fs::copy(seed, &clone).unwrap();
    assert_eq!(show(sprout), expected);
    fs::remove_file(clone).unwrap();
    assert_eq!(show(sprout), all);
    // Another seed is not mistaken for its own.
    MkfsSpec::new().make(std::slice::from_ref(seed)).unwrap();
    let tuned = Command::new("btrfstune")
        .args(["-S", "1"])
        .arg(seed)
        .output();
    assert!(tuned.unwrap().status.success());
    assert_eq!(show(sprout), expected);
}

#[test]
fn missing_devices_of_a_volume_with_a_seed_are_shown_as_by_btrfs_progs() {
    if !or_skip("missing_devices_of_a_volume_with_a_seed_are_shown_as_by_btrfs_progs") {
        return;
    }
    let mut volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mut mount = volume.sprout(512 << 20).unwrap();
    let third = volume.dir().join("third.img");
    File::create(&third).unwrap().set_len(512 << 20).unwrap();
    mount.add_device(&third).unwrap();
    mount.unmount().unwrap();
    fs::remove_file(third).unwrap();
    let loops = volume.devices().iter();
    let loops = loops.map(|image| LoopDevice::attach(image));
    let loops: Vec<LoopDevice> = loops.collect::<Result<_, _>>().unwrap();
    let sprout = loops[0].path();
    let mut progs = Command::new("btrfs");
    let by_progs = progs.args(words("filesystem show", sprout)).output();
    let by_progs = String::from_utf8(by_progs.unwrap().stdout).unwrap();
    assert_eq!(by_progs.matches("\tdevid ").count(), 2, "{by_progs}");
    assert!(by_progs.contains("*** Some devices missing"), "{by_progs}");
    assert_eq!(show(sprout).trim_end(), by_progs.trim_end());
    // The seed is listed once even if it is named as well.
    let both = [
        words("filesystem show", sprout),
        vec![loops[1].path().into()],
    ];
    let shown = String::from_utf8(succeed(both.concat())).unwrap();
    assert!(shown.contains(by_progs.trim_end()), "{shown}");
}

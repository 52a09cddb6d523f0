//! Commands that scripts written for btrfs-progs use.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;
use ubtrfs_sim::kernel::{KernelVolume, or_skip};
use ubtrfs_sim::{Scratch, images, with_roots_rights};

use crate::edits::write;
use crate::mounted::Mounted;
use crate::process::{empty_volume, fail, location, succeed, ubtrfs};

fn run(words: &str, path: &Path) -> String {
    let words = words.split(' ').map(OsString::from);
    let output = succeed(words.chain([path.into()]));
    String::from_utf8(output).unwrap()
}

#[test]
fn version_is_said_as_a_command() {
    assert!(succeed(["version"]).starts_with(b"ubtrfs v"));
}

#[test]
fn devices_are_ready_when_all_are_there() {
    let (_scratch, image) = empty_volume();
    assert_eq!(run("device ready", &image), "");
    let shown = run("device scan", &image);
    assert!(shown.starts_with("Scanning for btrfs filesystems on '"));
    assert_eq!(run("-q device scan", &image), "");
    assert_eq!(run("device scan --forget", &image), "");
    fail(
        ["device", "ready", "/dev/null"],
        "'/dev/null' is not a btrfs device",
    );
    fail(["device", "scan", "/nonexistent"], "not a btrfs device");
    let several = images::names().unwrap().into_iter().find_map(|name| {
        let image = images::image(&name).unwrap();
        (image.devices.len() > 1).then_some(image)
    });
    let several = several.unwrap();
    let first = several.devices[0].as_os_str();
    fail(["device".as_ref(), "ready".as_ref(), first], " are present");
    let folder = several.devices[0].parent().unwrap().as_os_str();
    succeed([
        "device".as_ref(),
        "ready".as_ref(),
        first,
        "--scan".as_ref(),
        folder,
    ]);
}

#[test]
fn counted_errors_of_devices_are_shown_and_reset() {
    let (_scratch, image) = empty_volume();
    let stats = run("device stats --check", &image);
    assert_eq!(stats.lines().count(), 5);
    assert!(stats.lines().all(|line| line.ends_with(" 0")), "{stats}");
    run("device stats -z", &image);
}

/// Creates a RAID1 of two images.
fn mirrored() -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new().unwrap();
    let [one, two] = ["one.img", "two.img"].map(|name| scratch.file(name, 256 << 20).unwrap());
    let words = ["mkfs", "-q", "-d", "raid1", "-m", "raid1"].map(OsString::from);
    succeed(
        words
            .into_iter()
            .chain([one.clone().into(), two.clone().into()]),
    );
    (scratch, one, two)
}

#[test]
fn device_that_missed_commits_has_an_error_until_it_is_reset() {
    let (scratch, one, two) = mirrored();
    let away = scratch.path().join("away");
    std::fs::create_dir(&away).unwrap();
    let away = away.join("two.img");
    std::fs::rename(&two, &away).unwrap();
    let file = scratch.path().join("f");
    std::fs::write(&file, "new").unwrap();
    // The command warns of the missing device.
    let mut copy = ubtrfs();
    let copy = copy
        .args(["cp", "--degraded"])
        .arg(&file)
        .arg(location(&one, "/f"));
    assert!(copy.output().unwrap().status.success());
    std::fs::rename(&away, &two).unwrap();
    let missed = format!("[{}].generation_errs  1\n", two.display());
    // A warning reports that the device is behind.
    let stats = |option: &str| {
        let output = ubtrfs()
            .args(["device", "stats", option])
            .arg(&one)
            .output();
        let output = output.unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), shown.contains(&missed))
    };
    assert_eq!(stats("-c"), (Some(64), true));
    assert_eq!(stats("-z"), (Some(0), true));
    assert_eq!(stats("-c"), (Some(0), false));
}

#[test]
fn errors_of_a_mounted_image_are_its_own() {
    if !ubtrfs_sim::has_fuse_or_skip() {
        return;
    }
    let (scratch, one, two) = mirrored();
    let dir = scratch.path().join("mnt");
    std::fs::create_dir(&dir).unwrap();
    succeed([OsString::from("mount"), one.into(), dir.clone().into()]);
    let all = run("device stats", &dir);
    assert_eq!(all.lines().count(), 10, "{all}");
    let name = format!("[{}].", two.display());
    for words in ["device stats", "device stats -z"] {
        let own = run(words, &two);
        assert_eq!(own.lines().count(), 5, "{own}");
        assert!(own.lines().all(|line| line.starts_with(&name)), "{own}");
    }
    run("device stats -z", &dir);
    run("umount", &dir);
}

#[test]
fn find_new_sees_what_a_mount_has_not_committed() {
    let Some(mounted) = Mounted::new("commit=300", |image| write(image, "old", b"old")) else {
        return;
    };
    let find = |since: &str| -> Value {
        let mut args: Vec<OsString> = ["--format", "json", "subvolume", "find-new"]
            .map(OsString::from)
            .to_vec();
        args.extend([mounted.dir.clone().into(), since.into()]);
        serde_json::from_slice(&succeed(args)).unwrap()
    };
    let before = find("0");
    let old = &before["find-new"]["extents"][0];
    assert_eq!(
        (&old["path"], &old["flags"]),
        (&"old".into(), &"INLINE".into())
    );
    let next = before["find-new"]["transid"].as_u64().unwrap() + 1;
    std::fs::write(mounted.dir.join("new"), vec![1u8; 10_000]).unwrap();
    let after = find(&next.to_string());
    let extents = after["find-new"]["extents"].as_array().unwrap();
    assert_eq!(extents.len(), 1, "{after}");
    assert_eq!(extents[0]["path"], "new");
    assert_eq!(extents[0]["len"], 12_288);
    std::fs::create_dir(mounted.dir.join("dir")).unwrap();
    let dir = mounted.dir.join("dir").into_os_string();
    fail(
        ["subvolume".into(), "find-new".into(), dir, "0".into()],
        "is not a subvolume",
    );
    mounted.unmount();
    let at = location(&mounted.image, "");
    let said = succeed([
        "subvolume".into(),
        "find-new".into(),
        at,
        next.to_string().into(),
    ]);
    let said = String::from_utf8(said).unwrap();
    let (extent, marker) = said.split_once('\n').unwrap();
    assert!(extent.ends_with(" flags NONE new"), "{said}");
    assert!(marker.starts_with("transid marker was "), "{said}");
}

#[test]
fn mounted_volumes_alone_are_shown() {
    let Some(mounted) = Mounted::new("rw", |_| {}) else {
        return;
    };
    let uuids = |options: &[&str], place: Option<&Path>| -> Vec<String> {
        let mut command = ubtrfs();
        command.args(["--format", "json", "filesystem", "show"]);
        let output = command.args(options).args(place).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
        let volumes = shown["filesystem-show"].as_array().unwrap();
        let uuids = volumes
            .iter()
            .map(|volume| volume["uuid"].as_str().unwrap());
        uuids.map(str::to_owned).collect()
    };
    let ours = uuids(&[], Some(&mounted.image)).remove(0);
    assert!(uuids(&["--mounted"], None).contains(&ours));
    for place in [&mounted.image, &mounted.dir] {
        assert_eq!(uuids(&["-m"], Some(place)).first(), Some(&ours));
    }
    mounted.unmount();
    assert!(!uuids(&["-m"], None).contains(&ours));
    let args = [
        "filesystem".as_ref(),
        "show".as_ref(),
        "-m".as_ref(),
        mounted.image.as_os_str(),
    ];
    fail(args, "not mounted");
    if or_skip("mounted_volumes_alone_are_shown") {
        let scratch = ubtrfs_sim::Scratch::new().unwrap();
        let volume = KernelVolume::of_files(vec![mounted.image.clone()], scratch);
        let _mount = volume.mount_ro().unwrap();
        assert!(uuids(&["-m"], None).contains(&ours));
    }
}

#[test]
fn dry_run_deletes_nothing_in_a_mount() {
    let Some(mounted) = Mounted::new(&with_roots_rights("rw"), |_| {}) else {
        return;
    };
    let subvolume = mounted.dir.join("a");
    run("subvolume create", &subvolume);
    let said = run("--dry-run subvolume delete", &subvolume);
    assert!(
        said.starts_with("Delete subvolume 256 (no-commit): "),
        "{said}"
    );
    assert!(subvolume.is_dir());
    assert_eq!(run("subvolume delete -q", &subvolume), "");
    assert!(!subvolume.exists());
}

//! Images that are mounted through a loop device. For these the kernel passes on syncfs(2), and umount(2)
//! waits for the server.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::syncfs;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use ubtrfs_sim::kernel;

use crate::ends::generation;
use crate::served::{Place, Server, alone, assert_ok, can_mount, types_at, ubtrfs};

impl Place {
    fn serve_looped(&self, options: &str) -> Server {
        self.serve_with(&format!("loop,{options}"))
    }

    /// Returns the loop devices of the image.
    fn loops(&self) -> Vec<PathBuf> {
        let shown = Command::new("losetup").arg("-j").arg(&self.image).output();
        let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
        let names = shown.lines().filter_map(|line| line.split(':').next());
        names.map(PathBuf::from).collect()
    }

    fn unmount(&self) {
        unmount(&self.mountpoint, UnmountFlags::empty()).unwrap();
    }
}

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn synced_files_are_there_after_the_server_was_killed() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    type Sync = fn(&Path);
    let ways: [(&str, Sync); 3] = [
        ("transport=auto", |dir| {
            syncfs(File::open(dir).unwrap()).unwrap()
        }),
        ("transport=classic", |dir| {
            assert_ok(Command::new("sync").arg("-f").arg(dir))
        }),
        ("transport=auto", |_| rustix::fs::sync()),
    ];
    let place = Place::new(256 << 20);
    for (number, (options, sync)) in ways.into_iter().enumerate() {
        let mut server = place.serve_looped(&format!("commit=300,{options}"));
        assert_eq!(types_at(&place.mountpoint), ["fuseblk.ubtrfs"]);
        let name = format!("file{number}");
        fs::write(place.mountpoint.join(&name), "synced\n").unwrap();
        sync(&place.mountpoint);
        server.signal(Signal::KILL);
        server.end().unwrap();
        assert_eq!(place.loops().len(), 1);
        // A mount at the same mountpoint would replace the one without a server.
        let elsewhere = place.scratch.path().join(format!("elsewhere{number}"));
        fs::create_dir(&elsewhere).unwrap();
        let mut again = ubtrfs();
        again.arg("mount").args([&place.image, &elsewhere]);
        let again = said(&mut again);
        assert!(again.contains("still mounted on"), "{again}");
        place.unmount();
        assert_eq!(place.read(&name), "synced\n");
        assert!(place.loops().is_empty());
    }
}

#[test]
fn all_is_on_the_image_when_it_was_unmounted_and_no_loop_device_is_left() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(1 << 30);
    let mut server = place.serve_looped("rw");
    let [device] = &place.loops()[..] else {
        panic!("{:?}", place.loops());
    };
    let device = File::open(device).unwrap();
    let at_first = generation(&device);
    for number in 0..2000 {
        fs::write(place.mountpoint.join(format!("file{number}")), "small").unwrap();
    }
    fs::write(place.mountpoint.join("large"), vec![7; 100 << 20]).unwrap();
    place.unmount();

    let image = File::open(&place.image).unwrap();
    let last = generation(&image);
    assert!(last > at_first);
    assert_eq!(generation(&device), last);
    drop(device);
    assert!(place.loops().is_empty());
    assert!(server.end().unwrap().success());
    assert_eq!(generation(&image), last);
    assert_ok(ubtrfs().args(["check", "-q"]).arg(&place.image));
    assert_eq!(place.read("file1999"), "small");
}

#[test]
fn a_mount_by_a_loop_device_is_found_by_its_image() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let mut server = place.serve_looped("rw");
    let at = format!("already mounted on {}", place.mountpoint.display());
    let elsewhere = place.scratch.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    for dir in [&place.mountpoint, &elsewhere] {
        let again = said(ubtrfs().arg("mount").args([&place.image, dir]));
        assert!(again.contains(&at), "{again}");
    }
    let shown = ubtrfs()
        .args(["filesystem", "show", "-m"])
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let path = place.image.display().to_string();
    assert!(shown.contains(&path), "{shown}");
    assert_ok(
        ubtrfs()
            .args(["mount", "-o", "remount,ro"])
            .arg(&place.mountpoint),
    );
    assert!(File::create(place.mountpoint.join("file")).is_err());
    assert_ok(
        ubtrfs()
            .args(["mount", "-o", "remount,rw"])
            .arg(&place.image),
    );
    fs::write(place.mountpoint.join("file"), "written\n").unwrap();
    assert_ok(ubtrfs().arg("umount").arg(&place.image));
    assert!(server.end().unwrap().success());
    assert_eq!(place.read("file"), "written\n");
    assert!(place.loops().is_empty());
}

#[test]
fn a_loop_device_of_a_mount_for_reading_only_is_so_too() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let mut server = place.serve_looped("ro");
    let refused = said(
        ubtrfs()
            .args(["mount", "-o", "remount,rw"])
            .arg(&place.mountpoint),
    );
    assert!(refused.contains("opened read-only"), "{refused}");
    let [device] = &place.loops()[..] else {
        panic!("{:?}", place.loops());
    };
    let device = File::options().write(true).open(device).unwrap();
    assert!(device.write_at(b"x", 0).is_err());
    drop(device);
    let listing = ubtrfs().arg("ls").arg(&place.image).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&listing.stderr), "");
    assert_ok(ubtrfs().args(["check", "-q"]).arg(&place.image));
    place.unmount();
    assert!(server.end().unwrap().success());
    assert_ok(
        ubtrfs()
            .arg("mkdir")
            .arg(format!("{}:/dir", place.image.display())),
    );
}

#[test]
fn the_kernel_does_not_mount_an_image_that_is_mounted_by_a_loop_device() {
    if !kernel::or_skip("the_kernel_does_not_mount_an_image_that_is_mounted_by_a_loop_device") {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let mut server = place.serve_looped("rw");
    let mut mount = Command::new("mount");
    mount.args(["-t", "btrfs", "-o", "loop"]);
    let refused = said(mount.args([&place.image, &place.mountpoint]));
    assert!(refused.contains("already mounted"), "{refused}");
    place.unmount();
    assert!(server.end().unwrap().success());
    assert_ok(&mut mount);
    place.unmount();
}

#[test]
fn a_loop_device_that_was_asked_for_and_cannot_be_had_is_an_error() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let script = r#"mount --bind /dev/null /dev/loop-control && exec "$0" mount -o "$1" "$2" "$3""#;
    let mount = |options: &str| {
        let mut command = Command::new("unshare");
        command.args([
            "-m",
            "sh",
            "-c",
            script,
            env!("CARGO_BIN_EXE_ubtrfs"),
            options,
        ]);
        command.args([&place.image, &place.mountpoint]);
        command
    };
    let refused = said(&mut mount("loop"));
    assert!(refused.contains("cannot get a loop device"), "{refused}");
    assert_ok(&mut mount("noloop"));
}

//! Block devices: their registration with the kernel, the kernel's error counts, and images behind loop
//! devices.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use rustix::thread::{UnshareFlags, unshare_unsafe};
use ubtrfs_sim::kernel::{KernelMount, KernelVolume, LoopDevice, MkfsSpec, Profile, or_skip};

use crate::process::{empty_volume, location, ubtrfs};

fn device(words: &str, devices: &[&Path]) -> Output {
    let mut command = ubtrfs();
    command.arg("device").args(words.split(' ')).args(devices);
    command.output().unwrap()
}

/// Runs `work` in a mount namespace whose `/dev` has these devices only. Covers `dir` there.
///
/// The kernel has one register of devices for the whole machine. With a `/dev` of its own, a scan of all devices leaves
/// those of other tests alone. No other test can copy a mount of `work` into its namespace, where the mount would
/// outlive its unmounting.
#[allow(unsafe_code)]
fn with_devices_only<T: Send>(devices: &[&Path], dir: &Path, work: impl FnOnce() -> T + Send) -> T {
    let script = "mount --make-rprivate / && mount -t tmpfs none \"$0\" \
        && cp -a /dev/null /dev/btrfs-control \"$@\" \"$0\" && mount --bind \"$0\" /dev";
    let alone = || {
        // SAFETY: no table of descriptors is left.
        unsafe { unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS) }.unwrap();
        let mut setup = Command::new("sh");
        let setup = setup.args(["-c", script]).arg(dir).args(devices).status();
        assert!(setup.unwrap().success());
        work()
    };
    let ended = thread::scope(|scope| scope.spawn(alone).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Waits for the registrations by udev, which learns of each new device.
fn settle_udev() {
    if Path::new("/run/udev/control").exists() {
        let settled = Command::new("udevadm").arg("settle").status();
        assert!(settled.unwrap().success());
    }
}

#[test]
fn devices_are_registered_with_the_kernel_and_forgotten() {
    if !or_skip("devices_are_registered_with_the_kernel_and_forgotten") {
        return;
    }
    let spec = MkfsSpec::new()
        .devices(2)
        .data(Profile::Raid1)
        .metadata(Profile::Raid1);
    let volume = KernelVolume::make(&spec).unwrap();
    let attached: Vec<LoopDevice> = volume
        .devices()
        .iter()
        .map(|image| LoopDevice::attach(image).unwrap())
        .collect();
    let both: Vec<&Path> = attached.iter().map(LoopDevice::path).collect();
    settle_udev();
    let dirs = ["dev", "by one name"].map(|name| volume.dir().join(name));
    for dir in &dirs {
        std::fs::create_dir(dir).unwrap();
    }
    with_devices_only(&both, &dirs[0], || register_and_forget(&both, &dirs[1]));
}

fn register_and_forget(both: &[&Path], dir: &Path) {
    let first = &both[..1];
    let succeeds = |words: &str, devices: &[&Path]| {
        let output = device(words, devices);
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let fails = |words: &str, devices: &[&Path]| {
        let output = device(words, devices);
        assert_eq!(output.status.code(), Some(1), "{words}");
        String::from_utf8(output.stderr).unwrap()
    };
    succeeds("scan --forget", both);
    // Forgotten already, as with btrfs-progs.
    succeeds("scan -u", both);
    assert!(fails("ready", first).contains("not all devices"));
    let mount = || {
        let mut mount = Command::new("mount");
        let mount = mount
            .args(["-t", "btrfs", "-o", "ro"])
            .arg(both[0])
            .arg(dir);
        mount.status().unwrap().success()
    };
    assert!(!mount(), "the other device is not registered");
    assert!(succeeds("scan", both).starts_with("Scanning for btrfs filesystems on '"));
    assert_eq!(succeeds("ready", first), "");
    assert!(mount());
    let said = fails("scan -u", first);
    let busy = format!(
        "cannot unregister device '{}': Device or resource busy",
        both[0].display()
    );
    assert!(said.contains(&busy), "{said}");
    assert!(Command::new("umount").arg(dir).status().unwrap().success());
    let all = succeeds("scan", &[]);
    for path in both {
        assert!(
            all.contains(&format!("registered: {}\n", path.display())),
            "{all}"
        );
    }
    succeeds("scan -u", both);
    assert!(fails("ready", first).contains("not all devices"));
    let usage = device("scan -u -d", &[]);
    assert!(!usage.status.success());
}

#[test]
fn errors_of_a_device_that_the_kernel_mounts_are_its_own() {
    if !or_skip("errors_of_a_device_that_the_kernel_mounts_are_its_own") {
        return;
    }
    let profile = Profile::Raid1;
    let spec = MkfsSpec::new().devices(2).data(profile).metadata(profile);
    let volume = KernelVolume::make(&spec).unwrap();
    let mount = volume.mount("").unwrap();
    let second = mount.loops()[1].path();
    for words in ["stats", "stats -z"] {
        let ours = device(words, &[second]);
        let theirs = Command::new("btrfs")
            .args(["device", "stats"])
            .arg(second)
            .output();
        assert!(ours.status.success(), "{ours:?}");
        let texts = [ours, theirs.unwrap()].map(|output| String::from_utf8(output.stdout).unwrap());
        assert_eq!(texts[0], texts[1]);
    }
    mount.unmount().unwrap();
}

#[test]
fn mount_whose_device_node_is_gone_is_shown_as_by_btrfs() {
    if !or_skip("mount_whose_device_node_is_gone_is_shown_as_by_btrfs") {
        return;
    }
    let (scratch, image) = empty_volume();
    let attached = LoopDevice::attach(&image).unwrap();
    let dir = scratch.path().join("mnt");
    std::fs::create_dir(&dir).unwrap();
    let node = PathBuf::from(format!("/dev/ubtrfs-test-{}", std::process::id()));
    let script = "cp -a \"$1\" \"$2\" && mount -t btrfs \"$2\" \"$3\"; rm -f \"$2\"";
    let mut mount = Command::new("sh");
    let mount = mount.args(["-c", script, "sh"]).arg(attached.path());
    assert!(mount.args([&node, &dir]).status().unwrap().success());
    let shown = |command: &mut Command| {
        let output = command.args(["filesystem", "show"]).arg(&dir).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let (ours, theirs) = (shown(&mut ubtrfs()), shown(&mut Command::new("btrfs")));
    assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    assert_eq!(ours.trim_end(), theirs.trim_end());
    assert!(
        ours.contains(&format!("path {} MISSING", node.display())),
        "{ours}"
    );
}

/// Copies a file to an image, after a setup that unmounts or covers something.
fn copy_without(setup: &str, file: &Path, to: &OsStr) -> Output {
    let script = format!("{setup} && exec \"$@\"");
    Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", &script, "sh"])
        .arg(env!("CARGO_BIN_EXE_ubtrfs"))
        .args([OsStr::new("cp"), file.as_os_str(), to])
        .output()
        .unwrap()
}

#[test]
fn image_in_a_loop_device_is_not_written_without_sysfs() {
    if !or_skip("image_in_a_loop_device_is_not_written_without_sysfs") {
        return;
    }
    let (scratch, image) = empty_volume();
    let file = scratch.path().join("f");
    std::fs::write(&file, "new").unwrap();
    let attached = LoopDevice::attach(&image).unwrap();
    let at = |device: &Path| location(device, "/f");
    let no_sysfs = "umount -l /sys";
    let refused = |path: &Path, reason: &str| {
        let output = copy_without(no_sysfs, &file, &at(path));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{}", path.display());
        assert!(said.contains(reason), "{said}");
    };
    let holder = format!("attached to {}", attached.path().display());
    refused(&image, &holder);
    let second = LoopDevice::attach(&image).unwrap();
    refused(second.path(), &holder);
    drop(second);
    let mount = KernelMount::new(&[PathBuf::from(attached.path())], "").unwrap();
    refused(&image, "is mounted on");
    mount.unmount().unwrap();
    let copied = copy_without(no_sysfs, &file, &at(attached.path()));
    assert!(copied.status.success(), "{copied:?}");
    drop(attached);
    let copied = copy_without(no_sysfs, &file, &at(&image));
    let said = String::from_utf8_lossy(&copied.stderr);
    assert!(copied.status.success() && said.is_empty(), "{said}");
}

#[test]
fn writer_is_warned_where_loop_devices_cannot_be_asked() {
    if !or_skip("writer_is_warned_where_loop_devices_cannot_be_asked") {
        return;
    }
    let (scratch, image) = empty_volume();
    let other = scratch.file("other.img", 1 << 20).unwrap();
    let _attached = LoopDevice::attach(&other).unwrap();
    let file = scratch.path().join("f");
    std::fs::write(&file, "new").unwrap();
    let setup = "umount -l /sys && mount -t tmpfs none /dev";
    let copied = copy_without(setup, &file, &location(&image, "/f"));
    let said = String::from_utf8_lossy(&copied.stderr);
    assert!(copied.status.success(), "{said}");
    assert!(
        said.contains("cannot tell whether a loop device shows"),
        "{said}"
    );
}

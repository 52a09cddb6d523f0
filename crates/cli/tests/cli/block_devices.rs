//! Images that loop devices show.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ubtrfs_sim::kernel::{KernelMount, LoopDevice, or_skip};

use crate::process::{empty_volume, location};

/// Copies a file to an image, where something was unmounted or covered before.
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
    let mount = KernelMount::new(&[PathBuf::from(attached.path())], "").unwrap();
    refused(&image, "is mounted on");
    refused(second.path(), "is mounted on");
    mount.unmount().unwrap();
    drop(second);
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

//! Verdicts of `btrfs check` and of a kernel mount on a volume that may be damaged.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{KernelMount, LoopDevice};

/// A verdict: success, or a description of the errors.
pub type Verdict = Result<(), String>;

/// Far more than a small volume needs: a hanging check counts as a failure.
const CHECK_SECONDS: &str = "120";
/// Maximum depth, far more than tests create, because damage may make a directory its own child.
const DEEPEST: usize = 24;
/// Maximum size of files to read, because damage may make a small file arbitrarily large.
const LARGEST_FILE: u64 = 16 << 20;

/// Runs `btrfs check`. A crash or a hang also counts as an error.
pub fn progs_verdict(devices: &[PathBuf], data_csums: bool) -> Verdict {
    let mut command = Command::new("timeout");
    command.args([CHECK_SECONDS, "btrfs", "check", "--readonly"]);
    if data_csums {
        command.arg("--check-data-csum");
    }
    // Other devices are found by a scan of block devices.
    let mut loops = Vec::new();
    if devices.len() > 1 {
        for device in devices {
            let attached = LoopDevice::attach_read_only(device);
            loops.push(attached.map_err(|error| error.to_string())?);
        }
    }
    match loops.first() {
        Some(first) => command.arg(first.path()),
        None => command.arg(&devices[0]),
    };
    let output = command.env("LC_ALL", "C").output();
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!(
            "{}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ))
    }
}

/// Mounts the volume read-only, replays its log, and reads everything. A log replay changes the device files.
pub fn reading_verdict(devices: &[PathBuf]) -> Verdict {
    // A log is not replayed from a read-only device.
    let mount = mounted(devices, "subvolid=5", true)?;
    read_all(mount.path()).map_err(|error| format!("mounted, not read: {error}"))?;
    mount.unmount().map_err(|error| error.to_string())
}

/// Mounts the volume writable, changes it, and mounts it again. The device files change.
pub fn writing_verdict(devices: &[PathBuf]) -> Verdict {
    let mount = mounted(devices, "subvolid=5", false)?;
    let work = || -> io::Result<()> {
        read_all(mount.path())?;
        let dir = mount.path().join("after the verdict");
        match fs::create_dir(&dir).and_then(|()| fs::write(dir.join("file"), [7; 10_000])) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            done => done?,
        }
        fs::File::open(mount.path())?.sync_all()
    };
    work().map_err(|error| format!("mounted, not changed: {error}"))?;
    mount.sync().map_err(|error| error.to_string())?;
    mount.unmount().map_err(|error| error.to_string())?;
    let mount = mounted(devices, "subvolid=5", true)?;
    read_all(mount.path()).map_err(|error| format!("mounted again, not read: {error}"))?;
    mount.unmount().map_err(|error| error.to_string())
}

fn mounted(devices: &[PathBuf], options: &str, read_only: bool) -> Result<KernelMount, String> {
    let mount = KernelMount::writable_devices(devices, options, read_only);
    mount.map_err(|error| error.to_string())
}

/// Reads all names, inodes and data, except for the data of large files.
pub fn read_all(top: &Path) -> io::Result<()> {
    let mut pending = vec![(top.to_path_buf(), 0)];
    while let Some((dir, depth)) = pending.pop() {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let metadata = fs::symlink_metadata(&path)?;
            if metadata.is_dir() && depth < DEEPEST {
                pending.push((path, depth + 1));
            } else if metadata.is_symlink() {
                fs::read_link(&path)?;
            } else if metadata.is_file() && metadata.len() <= LARGEST_FILE {
                fs::read(&path)?;
            }
        }
    }
    Ok(())
}

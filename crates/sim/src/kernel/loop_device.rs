//! A file as a block device.

use std::path::{Path, PathBuf};

use super::run;
use crate::{Error, Result};

#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    pub fn attach(file: &Path) -> Result<LoopDevice> {
        Self::attach_with(file, &[])
    }

    pub fn attach_read_only(file: &Path) -> Result<LoopDevice> {
        Self::attach_with(file, &["--read-only"])
    }

    fn attach_with(file: &Path, options: &[&str]) -> Result<LoopDevice> {
        let mut args: Vec<&std::ffi::OsStr> = options.iter().map(AsRef::as_ref).collect();
        args.extend(["--find".as_ref(), "--show".as_ref(), file.as_os_str()]);
        let shown = run("losetup", args)?;
        let path = shown.trim();
        if path.is_empty() {
            return Err(Error::Unexpected {
                command: format!("losetup --find --show {}", file.display()),
                wanted: "device",
            });
        }
        Ok(LoopDevice { path: path.into() })
    }

    /// Such as `/dev/loop3`.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // The kernel's btrfs remembers the devices it has seen, and would take the next file behind this
        // loop device for a member of the old volume.
        let scan = ["device", "scan", "--forget"].map(AsRef::as_ref);
        let _ = run("btrfs", scan.into_iter().chain([self.path.as_os_str()]));
        if let Err(error) = run("losetup", ["-d".as_ref(), self.path.as_os_str()]) {
            eprintln!("{}: not detached: {error}", self.path.display());
        }
    }
}

//! A file as a block device.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::At;
use crate::program::run;
use crate::{Error, Result};

#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    file: PathBuf,
}

/// Detaching fails while another process, such as a device scan, has the loop device open.
const DETACH_LIMIT: Duration = Duration::from_secs(10);
const DETACH_POLL: Duration = Duration::from_millis(2);

impl LoopDevice {
    pub fn attach(file: &Path) -> Result<LoopDevice> {
        Self::attach_with(file, &[])
    }

    pub fn attach_read_only(file: &Path) -> Result<LoopDevice> {
        Self::attach_with(file, &["--read-only"])
    }

    /// Attaches a range of the file.
    pub fn attach_part(file: &Path, offset: u64, len_bytes: u64) -> Result<LoopDevice> {
        let (offset, len_bytes) = (offset.to_string(), len_bytes.to_string());
        Self::attach_with(file, &["--offset", &offset, "--sizelimit", &len_bytes])
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
        Ok(LoopDevice {
            path: path.into(),
            file: fs::canonicalize(file).at("canonicalize", file)?,
        })
    }

    /// Returns whether the device is still backed by the file; another test may have reused it.
    fn is_attached(&self) -> bool {
        let Some(name) = self.path.file_name() else {
            return false;
        };
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        fs::read_to_string(backing).is_ok_and(|file| Path::new(file.trim_end()) == self.file)
    }

    /// Returns the path of the device, such as `/dev/loop3`.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // The kernel's btrfs keeps a list of scanned devices. It would mistake the next file behind this loop device
        // for a member of the old volume.
        let scan = ["device", "scan", "--forget"].map(AsRef::as_ref);
        let _ = run("btrfs", scan.into_iter().chain([self.path.as_os_str()]));
        if let Err(error) = run("losetup", ["-d".as_ref(), self.path.as_os_str()]) {
            eprintln!("{}: not detached: {error}", self.path.display());
            return;
        }
        let begun = Instant::now();
        while self.is_attached() && begun.elapsed() < DETACH_LIMIT {
            thread::sleep(DETACH_POLL);
        }
    }
}

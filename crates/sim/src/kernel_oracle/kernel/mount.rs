//! A volume mounted by the kernel, from device files or block devices.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{LoopDevice, run};
use crate::error::At;
use crate::{Error, Result, Scratch};

#[derive(Debug)]
pub struct KernelMount {
    point: PathBuf,
    mounted: bool,
    // Dropped in this order, after `drop` has unmounted.
    loops: Vec<LoopDevice>,
    _scratch: Scratch,
}

impl KernelMount {
    /// Mounts the volume on `devices`, files or block devices. `options` are mount options separated by commas;
    /// `noatime` is always added, so that reading changes nothing.
    pub fn new(devices: &[PathBuf], options: &str) -> Result<KernelMount> {
        let read_only = options.split(',').any(|option| option == "ro");
        KernelMount::attached(devices, options, read_only)
    }

    /// Mounts the volume from writable devices, so that the kernel replays a log even if the mount is `read_only`.
    pub fn writable_devices(
        devices: &[PathBuf],
        options: &str,
        read_only: bool,
    ) -> Result<KernelMount> {
        let options = if read_only {
            format!("ro,{options}")
        } else {
            options.to_owned()
        };
        KernelMount::attached(devices, &options, false)
    }

    fn attached(
        devices: &[PathBuf],
        options: &str,
        read_only_devices: bool,
    ) -> Result<KernelMount> {
        let scratch = Scratch::new()?;
        let point = scratch.path().join("mnt");
        fs::create_dir(&point).at("create", &point)?;

        let mut loops = Vec::new();
        let mut paths = Vec::new();
        for device in devices {
            let meta = fs::metadata(device).at("stat", device)?;
            if meta.file_type().is_block_device() {
                paths.push(device.clone());
                continue;
            }
            let attached = if read_only_devices {
                LoopDevice::attach_read_only(device)?
            } else {
                LoopDevice::attach(device)?
            };
            paths.push(attached.path().to_path_buf());
            loops.push(attached);
        }

        let mut all = format!("noatime,{options}");
        for path in paths.iter().skip(1) {
            all.push_str(&format!(",device={}", path.display()));
        }
        let all = all.trim_end_matches(',');
        let first = paths.first().map_or(Path::new("none"), PathBuf::as_path);
        run(
            "mount",
            [
                "-t".as_ref(),
                "btrfs".as_ref(),
                "-o".as_ref(),
                all.as_ref(),
                first.as_os_str(),
                point.as_os_str(),
            ],
        )?;
        Ok(KernelMount {
            point,
            mounted: true,
            loops,
            _scratch: scratch,
        })
    }

    pub fn path(&self) -> &Path {
        &self.point
    }

    /// Returns the loop devices that were attached for the mount, in the given order.
    pub fn loops(&self) -> &[LoopDevice] {
        &self.loops
    }

    /// Adds the device file to the volume.
    pub fn add_device(&mut self, file: &Path) -> Result<()> {
        let device = LoopDevice::attach(file)?;
        let args = ["device", "add", "-f"].map(AsRef::as_ref);
        let places = [device.path().as_os_str(), self.point.as_os_str()];
        run("btrfs", args.into_iter().chain(places))?;
        self.loops.push(device);
        Ok(())
    }

    pub fn remount(&self, options: &str) -> Result<()> {
        let options = format!("remount,{options}");
        let args = ["-o".as_ref(), options.as_ref(), self.point.as_os_str()];
        run("mount", args).map(drop)
    }

    /// Commits everything.
    pub fn sync(&self) -> Result<()> {
        let dir = fs::File::open(&self.point).at("open", &self.point)?;
        rustix::fs::syncfs(&dir).at("syncfs", &self.point)
    }

    /// Runs a scrub of all data and metadata. Returns an error if it found any error, corrected or not.
    pub fn scrub(&self) -> Result<()> {
        const CLEAN: &str = "no errors found";
        let args = ["scrub", "start", "-B"].map(AsRef::as_ref);
        let output = run("btrfs", args.into_iter().chain([self.point.as_os_str()]))?;
        if output.contains(CLEAN) {
            Ok(())
        } else {
            Err(Error::Unexpected {
                command: format!("btrfs scrub, which says {output},"),
                wanted: CLEAN,
            })
        }
    }

    /// Discards all free space, which punches holes in files.
    pub fn trim(&self) -> Result<()> {
        run("fstrim", [self.point.as_os_str()]).map(drop)
    }

    /// Unmounts like drop, but returns errors.
    pub fn unmount(mut self) -> Result<()> {
        self.mounted = false;
        umount(&self.point)
    }
}

const BUSY_TRIES: u32 = 100;
const BUSY_WAIT: Duration = Duration::from_millis(20);

/// Unmounts, with retries. A thread that starts a program has copies of all open files between fork and exec. So a
/// mount without users may be busy.
fn umount(point: &Path) -> Result<()> {
    let mut tries = 0;
    loop {
        match run("umount", [point.as_os_str()]) {
            Err(Error::Failed { output, .. }) if output.contains("busy") && tries < BUSY_TRIES => {
                tries += 1;
                std::thread::sleep(BUSY_WAIT);
            }
            done => return done.map(drop),
        }
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if !self.mounted {
            return;
        }
        if let Err(error) = umount(&self.point) {
            eprintln!("{}: {error}", self.point.display());
            let _ = run("umount", ["-l".as_ref(), self.point.as_os_str()]);
        }
    }
}

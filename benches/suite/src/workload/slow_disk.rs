//! Storage with a limited write rate, for the kernel and ubtrfs alike.
//!
//! It is a loop device whose writes the block layer throttles, by the limit of the root cgroup (version 1). The limit
//! also applies to the kernel's own threads, which write the dirty pages of a mount or the page cache. Version 2 has
//! no limit for its root.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cleanup::{self, Undo};
use crate::run::run;

const LIMITS: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

/// A throttled loop device of an image.
#[derive(Debug)]
pub(super) struct SlowDisk {
    device: PathBuf,
    no_limit: Option<Undo>,
}

impl SlowDisk {
    /// Returns whether this machine can throttle a device.
    pub(super) fn is_possible() -> bool {
        Path::new(LIMITS).exists()
    }

    pub(super) fn new(image: &Path, bytes_per_second: u64) -> Result<SlowDisk> {
        let ran = run("losetup", &[Path::new("-f"), Path::new("--show"), image])?;
        let device = PathBuf::from(ran.output.trim());
        let name = device.file_name().context("a device has a name")?;
        let number = fs::read_to_string(Path::new("/sys/block").join(name).join("dev"))?;
        let number = number.trim();
        let no_limit = Undo::Setting {
            path: LIMITS.into(),
            before: format!("{number} 0"),
        };
        cleanup::push(no_limit.clone());
        fs::write(LIMITS, format!("{number} {bytes_per_second}"))?;
        Ok(SlowDisk {
            device,
            no_limit: Some(no_limit),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.device
    }

    /// Removes the limit, so that the disk is as fast as the device below.
    pub(super) fn lift_limit(&mut self) {
        if let Some(undo) = self.no_limit.take() {
            undo.run();
            cleanup::done(&undo);
        }
    }

    /// Removes the disk, which must not be mounted.
    pub(super) fn end(mut self) -> Result<()> {
        self.lift_limit();
        run("losetup", &[Path::new("-d"), &self.device])?;
        Ok(())
    }
}

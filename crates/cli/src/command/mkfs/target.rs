//! A device or image file for a new volume.
//!
//! An existing target is opened for writing and locked before it is examined, and stays open. The device that
//! was found safe to overwrite is thus the one that is overwritten.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use rustix::fs::{major, minor};
use ubtrfs::{BlockDevice, FileDevice};

use crate::presentation::console::Console;
use crate::volume_access::new_device::open_new_device;
use crate::volume_access::reason::Reasoned;

#[derive(Debug)]
pub(super) struct Target {
    pub(super) path: PathBuf,
    /// The bytes of the target that the volume uses.
    pub(super) used_bytes: u64,
    /// No size was given, and the existing image is too small to imply one.
    pub(super) may_have_any_size: bool,
    /// The existing file or device, until [`Target::open`] takes it.
    device: Option<FileDevice>,
    /// Whether it was created for the volume.
    is_made: bool,
    /// The sysfs directory of a block device.
    sysfs: Option<PathBuf>,
}

impl Target {
    /// Examines every path, and refuses targets that must not be overwritten. Missing images and those that
    /// are too small get `image_bytes`, if they may grow.
    pub(super) fn find_all(
        paths: &[PathBuf],
        byte_count: Option<u64>,
        image_bytes: Option<u64>,
        force: bool,
        console: &mut Console,
    ) -> anyhow::Result<Vec<Target>> {
        let mut seen = Vec::new();
        let mut targets = Vec::new();
        for path in paths {
            let target = match std::fs::metadata(path) {
                Ok(metadata) => {
                    let identity = identity(&metadata);
                    if seen.contains(&identity) {
                        bail!("duplicate device {} in the filesystem", path.display());
                    }
                    seen.push(identity);
                    Target::existing(path, &metadata, byte_count, image_bytes, force, console)?
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    Target::new_file(path, byte_count, image_bytes)?
                }
                Err(error) => return Err(error).context(path.display().to_string()),
            };
            targets.push(target);
        }
        Ok(targets)
    }

    fn existing(
        path: &Path,
        metadata: &Metadata,
        byte_count: Option<u64>,
        image_bytes: Option<u64>,
        force: bool,
        console: &mut Console,
    ) -> anyhow::Result<Target> {
        let device = open_new_device(path, force, console)?;
        let len_bytes = device.len_bytes();
        let least = image_bytes.filter(|_| metadata.is_file());
        if let Some(wanted) = byte_count.filter(|&wanted| wanted > len_bytes)
            && least.is_none()
        {
            let path = path.display();
            bail!("{path} is smaller than requested size, expected {wanted}, found {len_bytes}");
        }
        Ok(Target {
            path: path.to_owned(),
            used_bytes: byte_count.unwrap_or(len_bytes).max(least.unwrap_or(0)),
            may_have_any_size: byte_count.is_none() && least.is_some_and(|least| len_bytes < least),
            is_made: false,
            device: Some(device),
            sysfs: sysfs(metadata),
        })
    }

    fn new_file(
        path: &Path,
        byte_count: Option<u64>,
        image_bytes: Option<u64>,
    ) -> anyhow::Result<Target> {
        let used_bytes = byte_count.max(image_bytes).ok_or_else(|| {
            let path = path.display();
            anyhow!("{path} does not exist; give its size with -b to make an image file")
        })?;
        Ok(Target {
            path: path.to_owned(),
            used_bytes,
            may_have_any_size: byte_count.is_none(),
            is_made: false,
            device: None,
            sysfs: None,
        })
    }

    /// Opens it for writing. Extends an image that is too short.
    pub(super) fn open(&mut self) -> anyhow::Result<FileDevice> {
        let Some(device) = self.device.take() else {
            // Never overwrite a file that another process has created since.
            let made = FileDevice::create_new(&self.path, self.used_bytes).reason()?;
            self.is_made = true;
            return Ok(made);
        };
        if device.len_bytes() < self.used_bytes {
            let resized = device.resize(self.used_bytes);
            resized.with_context(|| self.path.display().to_string())?;
        }
        Ok(device)
    }

    pub(super) fn is_block_device(&self) -> bool {
        self.sysfs.is_some()
    }

    /// Removes an image that was created for a volume that could not be made.
    pub(super) fn remove_if_made(&self) {
        if self.is_made {
            // The file is not a valid volume in any case.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    pub(super) fn is_made(&self) -> bool {
        self.is_made
    }

    /// Returns whether it is a file, existing or to be created.
    pub(super) fn is_image(&self) -> bool {
        self.sysfs.is_none()
    }

    /// Returns whether it is a block device without moving parts.
    pub(super) fn is_ssd(&self) -> bool {
        self.queue("rotational")
            .is_some_and(|rotational| rotational == "0")
    }

    /// Reads a queue attribute of the device in sysfs. A partition has the queue of its disk.
    fn queue(&self, attribute: &str) -> Option<String> {
        let sysfs = self.sysfs.as_ref()?;
        let own = std::fs::read_to_string(sysfs.join("queue").join(attribute));
        let text = own.or_else(|_| {
            // The parent of the symlink is not the disk, so resolve the link first.
            let disk = sysfs.canonicalize()?.join("../queue").join(attribute);
            std::fs::read_to_string(disk)
        });
        text.ok().map(|text| text.trim().to_owned())
    }
}

/// Returns the identity of a file or device. Paths with the same identity lead to the same file.
fn identity(metadata: &Metadata) -> (bool, u64, u64) {
    if metadata.file_type().is_block_device() {
        (true, metadata.rdev(), 0)
    } else {
        (false, metadata.dev(), metadata.ino())
    }
}

fn sysfs(metadata: &Metadata) -> Option<PathBuf> {
    let (major, minor) = (major(metadata.rdev()), minor(metadata.rdev()));
    let path = format!("/sys/dev/block/{major}:{minor}");
    metadata
        .file_type()
        .is_block_device()
        .then(|| PathBuf::from(path))
}

/// Refuses sizes that are too small for a usable volume, in mkfs.btrfs's words.
pub(super) fn check_sizes(
    targets: &[Target],
    byte_count: Option<u64>,
    min_bytes: u64,
    console: &mut Console,
) -> anyhow::Result<()> {
    if let Some(bytes) = byte_count.filter(|&bytes| bytes < min_bytes) {
        console.error(format_args!(
            "size {bytes} is too small to make a usable filesystem"
        ));
        bail!("minimum size for a btrfs filesystem is {min_bytes}");
    }
    if let Some(small) = targets.iter().find(|target| target.used_bytes < min_bytes) {
        console.error(format_args!(
            "'{}' is too small to make a usable filesystem",
            small.path.display()
        ));
        bail!("minimum size for each btrfs device is {min_bytes}");
    }
    Ok(())
}

//! The devices of a volume with their sizes, sorted by devid for listings.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use rustix::io::Errno;
use ubtrfs::Volume;

use crate::presentation::quoting::Escaped;
use crate::volume_access::ioctls::{Asked, text};
use crate::volume_access::location::is_same_file;

#[derive(Clone, Debug)]
pub(crate) struct DeviceSizes {
    pub(crate) devid: u64,
    path: Option<PathBuf>,
    /// The bytes of the device that the volume uses.
    pub(crate) size: u64,
    /// The size of the device itself, or 0 if it is missing.
    pub(crate) device_size: u64,
}

impl DeviceSizes {
    pub(crate) fn of(volume: &Volume) -> Vec<DeviceSizes> {
        let devices = volume.devices().into_iter();
        devices
            .map(|device| DeviceSizes {
                devid: device.id,
                size: device.total_bytes,
                device_size: device.len_bytes.unwrap_or(0),
                path: device.path,
            })
            .collect()
    }

    /// Queries a mount for the sizes of its devices.
    pub(crate) fn ask(asked: &Asked) -> Result<Vec<DeviceSizes>, Errno> {
        let devices = asked.devices()?;
        let sizes = devices.iter().map(|device| {
            let path = PathBuf::from(OsStr::from_bytes(text(&device.path)));
            let is_there = !path.as_os_str().is_empty();
            DeviceSizes {
                devid: device.devid.get(),
                size: device.total_bytes.get(),
                device_size: if is_there {
                    // The caller may be unable to read its length.
                    len_of(&path).unwrap_or(device.total_bytes.get())
                } else {
                    0
                },
                path: is_there.then_some(path),
            }
        });
        Ok(sizes.collect())
    }

    /// Returns the devid of the device with this path.
    pub(crate) fn named(devices: &[DeviceSizes], path: &Path) -> Option<u64> {
        let has_path = |known: &Path| is_same_file(known, path);
        let mut devices = devices.iter();
        let found = devices.find(|device| device.path.as_deref().is_some_and(has_path));
        found.map(|device| device.devid)
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.device_size == 0
    }

    /// Returns the bytes of the device that the volume does not use.
    pub(crate) fn slack(&self) -> i64 {
        match self.device_size {
            0 => 0,
            device_size => device_size.wrapping_sub(self.size) as i64,
        }
    }

    /// Returns the path, or "missing".
    pub(crate) fn shown(&self) -> String {
        match &self.path {
            Some(path) => Escaped::of(path).to_string(),
            None => "missing".to_owned(),
        }
    }
}

/// Returns the length of a device or image, even if the caller may not open it.
fn len_of(path: &Path) -> Option<u64> {
    const SECTOR: u64 = 512;
    // A relative path depends on the directory in which the server was started.
    let found = path.is_absolute().then(|| path.metadata().ok())??;
    if !found.file_type().is_block_device() {
        return found.is_file().then_some(found.len());
    }
    let (major, minor) = (major(found.rdev()), minor(found.rdev()));
    let sectors = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/size")).ok()?;
    Some(sectors.trim().parse::<u64>().ok()?.saturating_mul(SECTOR))
}

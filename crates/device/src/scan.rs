//! Discovery of btrfs devices among files, folders and the block devices of the machine.
//!
//! Only devices with a valid copy 0 count: other copies do not revive a wiped device.

use std::path::{Path, PathBuf};

use ubtrfs_format::superblock::{Superblock, flags};
use ubtrfs_format::uuid::Uuid;

use crate::block_device::BlockDevice;
use crate::error::DeviceError;
use crate::file::{FileDevice, identity};
use crate::superblock::{CopyChoice, DeviceSuperblocks};

#[cfg(test)]
mod tests;

/// A device found by a scan.
#[derive(Debug)]
pub struct FoundDevice {
    pub path: PathBuf,
    pub fsid: Uuid,
    pub devid: u64,
    pub generation: u64,
    pub num_devices: u64,
    pub len_bytes: u64,
    pub superblock: Box<Superblock>,
}

impl FoundDevice {
    /// Returns whether its volume is a seed, on which other volumes may be based.
    pub fn is_seed(&self) -> bool {
        self.superblock.flags.get() & flags::SEEDING != 0
    }
}

/// Finds the btrfs devices among `places`. A folder means the files and block devices directly inside of it, and
/// `/dev` the block devices of the machine. Unreadable devices are skipped.
pub fn scan(places: &[PathBuf]) -> Vec<FoundDevice> {
    let mut seen = std::collections::BTreeSet::new();
    let mut found = Vec::new();
    for path in candidates(places) {
        if identity(&path).is_ok_and(|id| seen.insert(id)) {
            match inspect(&path) {
                Ok(Some(device)) => found.push(device),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "scan passes over"),
            }
        }
    }
    found
}

/// Returns the paths to inspect, in a stable order.
pub(crate) fn candidates(places: &[PathBuf]) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for place in places {
        if place == Path::new("/dev") {
            paths.extend(block_devices());
        } else if place.is_dir() {
            let mut inside: Vec<PathBuf> = std::fs::read_dir(place)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path())
                .filter(|path| is_device_like(path))
                .collect();
            inside.sort();
            paths.extend(inside);
        } else {
            paths.push(place.clone());
        }
    }
    paths
}

fn is_device_like(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path)
        .map(|metadata| metadata.file_type())
        .is_ok_and(|kind| kind.is_file() || kind.is_block_device())
}

/// Lists the kernel's block devices with a nonzero size.
fn block_devices() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/sys/class/block") else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            std::fs::read_to_string(entry.path().join("size"))
                .is_ok_and(|size| size.trim().parse::<u64>().is_ok_and(|size| size > 0))
        })
        // sysfs replaces '/' in device names by '!'.
        .map(|entry| {
            PathBuf::from("/dev").join(entry.file_name().to_string_lossy().replace('!', "/"))
        })
        .filter(|path| is_device_like(path))
        .collect();
    paths.sort();
    paths
}

fn inspect(path: &Path) -> Result<Option<FoundDevice>, DeviceError> {
    found_on(&FileDevice::peek(path)?, path)
}

/// Describes a device by copy 0 of its superblock. Returns None without one.
///
/// # Errors
///
/// Copy 0 is damaged.
pub fn found_on(device: &dyn BlockDevice, path: &Path) -> Result<Option<FoundDevice>, DeviceError> {
    let superblocks = DeviceSuperblocks::read(device);
    if !superblocks.first_has_magic() {
        return Ok(None);
    }
    let superblock = superblocks.require(device, path, CopyChoice::First)?;
    Ok(Some(FoundDevice {
        path: path.to_owned(),
        fsid: superblock.fsid,
        devid: superblock.dev_item.devid.get(),
        generation: superblock.generation.get(),
        num_devices: superblock.num_devices.get(),
        len_bytes: device.len_bytes(),
        superblock: Box::new(superblock.clone()),
    }))
}

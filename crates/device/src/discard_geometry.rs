//! How a device takes discards: in which units, how much at once, and whether at all.
//!
//! A block device tells it in sysfs. The file system of an image is asked with a hole behind the image's end.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, major, minor};
use rustix::io::Errno;

/// A part of a smaller block costs a write and frees nothing.
pub(crate) const MIN_GRANULARITY: u64 = 4 << 10;
/// Network file systems name the size of their requests, which is no unit of what they store.
const MAX_FILE_GRANULARITY: u64 = 1 << 20;
/// A file takes no writes while a hole is punched, so that one hole is not all of a large file.
const MAX_HOLE_BYTES: u64 = 256 << 20;
/// A request to a block device is over in about the time of other long requests.
const MAX_REQUEST_BYTES: u64 = 1 << 30;

/// The unit and the largest size of a device's discards, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscardGeometry {
    /// A range is given back in whole units. A power of two, at least 4 KiB.
    pub granularity: u64,
    /// The largest request, a multiple of the granularity.
    pub max_bytes: u64,
}

impl DiscardGeometry {
    /// Creates a geometry that is as it has to be: the granularity is rounded up, and the largest request down.
    pub fn new(granularity: u64, max_bytes: u64) -> DiscardGeometry {
        let granularity = granularity
            .clamp(MIN_GRANULARITY, 1 << 40)
            .next_power_of_two();
        DiscardGeometry {
            granularity,
            max_bytes: (max_bytes - max_bytes % granularity).max(granularity),
        }
    }

    /// Finds the geometry of an image file; None if its file system punches no holes.
    pub(crate) fn of_image(file: &File, len_bytes: u64) -> Option<DiscardGeometry> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let behind = len_bytes.checked_next_multiple_of(MAX_FILE_GRANULARITY)?;
        let probe = fallocate(file, flags, behind, MIN_GRANULARITY);
        // Other failures are the place's or the access's. The first discard tells more.
        if let Err(Errno::OPNOTSUPP | Errno::NOSYS) = probe {
            return None;
        }
        let block_bytes = file.metadata().map_or(0, |metadata| metadata.blksize());
        let granularity = block_bytes.min(MAX_FILE_GRANULARITY);
        Some(DiscardGeometry::new(granularity, MAX_HOLE_BYTES))
    }

    /// Finds the geometry of a block device; None if it takes no discards. Without sysfs the first discard tells.
    pub(crate) fn of_block_device(device: &File) -> Option<DiscardGeometry> {
        let limits = device
            .metadata()
            .ok()
            .and_then(|metadata| queue_folder(metadata.rdev()))
            .and_then(|queue| Self::of_queue(&queue));
        match limits {
            None => Some(DiscardGeometry::new(MIN_GRANULARITY, MAX_REQUEST_BYTES)),
            Some((_, 0)) => None,
            Some((granularity, max_bytes)) => {
                let max_bytes = max_bytes.min(MAX_REQUEST_BYTES);
                Some(DiscardGeometry::new(granularity, max_bytes))
            }
        }
    }

    /// Reads the granularity and the most of one request, as the folder of a queue tells them.
    fn of_queue(queue: &Path) -> Option<(u64, u64)> {
        let number = |name: &str| -> Option<u64> {
            let text = fs::read_to_string(queue.join(name)).ok()?;
            text.trim().parse().ok()
        };
        Some((number("discard_granularity")?, number("discard_max_bytes")?))
    }
}

/// Reads an attribute of a device's queue. None if the system does not tell it.
pub(crate) fn queue_attribute(rdev: u64, name: &str) -> Option<String> {
    let text = fs::read_to_string(queue_folder(rdev)?.join(name)).ok()?;
    Some(text.trim().to_owned())
}

/// Finds the folder in sysfs of a device's queue. A partition uses that of the device above it.
fn queue_folder(rdev: u64) -> Option<PathBuf> {
    let link = format!("/sys/dev/block/{}:{}", major(rdev), minor(rdev));
    let folder = fs::canonicalize(link).ok()?;
    let own = folder.join("queue");
    match own.is_dir() {
        true => Some(own),
        false => Some(folder.parent()?.join("queue")).filter(|queue| queue.is_dir()),
    }
}

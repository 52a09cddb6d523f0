//! Discard support of a device: granularity and maximum size.
//!
//! For block devices, sysfs has the values. For images, punching a hole past the end probes the file system.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, major, minor};
use rustix::io::Errno;

/// Discarding a part of a smaller block costs a write and frees nothing.
pub(crate) const MIN_GRANULARITY: u64 = 4 << 10;
/// Network file systems report their request size, which is not an allocation unit.
const MAX_FILE_GRANULARITY: u64 = 1 << 20;
/// A file accepts no writes during a hole punch, so that large ranges are split.
const MAX_HOLE_BYTES: u64 = 256 << 20;
/// Limits the latency of a request on a block device to about the latency of other long requests.
const MAX_REQUEST_BYTES: u64 = 1 << 30;

/// Granularity and maximum size of a device's discards, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscardGeometry {
    /// Discards are aligned to this unit: a power of two, at least 4 KiB.
    pub granularity: u64,
    /// The maximum request size, a multiple of the granularity.
    pub max_bytes: u64,
}

impl DiscardGeometry {
    /// Creates a valid geometry: rounds the granularity up and the maximum size down.
    pub fn new(granularity: u64, max_bytes: u64) -> DiscardGeometry {
        let granularity = granularity
            .clamp(MIN_GRANULARITY, 1 << 40)
            .next_power_of_two();
        DiscardGeometry {
            granularity,
            max_bytes: (max_bytes - max_bytes % granularity).max(granularity),
        }
    }

    /// Probes the geometry of an image file. Returns None if its file system cannot punch holes.
    pub(crate) fn of_image(file: &File, len_bytes: u64) -> Option<DiscardGeometry> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let behind = len_bytes.checked_next_multiple_of(MAX_FILE_GRANULARITY)?;
        let probe = fallocate(file, flags, behind, MIN_GRANULARITY);
        // Other errors may depend on the offset or on permissions. The first discard decides.
        if let Err(Errno::OPNOTSUPP | Errno::NOSYS) = probe {
            return None;
        }
        let block_bytes = file.metadata().map_or(0, |metadata| metadata.blksize());
        let granularity = block_bytes.min(MAX_FILE_GRANULARITY);
        Some(DiscardGeometry::new(granularity, MAX_HOLE_BYTES))
    }

    /// Reads the geometry of a block device. Returns None if it does not support discards. Without sysfs, the first
    /// discard decides.
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

    /// Reads the granularity and the maximum request size from a queue's folder in sysfs.
    fn of_queue(queue: &Path) -> Option<(u64, u64)> {
        let number = |name: &str| -> Option<u64> {
            let text = fs::read_to_string(queue.join(name)).ok()?;
            text.trim().parse().ok()
        };
        Some((number("discard_granularity")?, number("discard_max_bytes")?))
    }
}

/// Reads an attribute of a device's queue. Returns None if sysfs does not have it.
pub(crate) fn queue_attribute(rdev: u64, name: &str) -> Option<String> {
    let text = fs::read_to_string(queue_folder(rdev)?.join(name)).ok()?;
    Some(text.trim().to_owned())
}

/// Finds the sysfs folder of a device's queue. A partition uses the queue of its disk.
fn queue_folder(rdev: u64) -> Option<PathBuf> {
    let link = format!("/sys/dev/block/{}:{}", major(rdev), minor(rdev));
    let folder = fs::canonicalize(link).ok()?;
    let own = folder.join("queue");
    if own.is_dir() {
        Some(own)
    } else {
        Some(folder.parent()?.join("queue")).filter(|queue| queue.is_dir())
    }
}

//! Preparation of a device that joins a volume: its old contents are made unrecognizable.
//!
//! Invariants
//! - NEW-DEVICE-1: the superblocks of an older volume are erased durably before anything else. A power cut leaves
//!   either the old volume, or no volume.

use std::io;
use std::path::Path;

use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};

use crate::block_device::BlockDevice;
use crate::error::DeviceError;
use crate::find_signatures::find_signatures;

/// Length of the ranges at the start and the end of a device where most formats have their signatures.
const ERASED_BYTES: u64 = 2 << 20;

/// Erases superblocks and signatures of a device, durably. With `discard`, also discards the first `used_bytes`.
///
/// # Errors
///
/// The device cannot be read or written. A failed discard is not an error.
pub fn empty_device(
    device: &dyn BlockDevice,
    path: &Path,
    used_bytes: u64,
    discard: bool,
) -> Result<(), DeviceError> {
    // NEW-DEVICE-1
    for offset in SUPERBLOCK_OFFSETS {
        zero(device, path, offset, SUPERBLOCK_SIZE as u64)?;
    }
    flush(device, path)?;
    if discard {
        let _ = device.discard(0, used_bytes.min(device.len_bytes()));
    }
    zero(device, path, 0, ERASED_BYTES)?;
    let end = device.len_bytes().saturating_sub(ERASED_BYTES);
    if used_bytes > end {
        zero(device, path, end, ERASED_BYTES)?;
    }
    let found = find_signatures(device).map_err(|source| DeviceError::ReadRaw {
        path: path.to_owned(),
        offset: 0,
        len: ERASED_BYTES,
        source,
    })?;
    for mark in found.into_iter().flat_map(|found| found.marks) {
        zero(device, path, mark.start, mark.end - mark.start)?;
    }
    flush(device, path)
}

/// Writes zeros to a range, as far as the device has it.
fn zero(device: &dyn BlockDevice, path: &Path, offset: u64, len: u64) -> Result<(), DeviceError> {
    let len = len.min(device.len_bytes().saturating_sub(offset));
    if len == 0 {
        return Ok(());
    }
    let written = device.write_at(&vec![0; len as usize], offset);
    written.map_err(|source| DeviceError::WriteRaw {
        path: path.to_owned(),
        offset,
        len,
        source,
    })
}

fn flush(device: &dyn BlockDevice, path: &Path) -> Result<(), DeviceError> {
    let failed = |source: io::Error| DeviceError::Flush {
        path: path.to_owned(),
        source,
    };
    device.flush().map_err(failed)
}

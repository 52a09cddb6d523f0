//! The check of a file before a program overwrites or replaces it: it must not be in use as a device.
//!
//! Small files, which cannot hold a volume, and special files such as pipes are not checked.

use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use ubtrfs_format::superblock::{MAGIC, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};

use crate::access::Access;
use crate::callers_lock;
use crate::claim::DeviceClaim;
use crate::error::{DeviceError, Holder, in_use, open_error};
use crate::lock::holder_of;
use crate::loop_device::loop_on;

#[cfg(test)]
mod tests;

/// The offset of the magic number in a superblock.
pub(crate) const MAGIC_AT: u64 = 64;

/// Rejects a file that holds a btrfs volume, or that another program has locked, mounted or attached.
///
/// `file` is open for reading; `path` is its name in errors and for the claim.
///
/// # Errors
///
/// [`DeviceError::HoldsVolume`], [`DeviceError::InUse`], or the file cannot be examined.
pub fn check_overwrite(file: &File, path: &Path) -> Result<(), DeviceError> {
    let metadata = file.metadata().map_err(open_error(path))?;
    let is_block = metadata.file_type().is_block_device();
    let can_hold = SUPERBLOCK_OFFSETS[0] + SUPERBLOCK_SIZE as u64;
    if !is_block && (!metadata.is_file() || metadata.len() < can_hold) {
        return Ok(());
    }
    if SUPERBLOCK_OFFSETS.iter().any(|&at| has_magic(file, at)) {
        let path = path.to_owned();
        return Err(DeviceError::HoldsVolume { path });
    }
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        // If locking is not supported, the file system has no locks at all.
        Ok(()) => drop(rustix::fs::flock(file, FlockOperation::Unlock)),
        Err(Errno::WOULDBLOCK) if callers_lock::are_all(&metadata) => {}
        Err(Errno::WOULDBLOCK) => return Err(in_use(path, holder_of(&metadata))),
        Err(_) => {}
    }
    if is_block {
        return DeviceClaim::open(path, Access::Write).map(drop);
    }
    match loop_on(&metadata, Access::Write) {
        Some(name) => Err(in_use(path, Holder::Loop(name))),
        None => Ok(()),
    }
}

fn has_magic(file: &File, superblock_at: u64) -> bool {
    let mut magic = [0; MAGIC.len()];
    let read = file.read_exact_at(&mut magic, superblock_at + MAGIC_AT);
    read.is_ok() && magic == MAGIC
}

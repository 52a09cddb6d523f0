//! The search for md metadata on a device.

use std::io;

use ubtrfs_device::BlockDevice;

use super::problem::SuperblockProblem;
use super::superblock::{SECTOR, Superblock};
use super::version0;

/// The md metadata of a device.
#[derive(Debug)]
pub(crate) enum Metadata {
    Member(Box<Superblock>),
    /// A superblock in the right place that is damaged.
    Damaged(SuperblockProblem),
}

/// Finds the md metadata of a device.
pub(crate) fn find(device: &dyn BlockDevice) -> io::Result<Option<Metadata>> {
    let sectors = device.len_bytes() / SECTOR;
    let last = sectors.checked_sub(16).map(|sector| sector & !7);
    let mut damaged = None;
    // Versions 1.2, 1.1 and 1.0, and then 0.90.
    for sector in [Some(8), Some(0), last].into_iter().flatten() {
        match Superblock::read(device, sector)? {
            Some(Ok(superblock)) => return Ok(Some(Metadata::Member(Box::new(superblock)))),
            Some(Err(problem)) => damaged = Some(Metadata::Damaged(problem)),
            None => {}
        }
    }
    match version0::read(device)? {
        Some(Ok(superblock)) => return Ok(Some(Metadata::Member(Box::new(superblock)))),
        Some(Err(problem)) if damaged.is_none() => damaged = Some(Metadata::Damaged(problem)),
        _ => {}
    }
    Ok(damaged)
}

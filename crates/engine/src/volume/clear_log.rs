//! Removal of a pending fsync log without a replay.
//!
//! The log itself is not read, so it may be damaged. Nothing but superblocks is written, and the volume is as of its
//! last commit then.
//!
//! Not here: the replay (`log::replay`), which is what a volume with a sound log needs.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::Pool;
use ubtrfs_format::ids::{DevId, Logical};
use ubtrfs_transaction::roots::{Roots, check_writable};

use super::{OpenOptions, Volume};
use crate::error::Result;

/// The log that the superblock of a volume named, until it was cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClearedLog {
    /// Address of the root block of the log root tree; 0: there was no log.
    pub log_root: Logical,
    /// Level of that block.
    pub level: u8,
    /// Devices that are missing. They still name the log.
    pub missing: Vec<DevId>,
}

impl Volume {
    /// Writes superblocks that name no log to all devices of the volume on `paths`. All copies are written, as by a
    /// commit; the generation stays.
    ///
    /// # Errors
    ///
    /// The volume cannot be opened for writing, or its chunk tree or root tree cannot be read.
    pub fn clear_log(paths: &[PathBuf], options: &OpenOptions) -> Result<ClearedLog> {
        let options = options.clone().writable(true);
        let pool = Arc::new(Pool::open(paths, &options.pool_options())?);
        let mut superblock = pool.superblock().clone();
        check_writable(&superblock)?;
        // Only the chunk tree tells which devices belong to the volume.
        Roots::open(&pool, superblock.clone(), &options.roots_options(false))?;
        let devices = pool.devices();
        let missing = devices.iter().filter(|device| device.is_missing());
        let cleared = ClearedLog {
            log_root: Logical(superblock.log_root.get()),
            level: superblock.log_root_level,
            missing: missing.map(|device| device.devid).collect(),
        };
        superblock.clear_log();
        pool.check_unchanged()?;
        // The generation stays, so that a superblock that was not written could not be told from the others.
        pool.commit_superblock(&superblock)?.all()?;
        pool.flush()?.all()?;
        Ok(cleared)
    }
}

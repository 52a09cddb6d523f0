//! Removal of a pending fsync log without a replay.
//!
//! The log is not read, so it may be damaged. Only superblocks are written. The volume is then in the state
//! of its last commit.
//!
//! Not here: the replay of a sound log (`log::replay`).

use std::sync::Arc;

use ubtrfs_device::{DeviceName, Pool};
use ubtrfs_format::ids::{DevId, Logical};
use ubtrfs_storage::roots::{Roots, check_writable};

use super::{OpenOptions, Volume};
use crate::error::Result;

/// The log that was removed from the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClearedLog {
    /// Address of the root block of the log root tree. 0: there was no log.
    pub log_root: Logical,
    /// Level of the root block.
    pub level: u8,
    /// Missing devices, whose superblocks still name the log.
    pub missing: Vec<DevId>,
}

impl Volume {
    /// Removes the log from the superblocks on all devices of the volume at `paths`. All copies are written,
    /// as by a commit; the generation does not change.
    ///
    /// # Errors
    ///
    /// The volume cannot be opened for writing, or its chunk tree or root tree cannot be read.
    pub fn clear_log<D: Clone + Into<DeviceName>>(
        devices: &[D],
        options: &OpenOptions,
    ) -> Result<ClearedLog> {
        let options = options.within_memory().writable(true);
        let pool = Arc::new(Pool::open(devices, &options.pool_options())?);
        let mut superblock = pool.superblock().clone();
        check_writable(&superblock)?;
        // The chunk tree is needed to know the devices of the volume.
        let roots = Roots::open(&pool, superblock.clone(), &options.roots_options(false))?;
        roots.refuse_marked_roots()?;
        let devices = pool.devices();
        let missing = devices.iter().filter(|device| device.is_missing());
        let cleared = ClearedLog {
            log_root: Logical(superblock.log_root.get()),
            level: superblock.log_root_level,
            missing: missing.map(|device| device.devid).collect(),
        };
        superblock.clear_log();
        pool.check_unchanged()?;
        // All writes must succeed: with the same generation, an old superblock cannot be distinguished from a
        // new one.
        pool.commit_superblock(&superblock)?.all()?;
        pool.flush()?.all()?;
        Ok(cleared)
    }
}

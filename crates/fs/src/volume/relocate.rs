//! Moving extents between block groups.

use ubtrfs_device::progress::Progress;
use ubtrfs_format::ids::Logical;
use ubtrfs_storage::{RelocationOptions, RelocationReport};

use super::Volume;
use crate::error::Result;

impl Volume {
    /// Moves all extents out of the block group at `start`, and removes the group and its chunk.
    ///
    /// The volume stays in use. Nothing that snapshots or files share becomes unshared. The last group of a kind stays,
    /// empty. `progress` receives the copied bytes, and can cancel between batches.
    ///
    /// Errors: read-only volume; no such group; another exclusive operation or a scrub is in progress; no space for its extents; damaged trees.
    /// Data without checksum that no device returns. A subvolume that is held as a [`crate::Snapshot`]. Cancelled.
    /// All batches before the error are kept.
    pub fn relocate(
        &self,
        start: Logical,
        options: &RelocationOptions,
        progress: &mut dyn Progress,
    ) -> Result<RelocationReport> {
        self.roots.check_process()?;
        let manager = self.inodes.transactions()?;
        let _turn = manager.exclusive.begin()?;
        Ok(manager.relocate_group(start, options, progress)?)
    }
}

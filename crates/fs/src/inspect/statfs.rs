//! Computes the values of `statfs`.

use super::space::data_copies;
use crate::error::Result;
use crate::volume::{StatFs, Volume};

impl Volume {
    /// Returns the values of `statfs` as on a kernel mount. Sizes are divided by the number of data copies,
    /// and the global reserve counts as used.
    pub fn statfs(&self) -> Result<StatFs> {
        let manager = self.inodes.transactions().ok();
        let manager = manager.map(|manager| &**manager);
        self.known_statfs.get_or(manager, || self.statfs_anew())
    }

    fn statfs_anew(&self) -> Result<StatFs> {
        match self.statfs_by_groups() {
            // The trees with these numbers are damaged. They are not needed to read files.
            Err(error)
                if self
                    .files
                    .rescue
                    .tolerates_missing_tree(error.is_would_block()) =>
            {
                let superblock = self.superblock();
                let (total, used) = (superblock.total_bytes.get(), superblock.bytes_used.get());
                Ok(StatFs {
                    block_size: superblock.sectorsize.get(),
                    total_bytes: total,
                    free_bytes: total.saturating_sub(used),
                    available_bytes: 0,
                })
            }
            outcome => outcome,
        }
    }

    fn statfs_by_groups(&self) -> Result<StatFs> {
        let infos = self.profile_usages()?;
        let copies = data_copies(&infos);
        let used = infos.iter().fold(0u64, |sum, info| {
            sum.saturating_add(info.used.saturating_mul(info.copies()))
        });
        let block_size = self.superblock().sectorsize.get();
        let whole = |bytes: u64| bytes - bytes % u64::from(block_size);
        let total = whole(self.superblock().total_bytes.get() / copies);
        let free = total.saturating_sub(whole(used / copies));
        Ok(StatFs {
            block_size,
            total_bytes: total,
            free_bytes: free.saturating_sub(whole(self.global_reserve_bytes()?)),
            available_bytes: whole(self.available_bytes(&infos)),
        })
    }
}

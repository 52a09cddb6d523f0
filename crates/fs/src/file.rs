//! The bytes of files: from file extents to the devices.
//!
//! From low to high: `extent`, `extent_edit` < `extents`, `read` < `plan`, `nocow`, `store` < `split_insert`
//! < `write_back` < the operations: `write`, `write_encoded`, `sync`, `truncate`, `fallocate`, `clone`,
//! `seek`.

mod change;
mod clone;
mod decompressed;
mod encode;
mod extent;
mod extent_edit;
mod extents;
mod fallocate;
mod nocow;
mod plan;
mod read;
mod runs;
mod seek;
mod split_insert;
mod store;
mod sync;
mod truncate;
mod write;
mod write_back;
mod write_encoded;

#[cfg(test)]
mod tests;

pub use decompressed::CacheStats;
use decompressed::DecompressedExtents;
pub(crate) use extent::Extent;
pub(crate) use extent_edit::ExtentEdit;
pub use fallocate::Fallocate;
pub use sync::Durable;
pub(crate) use sync::FileSync;
pub use write_encoded::EncodedData;

use std::sync::{Arc, OnceLock, Weak};

use ubtrfs_storage::SpaceReclaim;
use ubtrfs_storage::roots::{Rescue, Roots};

use crate::inode::Inodes;

/// The data of a volume's regular files.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) roots: Arc<Roots>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) rescue: Rescue,
    decompressed: DecompressedExtents,
    file_sync: OnceLock<Weak<dyn FileSync>>,
}

impl Files {
    /// Creates the files of a volume. `decompressed_bytes` is the budget of the cache of decompressed extents.
    pub(crate) fn new(inodes: &Arc<Inodes>, rescue: Rescue, decompressed_bytes: u64) -> Files {
        Files {
            roots: Arc::clone(&inodes.roots),
            inodes: Arc::clone(inodes),
            rescue,
            decompressed: DecompressedExtents::new(decompressed_bytes),
            file_sync: OnceLock::new(),
        }
    }

    /// Returns the hits and misses of the cache of decompressed extents.
    pub(crate) fn decompressed_stats(&self) -> CacheStats {
        self.decompressed.stats()
    }
}

impl SpaceReclaim for Files {
    fn write_back_dirty(&self) -> ubtrfs_storage::Result<()> {
        Ok(self.write_back_all()?)
    }

    fn evict_orphans(&self) {
        self.inodes.evict_orphans();
    }

    fn write_lazy_times(&self) -> ubtrfs_storage::Result<()> {
        Ok(self.inodes.write_times()?)
    }
}

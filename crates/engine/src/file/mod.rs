//! The bytes of files: from file extents to the devices.
//!
//! From low to high: `extent`, `extent_edit` < `extents`, `read` < `plan`, `in_place`, `store` < `steps` < `write_back` < the
//! calls: `write`, `sync`, `truncate`, `fallocate`, `clone`, `seek`.

mod change;
mod clone;
mod decompressed;
mod encode;
mod extent;
mod extent_edit;
mod extents;
mod fallocate;
mod in_place;
mod plan;
mod read;
mod runs;
mod seek;
mod steps;
mod store;
mod sync;
mod truncate;
mod write;
mod write_back;

#[cfg(test)]
mod tests;

pub use decompressed::CacheStats;
pub(crate) use decompressed::DecompressedExtents;
pub use fallocate::Fallocate;

use crate::inode::{DataOptions, DirtyFiles, Settings};
use crate::roots::Rescue;

/// What the data path of a volume shares among files.
#[derive(Debug)]
pub(crate) struct DataPath {
    pub(crate) settings: Settings,
    pub(crate) rescue: Rescue,
    pub(crate) dirty: DirtyFiles,
}

impl DataPath {
    pub(crate) fn new(options: DataOptions) -> DataPath {
        DataPath {
            settings: Settings::new(&options),
            rescue: options.rescue,
            dirty: DirtyFiles::new(options.buffer_bytes),
        }
    }

    /// Lets go of memory for buffered data that was not needed since the last time.
    pub(crate) fn trim(&self) {
        self.dirty.trim();
    }
}

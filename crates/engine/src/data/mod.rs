//! The bytes of files: from file extents to the devices.
//!
//! From low to high: `extent`, `extent_edit`, `pieces`, `promise` < `buffer` < `extents`, `read` < `in_place`, `store`
//! < `write_back` < the calls: `write`, `sync`, `truncate`, `fallocate`, `clone`, `seek`, `unstored`.

mod buffer;
mod clone;
mod csums;
mod decompressed;
mod dirty;
mod encode;
mod extent;
mod extent_edit;
mod extents;
mod fallocate;
mod file;
mod in_place;
mod options;
mod pieces;
mod plan;
mod promise;
mod read;
mod runs;
mod seek;
mod settings;
mod steps;
mod store;
mod sync;
mod truncate;
mod unstored;
mod windows;
mod write;
mod write_back;
mod writeback_errors;

#[cfg(test)]
mod tests;

pub(crate) use buffer::WriteBuffer;
pub use decompressed::CacheStats;
pub(crate) use decompressed::DecompressedExtents;
pub use fallocate::Fallocate;
pub(crate) use in_place::FileExtentsState;
pub use options::Compress;
pub(crate) use options::DataOptions;
use settings::Settings;
pub(crate) use writeback_errors::SeenErrors;

use crate::roots::Rescue;

/// What the data path of a volume shares among files.
#[derive(Debug)]
pub(crate) struct DataPath {
    pub(crate) settings: Settings,
    pub(crate) rescue: Rescue,
    dirty: dirty::DirtyFiles,
}

impl DataPath {
    pub(crate) fn new(options: DataOptions) -> DataPath {
        DataPath {
            settings: Settings::new(&options),
            rescue: options.rescue,
            dirty: dirty::DirtyFiles::new(options.buffer_bytes),
        }
    }

    /// Lets go of memory for buffered data that was not needed since the last time.
    pub(crate) fn trim(&self) {
        self.dirty.trim();
    }
}

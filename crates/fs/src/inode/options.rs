//! Options for storing data.

use ubtrfs_format::compress::Compression;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_storage::roots::Rescue;

/// The compression of files without a setting of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compress {
    /// `None`: only files with a compression flag or property.
    pub algorithm: Compression,
    /// 0 is the algorithm's default.
    pub level: i32,
    /// Whether to try every extent, even after earlier ones did not compress.
    pub force: bool,
}

impl Compress {
    /// Parses the name of an algorithm with an optional level, such as `zstd:3`. `none` is no compression.
    ///
    /// Returns None for an unknown name, or a level that the algorithm does not have.
    pub fn from_name(name: &str) -> Option<Compress> {
        let (name, level) = match name.split_once(':') {
            Some((name, level)) => (name, level.parse().ok()?),
            None => (name, 0),
        };
        let algorithm = Compression::from_name(name)?;
        let highest = match algorithm {
            Compression::None => 0,
            Compression::Lzo => 1,
            Compression::Zlib => 9,
            Compression::Zstd => 15,
        };
        (0..=highest).contains(&level).then_some(Compress {
            algorithm,
            level,
            force: false,
        })
    }
}

/// See [`crate::OpenOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataOptions {
    pub(crate) compress: Compress,
    /// The size of the largest inline file.
    pub(crate) max_inline_bytes: u64,
    /// The budget for buffered data.
    pub(crate) buffer_bytes: u64,
    /// Whether new files are overwritten in place, without checksums.
    pub(crate) no_data_cow: bool,
    /// Whether new files have no checksums.
    pub(crate) no_data_sum: bool,
    /// Whether the sync of a file writes back all files before its commit.
    pub(crate) flush_on_commit: bool,
    pub(crate) rescue: Rescue,
}

impl DataOptions {
    /// Returns the flags of a new regular file in addition to those it inherits, as in the kernel.
    pub(crate) fn new_file_flags(&self) -> InodeFlags {
        let mut flags = InodeFlags::empty();
        flags.set(InodeFlags::NODATACOW, self.no_data_cow);
        flags.set(InodeFlags::NODATASUM, self.no_data_cow || self.no_data_sum);
        flags
    }
}

impl Default for DataOptions {
    fn default() -> Self {
        DataOptions {
            compress: Compress::default(),
            max_inline_bytes: 2048,
            buffer_bytes: 64 << 20,
            no_data_cow: false,
            no_data_sum: false,
            flush_on_commit: false,
            rescue: Rescue::default(),
        }
    }
}

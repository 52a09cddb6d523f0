//! Options for storing data.

use std::str::FromStr;

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

/// The reason why a text is not a compression, in the words of mkfs.btrfs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompressError {
    #[error("unrecognized compression type {0}")]
    Algorithm(String),
    #[error("{0} is not a valid numeric value")]
    Level(String),
    #[error("no compression has no level")]
    LevelOfNone,
    #[error("compression level {level} out of range [1..{max}]")]
    LevelRange { level: i32, max: i32 },
}

impl Compress {
    /// Parses an algorithm with any level, which the algorithm may not have.
    pub(crate) fn with_any_level(text: &str) -> Result<Compress, CompressError> {
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        let algorithm = Compression::from_name(name)
            .ok_or_else(|| CompressError::Algorithm(name.to_owned()))?;
        let parsed = level.map_or(Ok(0), str::parse);
        let level =
            parsed.map_err(|_| CompressError::Level(level.unwrap_or_default().to_owned()))?;
        if algorithm == Compression::None && level != 0 {
            return Err(CompressError::LevelOfNone);
        }
        Ok(Compress {
            algorithm,
            level,
            force: false,
        })
    }
}

/// Parses the name of an algorithm with an optional level, such as `zstd:3`. `none` and `no` are no compression.
impl FromStr for Compress {
    type Err = CompressError;

    fn from_str(text: &str) -> Result<Compress, CompressError> {
        let compress = Compress::with_any_level(text)?;
        let level = compress.level;
        let max = match compress.algorithm {
            Compression::None => 0,
            Compression::Lzo => 1,
            Compression::Zlib => 9,
            Compression::Zstd => 15,
        };
        if (0..=max).contains(&level) {
            Ok(compress)
        } else {
            Err(CompressError::LevelRange { level, max })
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_has_an_algorithm_and_a_level_in_its_range() {
        let parse = |text: &str| text.parse::<Compress>();
        let with = |algorithm, level| {
            Ok(Compress {
                algorithm,
                level,
                force: false,
            })
        };
        assert_eq!(parse("zlib"), with(Compression::Zlib, 0));
        assert_eq!(parse("zstd:15"), with(Compression::Zstd, 15));
        assert_eq!(parse("lzo:1"), with(Compression::Lzo, 1));
        for none in ["no", "none", "none:0"] {
            assert_eq!(parse(none), Ok(Compress::default()));
        }
        for (text, message) in [
            ("", "unrecognized compression type "),
            ("zip:1", "unrecognized compression type zip"),
            ("zstd:", " is not a valid numeric value"),
            ("zstd:1:2", "1:2 is not a valid numeric value"),
            ("no:1", "no compression has no level"),
            ("zstd:16", "compression level 16 out of range [1..15]"),
            ("zlib:-1", "compression level -1 out of range [1..9]"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
    }
}

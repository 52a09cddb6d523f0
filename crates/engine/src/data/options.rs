//! How a volume stores data.

use ubtrfs_format::compress::Compression;

/// How files are compressed that do not say it themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compress {
    /// `None`: only files that ask for it.
    pub algorithm: Compression,
    /// 0 is the algorithm's default.
    pub level: i32,
    /// Tries each extent anew, whatever the ones before were like.
    pub force: bool,
}

/// See [`crate::OpenOptions`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataOptions {
    pub(crate) compress: Compress,
    /// The largest file that is kept in its item.
    pub(crate) max_inline_bytes: u64,
    /// Budget of written data that has no extent yet.
    pub(crate) buffer_bytes: u64,
}

impl Default for DataOptions {
    fn default() -> Self {
        DataOptions {
            compress: Compress::default(),
            max_inline_bytes: 2048,
            buffer_bytes: 64 << 20,
        }
    }
}

//! The engine's options for a volume of the matrix.

use ubtrfs_format::compress::Compression;
use ubtrfs_fs::{Compress, OpenOptions};
use ubtrfs_sim::matrix::{self, Case};

pub(crate) fn engine_options(case: &Case) -> OpenOptions {
    let compress = Compress {
        algorithm: match case.compression {
            matrix::Compression::None => Compression::None,
            matrix::Compression::Zlib => Compression::Zlib,
            matrix::Compression::Lzo => Compression::Lzo,
            matrix::Compression::Zstd => Compression::Zstd,
        },
        level: 0,
        force: true,
    };
    OpenOptions::new()
        .writable(true)
        .compress(compress)
        .commit_interval(None)
}

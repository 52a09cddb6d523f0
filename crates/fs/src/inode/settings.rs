//! Settings for storing data, which may change while the volume is open.
//!
//! Each setting is read separately: during `Volume::reconfigure` a reader may see only some of the changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ubtrfs_format::compress::Compression;

use super::options::{Compress, DataOptions};

#[derive(Debug)]
pub(crate) struct Settings {
    compress: AtomicU64,
    /// Whether data may have been stored compressed, in smaller extents, since the volume was opened.
    expects_compression: AtomicBool,
    max_inline_bytes: AtomicU64,
    flush_on_commit: AtomicBool,
}

impl Settings {
    pub(crate) fn new(options: &DataOptions) -> Settings {
        Settings {
            compress: AtomicU64::new(pack(&options.compress)),
            expects_compression: AtomicBool::new(compresses(&options.compress)),
            max_inline_bytes: AtomicU64::new(options.max_inline_bytes),
            flush_on_commit: AtomicBool::new(options.flush_on_commit),
        }
    }

    /// Returns the compression of files without a setting of their own.
    pub(crate) fn compress(&self) -> Compress {
        unpack(self.compress.load(Ordering::Acquire))
    }

    /// Sets the compression. The caller must have called `expect_compression` first.
    pub(crate) fn set_compress(&self, compress: Compress) {
        self.compress.store(pack(&compress), Ordering::Release);
    }

    pub(crate) fn expects_compression(&self) -> bool {
        self.expects_compression.load(Ordering::Acquire)
    }

    /// Makes later writes reserve metadata for compressed extents, if `compress` compresses. Returns whether
    /// that is a change.
    pub(crate) fn expect_compression(&self, compress: &Compress) -> bool {
        compresses(compress) && !self.expects_compression.swap(true, Ordering::AcqRel)
    }

    /// Returns the size of the largest inline file.
    pub(crate) fn max_inline_bytes(&self) -> u64 {
        self.max_inline_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_max_inline_bytes(&self, bytes: u64) {
        self.max_inline_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns whether the sync of a file writes back all files before its commit.
    pub(crate) fn flush_on_commit(&self) -> bool {
        self.flush_on_commit.load(Ordering::Relaxed)
    }

    pub(crate) fn set_flush_on_commit(&self, flushes: bool) {
        self.flush_on_commit.store(flushes, Ordering::Relaxed);
    }
}

fn compresses(compress: &Compress) -> bool {
    compress.algorithm != Compression::None
}

const FORCE: u64 = 1 << 40;
const ALGORITHM_SHIFT: u32 = 32;

/// Packs the level into the low bits, the algorithm above it, and the flag.
fn pack(compress: &Compress) -> u64 {
    let force = if compress.force { FORCE } else { 0 };
    u64::from(compress.level.cast_unsigned())
        | u64::from(compress.algorithm.raw()) << ALGORITHM_SHIFT
        | force
}

fn unpack(packed: u64) -> Compress {
    Compress {
        algorithm: Compression::from_raw((packed >> ALGORITHM_SHIFT) as u8).unwrap_or_default(),
        level: (packed as u32).cast_signed(),
        force: packed & FORCE != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_is_read_as_it_was_set() {
        let settings = Settings::new(&DataOptions::default());
        assert_eq!(settings.compress(), Compress::default());
        for algorithm in Compression::ALL {
            for level in [0, 15, -15] {
                for force in [false, true] {
                    let compress = Compress {
                        algorithm,
                        level,
                        force,
                    };
                    settings.set_compress(compress);
                    assert_eq!(settings.compress(), compress);
                }
            }
        }
    }
}

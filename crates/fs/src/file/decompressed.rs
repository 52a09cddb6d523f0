//! A cache of decompressed extents, so that small reads of one extent decompress it once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::extents::CompressedExtent;

#[derive(Clone, Debug)]
struct ByteWeight;

/// An extent, and whether its checksums were verified. Data read without verification must not serve a file
/// that has checksums.
type Key = (CompressedExtent, bool);

impl Weighter<Key, Arc<[u8]>> for ByteWeight {
    fn weight(&self, _: &Key, bytes: &Arc<[u8]>) -> u64 {
        bytes.len() as u64
    }
}

/// A cache with a byte budget, shared by all files of a volume.
pub(crate) struct DecompressedExtents {
    cache: Cache<Key, Arc<[u8]>, ByteWeight>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Counts since the volume was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheStats {
    pub hits: u64,
    pub misses: u64,
}

impl std::fmt::Debug for DecompressedExtents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DecompressedExtents")
            .field("extents", &self.cache.len())
            .finish()
    }
}

impl DecompressedExtents {
    pub(crate) fn new(budget_bytes: u64) -> Self {
        let extents = (budget_bytes / super::extents::MAX_COMPRESSED_BYTES).max(1);
        DecompressedExtents {
            cache: Cache::with_weighter(extents as usize, budget_bytes, ByteWeight),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    pub(crate) fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }

    pub(super) fn get(&self, extent: &CompressedExtent, verified: bool) -> Option<Arc<[u8]>> {
        let found = self.cache.get(&(*extent, verified));
        let counter = match found {
            Some(_) => &self.hits,
            // A reader looks twice before it decompresses, so each decompression counts as two misses.
            None => &self.misses,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    pub(super) fn insert(&self, extent: CompressedExtent, verified: bool, bytes: Arc<[u8]>) {
        self.cache.insert((extent, verified), bytes);
    }
}

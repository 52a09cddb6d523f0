//! Decompressed extents, kept so that small reads of one extent decompress it once.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::extents::CompressedExtent;

#[derive(Clone, Debug)]
struct ByteWeight;

impl Weighter<CompressedExtent, Arc<[u8]>> for ByteWeight {
    fn weight(&self, _: &CompressedExtent, bytes: &Arc<[u8]>) -> u64 {
        bytes.len() as u64
    }
}

/// A cache with a byte budget, shared by all files of a volume.
pub(crate) struct DecompressedExtents {
    cache: Cache<CompressedExtent, Arc<[u8]>, ByteWeight>,
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
        }
    }

    pub(super) fn get(&self, extent: &CompressedExtent) -> Option<Arc<[u8]>> {
        self.cache.get(extent)
    }

    pub(super) fn insert(&self, extent: CompressedExtent, bytes: Arc<[u8]>) {
        self.cache.insert(extent, bytes);
    }
}

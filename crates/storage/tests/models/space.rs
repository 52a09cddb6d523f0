//! Sums over block groups, and writes without copy on write.

#[path = "../../src/space/nocow.rs"]
mod nocow;
#[path = "../../src/space/nocow_writers.rs"]
mod nocow_writers;
#[path = "../../src/space/space_info.rs"]
mod space_info;
#[path = "../../src/space/trim_gate.rs"]
mod trim_gate;

mod tests;

use std::sync::Arc;

use space_info::SpaceInfo;

use crate::sync::Ordering;

mod block_group {
    #[derive(Debug, Default)]
    pub(super) struct BlockGroup(super::nocow_writers::NocowWriters);

    impl BlockGroup {
        pub(super) fn nocow_writers(&self) -> &super::nocow_writers::NocowWriters {
            &self.0
        }
    }
}

mod trim_totals {
    #[derive(Debug, Default)]
    pub(crate) struct TrimTotals;
}

/// Space of one type, for the reservations of metadata.
#[derive(Debug)]
pub(crate) struct Space {
    metadata: SpaceInfo,
    used: u64,
}

impl Space {
    pub(crate) fn new(used: u64, free: u64) -> Arc<Space> {
        let metadata = SpaceInfo::default();
        metadata.free_bytes.store(free, Ordering::Relaxed);
        Arc::new(Space { metadata, used })
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.metadata.reserved_metadata.load(Ordering::SeqCst)
    }

    pub(crate) fn metadata_used(&self) -> u64 {
        self.used
    }

    pub(crate) fn fits_metadata(&self, bytes: u64) -> bool {
        self.metadata.fits_metadata(bytes)
    }

    pub(crate) fn reserve_metadata(&self, bytes: u64) -> bool {
        self.metadata.reserve_metadata(bytes, bytes)
    }

    pub(crate) fn reserve_metadata_keeping(&self, bytes: u64, kept: u64) -> bool {
        self.metadata.reserve_metadata(bytes, kept)
    }

    pub(crate) fn shrink_metadata_reservation(&self, bytes: u64) {
        self.metadata.shrink_metadata(bytes);
    }
}

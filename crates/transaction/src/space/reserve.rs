//! Promises of space, so that a full volume is told to who asks and not to a commit.
//!
//! Data is reserved out of the groups that there are; if they do not suffice a chunk is made at once, in
//! memory. Metadata is reserved also out of what the unallocated space could give, and no data chunk is made
//! that would break such a promise (SPACE-INFO-2).

use std::sync::atomic::Ordering;

use ubtrfs_format::block_group_flags::BlockGroupType;

use super::space_info::{SpaceInfo, release};
use super::{Space, SpaceError};

/// How often a promise is counted that is in the way of another one, which is counted at the same time.
const RESERVE_TRIES: usize = 100;

impl Space {
    /// Promises space for data. `allocate_data` takes what it gives off the promise. Where that much cannot be had, no
    /// chunk is left for it.
    pub fn reserve_data(&self, bytes: u64) -> Result<(), SpaceError> {
        let info = self.info(BlockGroupType::Data);
        if reserve_in(info, bytes) {
            return Ok(());
        }
        let mut chunks = self.chunks.lock();
        let mut made = 0;
        while !reserve_in(info, bytes) {
            let kind = BlockGroupType::Data;
            let grown = match info.may_have(bytes) {
                true => self.grow(&mut chunks, kind, None),
                false => self
                    .next_flags(kind)
                    .and(Err(SpaceError::NoSpace { kind, bytes })),
            };
            if let Err(error) = grown {
                if made > 0 {
                    self.forget_unclaimed(&mut chunks);
                }
                return Err(match error {
                    SpaceError::NoSpace { kind, .. } => SpaceError::NoSpace { kind, bytes },
                    other => other,
                });
            }
            made += 1;
        }
        Ok(())
    }

    /// Whether so much might be reserved once what is pinned is released and others have given their promises back.
    pub fn may_get_data(&self, bytes: u64) -> bool {
        let info = self.info(BlockGroupType::Data);
        let pinned = info.pinned.load(Ordering::SeqCst);
        let most = info.free_bytes().saturating_add(pinned);
        bytes <= most.saturating_add(info.unallocated_bytes())
    }

    /// Takes back a promise of `reserve_data` as far as nothing was allocated of it.
    pub fn release_data(&self, bytes: u64) {
        release(&self.info(BlockGroupType::Data).reserved_data, bytes);
    }

    /// Promises that commits will find so many bytes for tree blocks, all told: no chunk of data will take
    /// them. If that cannot be kept, the promise stays as it was.
    pub(crate) fn reserve_metadata(&self, bytes: u64) -> bool {
        self.reserve_metadata_keeping(bytes, bytes)
    }

    /// The same, and no chunk of data takes what is missing to `kept` bytes either, whether they are there or not.
    pub(crate) fn reserve_metadata_keeping(&self, bytes: u64, kept: u64) -> bool {
        let info = self.info(BlockGroupType::Metadata);
        // Several promise at once: what another asks for must not be in the way of this.
        if !info.fits(bytes) {
            return false;
        }
        // Sums that were found earlier may come later. Only `shrink_metadata_reservation` is sure to know the last.
        if info.reserved_metadata.load(Ordering::SeqCst) >= kept {
            return true;
        }
        info.reserved_metadata.fetch_max(kept, Ordering::SeqCst);
        info.fits(bytes)
    }

    /// Whether so many bytes, all told, could be reserved now.
    pub(crate) fn fits_metadata(&self, bytes: u64) -> bool {
        self.info(BlockGroupType::Metadata).fits(bytes)
    }

    /// What commits need is so much at most from now on. Nobody promises meanwhile.
    pub fn shrink_metadata_reservation(&self, bytes: u64) {
        let info = self.info(BlockGroupType::Metadata);
        info.reserved_metadata.fetch_min(bytes, Ordering::SeqCst);
    }
}

impl SpaceInfo {
    /// Whether `metadata` can be reserved beside data.
    fn fits(&self, metadata: u64) -> bool {
        let data = self.reserved_data.load(Ordering::SeqCst);
        data.saturating_add(metadata) <= self.free_bytes().saturating_add(self.unallocated_bytes())
    }

    pub(super) fn fits_reservations(&self) -> bool {
        self.reserved() <= self.free_bytes().saturating_add(self.unallocated_bytes())
    }

    /// Whether so much more might be reserved once all chunks are made that can be.
    fn may_have(&self, bytes: u64) -> bool {
        let all = self.free_bytes().saturating_add(self.unallocated_bytes());
        self.reserved().saturating_add(bytes) <= all
    }
}

/// Counts a promise if the groups can keep it.
fn reserve_in(info: &SpaceInfo, bytes: u64) -> bool {
    for _ in 0..RESERVE_TRIES {
        // What cannot be kept anyway is in nobody's way.
        let now = info.reserved().checked_add(bytes);
        if now.is_none_or(|sum| sum > info.free_bytes()) {
            return false;
        }
        info.reserved_data.fetch_add(bytes, Ordering::SeqCst);
        // SPACE-INFO-2
        if info.reserved() <= info.free_bytes() {
            return true;
        }
        release(&info.reserved_data, bytes);
        // Two that count theirs at once see both, though there may be room for one.
        std::thread::yield_now();
    }
    false
}

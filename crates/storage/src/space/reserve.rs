//! Reservations of space. On a full volume, reservations fail with ENOSPC, so commits never run out of space.
//!
//! Data is reserved from the existing groups. If they do not suffice, a chunk is created at once, in memory. Metadata
//! reservations also count the space that new chunks could add. No data chunk may take that space (SPACE-INFO-2).
//!
//! Not here: the counting of concurrent reservations (`space_info`).

use std::sync::atomic::Ordering;

use ubtrfs_format::block_group_flags::BlockGroupType;

use super::space_info::release;
use super::{Space, SpaceError};

impl Space {
    /// Reserves space for data. `allocate_data` subtracts allocated space from the reservation. After a failure, no
    /// chunk created for it is left.
    pub fn reserve_data(&self, bytes: u64) -> Result<(), SpaceError> {
        let info = self.info(BlockGroupType::Data);
        if info.reserve_data(bytes) {
            return Ok(());
        }
        let mut chunks = self.chunks.lock();
        let mut made = 0;
        while !info.reserve_data(bytes) {
            let kind = BlockGroupType::Data;
            let grown = if info.may_have(bytes) {
                self.grow(&mut chunks, kind, None)
            } else {
                self.next_flags(kind)
                    .and(Err(SpaceError::NoSpace { kind, bytes }))
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

    /// Returns whether a reservation could succeed after all pinned extents and reservations are released.
    pub fn may_get_data(&self, bytes: u64) -> bool {
        let info = self.info(BlockGroupType::Data);
        let pinned = info.pinned.load(Ordering::SeqCst);
        let most = info.free_bytes().saturating_add(pinned);
        bytes <= most.saturating_add(info.unallocated_bytes())
    }

    /// Releases the part of a reservation of `reserve_data` that was not allocated.
    pub fn release_data(&self, bytes: u64) {
        release(&self.info(BlockGroupType::Data).reserved_data, bytes);
    }

    /// Raises the total reservation for the tree blocks of commits to `bytes`. No data chunk takes this space. Returns
    /// false if the space does not suffice.
    pub(crate) fn reserve_metadata(&self, bytes: u64) -> bool {
        self.reserve_metadata_keeping(bytes, bytes)
    }

    /// Reserves a total of `bytes` for commits. Data chunks must leave `kept` bytes, even if that much is not available
    /// yet.
    pub(crate) fn reserve_metadata_keeping(&self, bytes: u64, kept: u64) -> bool {
        let info = self.info(BlockGroupType::Metadata);
        info.reserve_metadata(bytes, kept)
    }

    /// Returns whether a total reservation of `bytes` would succeed now.
    pub(crate) fn fits_metadata(&self, bytes: u64) -> bool {
        self.info(BlockGroupType::Metadata).fits_metadata(bytes)
    }

    /// Lowers the total reservation to `bytes`, the maximum that commits still need. No thread may reserve
    /// concurrently.
    pub fn shrink_metadata_reservation(&self, bytes: u64) {
        self.info(BlockGroupType::Metadata).shrink_metadata(bytes);
    }
}

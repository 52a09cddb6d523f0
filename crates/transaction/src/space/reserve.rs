//! Reservations of space. An operation on a full volume gets ENOSPC from them, and a commit never does.
//!
//! Data is reserved out of the groups that there are. If they do not suffice, a chunk is made at once, in memory. Metadata
//! is reserved also out of what the unallocated space could give. No data chunk takes what is reserved so (SPACE-INFO-2).
//!
//! Not here: how concurrent reservations are counted (`space_info`).

use std::sync::atomic::Ordering;

use ubtrfs_format::block_group_flags::BlockGroupType;

use super::space_info::release;
use super::{Space, SpaceError};

impl Space {
    /// Reserves space for data. `allocate_data` subtracts what it gives from the reservation. If this fails, no chunk is left
    /// that was made for it.
    pub fn reserve_data(&self, bytes: u64) -> Result<(), SpaceError> {
        let info = self.info(BlockGroupType::Data);
        if info.reserve_data(bytes) {
            return Ok(());
        }
        let mut chunks = self.chunks.lock();
        let mut made = 0;
        while !info.reserve_data(bytes) {
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

    /// Returns whether so much might be reserved once pinned extents and all reservations are released.
    pub fn may_get_data(&self, bytes: u64) -> bool {
        let info = self.info(BlockGroupType::Data);
        let pinned = info.pinned.load(Ordering::SeqCst);
        let most = info.free_bytes().saturating_add(pinned);
        bytes <= most.saturating_add(info.unallocated_bytes())
    }

    /// Releases so much of a reservation of `reserve_data`, of which nothing was allocated.
    pub fn release_data(&self, bytes: u64) {
        release(&self.info(BlockGroupType::Data).reserved_data, bytes);
    }

    /// Reserves so many bytes for the tree blocks of commits, all told: no data chunk takes them. False if they
    /// are not to be had.
    pub(crate) fn reserve_metadata(&self, bytes: u64) -> bool {
        self.reserve_metadata_keeping(bytes, bytes)
    }

    /// Reserves `bytes` for commits, all told. No data chunk takes what is missing to `kept` bytes either, whether they are
    /// there or not.
    pub(crate) fn reserve_metadata_keeping(&self, bytes: u64, kept: u64) -> bool {
        let info = self.info(BlockGroupType::Metadata);
        info.reserve_metadata(bytes, kept)
    }

    /// Returns whether so many bytes, all told, could be reserved now.
    pub(crate) fn fits_metadata(&self, bytes: u64) -> bool {
        self.info(BlockGroupType::Metadata).fits_metadata(bytes)
    }

    /// Lowers the reservation to `bytes`, the most that commits need from now on. No thread reserves meanwhile.
    pub fn shrink_metadata_reservation(&self, bytes: u64) {
        self.info(BlockGroupType::Metadata).shrink_metadata(bytes);
    }
}

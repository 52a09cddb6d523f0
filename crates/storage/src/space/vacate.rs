//! Device space that is closed for new chunks: the end of a device that shrinks, or all of a device that leaves.
//!
//! Invariants
//! - VACATE-1: space is closed before the chunks in it are listed. So no chunk is allocated there after the list.
//! - VACATE-2: space that metadata reservations need is not closed, as for a chunk of another type (SPACE-INFO-2).
//!
//! Not here: moving the contents of block groups, the device items (`device_set`).

use std::ops::Range;

use ubtrfs_format::block_group_flags::BlockGroupType;
use ubtrfs_format::ids::{DevId, Logical};

use super::block_group::BlockGroup;
use super::{Space, SpaceError, UsedExtent};

impl Space {
    /// Closes the space of a device from `offset` on, and returns the block groups that have stripes there.
    /// [`Space::open_device`] reverts it.
    ///
    /// Errors: reservations need the space.
    pub fn close_device(&self, devid: DevId, offset: u64) -> Result<Vec<Logical>, SpaceError> {
        let mut chunks = self.chunks.lock();
        self.forget_unclaimed(&mut chunks);
        let did_fit = self.fits_all_reservations();
        chunks.devices.close_from(devid, offset);
        self.update_forecasts(&chunks);
        // VACATE-2
        if did_fit && !self.fits_all_reservations() {
            chunks.devices.open(devid);
            self.update_forecasts(&chunks);
            return Err(SpaceError::NoSpace {
                kind: BlockGroupType::Metadata,
                bytes: 0,
            });
        }
        // A discard there would otherwise continue after the file was truncated, or the device removed.
        self.unallocated.take(devid, offset..u64::MAX);
        // VACATE-1
        Ok(self.groups_above(devid, offset))
    }

    /// Opens the space that [`Space::close_device`] closed.
    pub fn open_device(&self, devid: DevId) {
        let mut chunks = self.chunks.lock();
        chunks.devices.open(devid);
        self.update_forecasts(&chunks);
    }

    /// Returns the ranges of a block group that are neither free nor for superblocks.
    pub(crate) fn ranges_in_use(&self, group: &BlockGroup) -> Vec<Range<u64>> {
        group.ranges_in_use(&*self.source)
    }

    /// Allows chunks on a device that was missing, and has been replaced.
    pub(crate) fn note_present(&self, devid: DevId) {
        let chunks = self.pool.chunk_map().all();
        let extents: Vec<UsedExtent> = chunks
            .iter()
            .flat_map(|chunk| {
                let own = chunk.stripes().iter().filter(|s| s.devid == devid);
                own.map(|stripe| (devid, stripe.physical, chunk.stripe_bytes()))
            })
            .collect();
        let mut chunks = self.chunks.lock();
        chunks.devices.note_present(devid, &extents);
        self.update_forecasts(&chunks);
    }

    /// Returns the block groups with stripes on a device that end above an offset.
    pub fn groups_above(&self, devid: DevId, offset: u64) -> Vec<Logical> {
        let chunks = self.pool.chunk_map().all();
        let above = chunks.iter().filter(|chunk| {
            let mut own = chunk.stripes().iter().filter(|s| s.devid == devid);
            own.any(|stripe| stripe.physical.0 + chunk.stripe_bytes() > offset)
        });
        above.map(|chunk| chunk.logical()).collect()
    }

    fn fits_all_reservations(&self) -> bool {
        let mut kinds = BlockGroupType::ALL.into_iter();
        kinds.all(|kind| self.info(kind).fits_reservations())
    }
}

//! The reservation behind buffered data: data space, and metadata for the items that write-back will insert.
//!
//! It is made before anything changes, so that the write fails with ENOSPC and not its write-back. Dropping
//! it releases the unused rest.
//!
//! Not here: the totals of all reservations (`space`, `TransactionManager`).

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ubtrfs_device::{clock, nonblocking};
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_storage::csum_tree::CsumShape;
use ubtrfs_storage::space::SpaceError;
use ubtrfs_storage::{EditCounts, EditEstimate, TransactionManager};

use super::buffer_pool::WINDOW_BYTES;
use crate::error::{Error, Result};
use crate::inode::Inodes;

/// The size of the largest extent, as in the kernel.
pub(crate) const MAX_EXTENT_BYTES: u64 = 128 << 20;

/// Bytes of the file extent, extent and checksum items of one more extent. Extents of one run are neighbours
/// in all three trees.
const PIECE_BYTES: u64 = 256;

/// How often a reservation reclaims space. Other threads may take the space, or free more, in between.
const RECLAIM_TRIES: u32 = 16;

/// How often, and how long each time, a reservation waits for unlinked files to be closed.
const HELD_TRIES: u32 = 30;
const HELD_PAUSE: Duration = Duration::from_millis(2);

/// How often an allocation with a reservation retries. Concurrent releases may land in a block group that it
/// has searched already.
const ALLOCATE_TRIES: u32 = 100;

/// How often to commit in order to find metadata space for one more extent of accepted data.
const PIECE_TRIES: u32 = 50;

/// Up to this many sectors, fragmentation of free space does not matter for the estimate.
const FEW_SECTORS: u64 = 4;

/// An allocation of data space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelallocRequest {
    pub(crate) bytes: u64,
    pub(crate) min_bytes: u64,
    /// The preferred address.
    pub(crate) hint: Option<Logical>,
}

/// Reserved data space and metadata, released on drop.
#[derive(Debug, Default)]
pub(crate) struct DelallocReservation {
    manager: Option<Arc<TransactionManager>>,
    data_bytes: u64,
    cost: EditCounts,
}

impl Drop for DelallocReservation {
    fn drop(&mut self) {
        if let Some(manager) = &self.manager {
            manager.space.release_data(self.data_bytes);
            manager.release(self.cost);
        }
    }
}

impl DelallocReservation {
    /// Reserves `data_bytes` (whole sectors) of data space for a subvolume, metadata for their items, and `cost` on top.
    pub(crate) fn make(
        inodes: &Inodes,
        subvolume: RootId,
        data_bytes: u64,
        cost: EditEstimate,
    ) -> Result<DelallocReservation> {
        let mut delalloc = DelallocReservation::of_data(inodes, data_bytes)?;
        delalloc.cost = cost.and(inodes.cost_of_data(data_bytes)).counts;
        inodes.transactions()?.reserve(delalloc.cost);
        // The cost above is counted already. This only checks that all reservations still fit.
        let nothing_more = EditEstimate {
            may_use_global_reserve: cost.may_use_global_reserve,
            ..EditEstimate::default()
        };
        let _ = inodes.reserve_metadata(subvolume, nothing_more)?;
        Ok(delalloc)
    }

    /// Reserves metadata for overwriting `data_bytes` in place, and `cost` on top. It may use the global
    /// reserve, as long as an operation that frees space still fits.
    pub(crate) fn nocow(
        inodes: &Inodes,
        subvolume: RootId,
        data_bytes: u64,
        cost: EditEstimate,
    ) -> Result<DelallocReservation> {
        let manager = inodes.transactions()?;
        let delalloc = DelallocReservation {
            manager: Some(Arc::clone(manager)),
            data_bytes: 0,
            cost: cost.and(inodes.cost_of_data(data_bytes)).counts,
        };
        manager.reserve(delalloc.cost);
        let _ = inodes.reserve_metadata(subvolume, EditEstimate::of_freeing())?;
        Ok(delalloc)
    }

    /// Reserves data space only.
    fn of_data(inodes: &Inodes, data_bytes: u64) -> Result<DelallocReservation> {
        let manager = inodes.transactions()?;
        manager.space.reserve_data(data_bytes)?;
        Ok(DelallocReservation {
            manager: Some(Arc::clone(manager)),
            data_bytes,
            cost: EditCounts::default(),
        })
    }

    /// Merges another reservation into this one.
    pub(crate) fn join(&mut self, mut other: DelallocReservation) {
        self.data_bytes += std::mem::take(&mut other.data_bytes);
        self.cost = self.cost.and(std::mem::take(&mut other.cost));
        if self.manager.is_none() {
            self.manager = other.manager.take();
        }
    }

    /// Splits off up to `bytes` of the data space, with the metadata of one extent.
    pub(crate) fn split(&mut self, bytes: u64) -> DelallocReservation {
        let data_bytes = bytes.min(self.data_bytes);
        self.data_bytes -= data_bytes;
        DelallocReservation {
            manager: self.manager.clone(),
            data_bytes,
            cost: self.cost.take(cost_of_extents(1).counts),
        }
    }

    /// Adds the metadata of one more extent, because fragmented free space split the data. It may use the
    /// global reserve, as long as an operation that frees space still fits: the data was accepted already.
    pub(crate) fn count_piece(&mut self, inodes: &Inodes) -> Result<()> {
        let manager = inodes.transactions()?;
        let cost = EditCounts {
            bytes: PIECE_BYTES,
            ..EditCounts::default()
        };
        manager.reserve(cost);
        self.cost = self.cost.and(cost);
        let room = EditEstimate::of_freeing();
        for _ in 0..PIECE_TRIES {
            if manager.fits_now(room) {
                return Ok(());
            }
            manager.check_may_commit_accepted()?;
            // A commit releases room: the actual edits cost less than their reservations.
            inodes.transactions()?.commit_running()?;
            manager.wait_for_readers();
        }
        if manager.fits_now(room) {
            Ok(())
        } else {
            Err(Error::NoSpace)
        }
    }

    /// Releases data space of `bytes` that turned out not to be needed.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.data_bytes);
        if let Some(manager) = &self.manager {
            manager.space.release_data(bytes);
        }
        self.data_bytes -= bytes;
    }

    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Returns the number of items that it covers.
    pub(crate) fn items(&self) -> u64 {
        self.cost.items
    }

    /// Allocates data space out of this reservation. If `wanted` is larger, tries to reserve the difference
    /// first.
    pub(crate) fn allocate(
        &mut self,
        inodes: &Inodes,
        wanted: &DelallocRequest,
    ) -> Result<(Logical, u64)> {
        let manager = inodes.transactions()?;
        if self.data_bytes < wanted.bytes {
            // Rare. For example, a snapshot of a nocow file was made after the write had been accepted.
            self.join(DelallocReservation::of_data(
                inodes,
                wanted.bytes - self.data_bytes,
            )?);
        }
        let DelallocRequest {
            bytes,
            min_bytes,
            hint,
        } = *wanted;
        let takes_pieces = min_bytes <= inodes.roots.sectorsize();
        let mut tries = ALLOCATE_TRIES;
        let (start, len) = loop {
            let running = manager.running_transid();
            let taken = manager.space.allocate_data(bytes, min_bytes, hint, running);
            // A newer transaction may have been the first to use a block group, which an older one must not
            // use. Search again with the new transid.
            let is_outdated = || manager.running_transid() != running;
            match taken {
                Err(SpaceError::NoSpace { .. }) if is_outdated() => {}
                // The space is reserved, so it exists. A concurrent release may have landed behind the
                // search.
                Err(SpaceError::NoSpace { .. }) if takes_pieces && tries > 0 => {
                    tries -= 1;
                    thread::yield_now();
                }
                taken => break taken?,
            }
        };
        self.data_bytes -= len;
        Ok((start, len))
    }
}

impl Inodes {
    /// Reserves `data_bytes` (whole sectors) of data space, and `cost`. On ENOSPC it reclaims freed and
    /// over-reserved space until that yields nothing more.
    ///
    /// Locks: none may be held, as for `TransactionManager::reserve_metadata`.
    pub(crate) fn reserve_delalloc(
        &self,
        subvolume: RootId,
        data_bytes: u64,
        cost: EditEstimate,
    ) -> Result<DelallocReservation> {
        let manager = self.transactions()?;
        // Only a commit frees space, and a commit cannot run inside a group of operations. Such a caller
        // fails at once.
        let is_in_group = manager.gate.is_in_group();
        // SPACE-QUEUE-1: do not overtake threads that wait for space.
        let must_queue = data_bytes > 0 && manager.queues.data.is_busy() && !is_in_group;
        if !must_queue {
            match DelallocReservation::make(self, subvolume, data_bytes, cost) {
                Err(error) if error.is_no_space() && !is_in_group => {}
                made => return made,
            }
        }
        nonblocking::check()?;
        let _turn = match data_bytes {
            0 => None,
            _ => manager.queues.data.wait(),
        };
        let (mut tries, mut held_tries) = (RECLAIM_TRIES, HELD_TRIES);
        loop {
            match DelallocReservation::make(self, subvolume, data_bytes, cost) {
                Err(error) if error.is_no_space() && tries > 0 => {}
                made => return made,
            }
            // Evaluated before the reclaim: concurrent frees, and those already pending, may be enough for
            // the next try.
            let is_freed = manager.has_edits() || self.has_queued_orphans();
            let frees_more = self.reclaim_data_space()?;
            if is_freed || frees_more || manager.space.may_get_data(data_bytes) {
                tries -= 1;
            // An unlinked file is still open, and may be about to be closed: deleting it would free its
            // space.
            } else if self.has_held_orphans() && held_tries > 0 {
                held_tries -= 1;
                clock::sleep(HELD_PAUSE);
            } else {
                tries = 0;
            }
        }
    }

    /// Reclaims data space: deletes orphans, writes back buffered data, which may use less than it reserved,
    /// and commits. Returns whether another commit would free more.
    ///
    /// Errors: a failed commit. The next fsync of a file reports its failed write-back.
    fn reclaim_data_space(&self) -> Result<bool> {
        let manager = self.transactions()?;
        // ORPHAN-QUEUE-2
        self.evict_orphans();
        let _ = manager.write_back_dirty();
        self.transactions()?.commit_running()?;
        manager.wait_for_readers();
        // If there was nothing to commit, the commit did not adjust the reservation.
        manager.shrink_reservation();
        Ok(manager.cleaner.is_needed())
    }

    /// Returns the estimate for the items of new data. Each extent has a file extent item, an extent item,
    /// and the remainders of an old extent that it splits. Checksum items are added. Fragmented free space
    /// may produce more extents than estimated here (`count_piece`).
    pub(crate) fn cost_of_data(&self, data_bytes: u64) -> EditEstimate {
        let extent_bytes = if self.settings.expects_compression() {
            WINDOW_BYTES
        } else {
            MAX_EXTENT_BYTES
        };
        let sectorsize = self.roots.sectorsize();
        let extents = data_bytes.div_ceil(extent_bytes);
        let extra_pieces = match self.transactions() {
            Ok(manager) if data_bytes > FEW_SECTORS * sectorsize => {
                let piece = manager.space.average_free_run_bytes();
                piece.map_or(0, |piece| data_bytes / piece.max(sectorsize))
            }
            _ => 0,
        };
        let sums = data_bytes / sectorsize;
        let more_csum_items = sums / CsumShape::of(&self.roots.superblock()).max_sums();
        let csums = EditEstimate::items(more_csum_items).in_leaves(0);
        cost_of_extents(extents)
            .and(csums)
            .bytes(sums * self.roots.csum_bytes() + extra_pieces * PIECE_BYTES)
    }
}

/// Returns the estimate for the items of `extents` new extents, each with one checksum item.
fn cost_of_extents(extents: u64) -> EditEstimate {
    EditEstimate::items(6 * extents).in_leaves(2 * extents)
}

//! The reservation behind buffered data: data space, and metadata for the items that write-back will insert.
//!
//! It is made before anything changes, so that ENOSPC is an error of the write and not of the write-back. Dropping it
//! releases what is left of it.
//!
//! Not here: the sums that reservations count in (`space`, `TransactionManager`).

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ubtrfs_device::{clock, nonblocking};
use ubtrfs_format::ids::Logical;
use ubtrfs_transaction::csum_tree::CsumShape;
use ubtrfs_transaction::space::SpaceError;
use ubtrfs_transaction::{EditEstimate, TransactionManager};

use super::Inodes;
use super::dirty_ranges::WINDOW_BYTES;
use crate::error::{Error, Result};

/// The most that one extent holds; the kernel makes none that is larger.
pub(crate) const MAX_EXTENT_BYTES: u64 = 128 << 20;

/// Bytes of an extent's own item, its record and its item of checksums. Extents of data that comes in pieces lie side
/// by side in all three trees.
const PIECE_BYTES: u64 = 256;

/// How often a reservation makes room. Others may take it, or free more, meanwhile.
const RECLAIM_TRIES: u32 = 16;

/// How often, and between which pauses, a reservation looks whether files without a name are let go.
const HELD_TRIES: u32 = 30;
const HELD_PAUSE: Duration = Duration::from_millis(2);

/// How often an allocation that has its reservation looks for space: what others give back may come behind it.
const ALLOCATE_TRIES: u32 = 100;

/// How often the room for one more extent of data that was accepted is looked for.
const PIECE_TRIES: u32 = 50;

/// In how many pieces so few sectors are makes no difference.
const FEW_SECTORS: u64 = 4;

/// An allocation of data space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelallocRequest {
    pub(crate) bytes: u64,
    pub(crate) min_bytes: u64,
    /// Where it would best be.
    pub(crate) hint: Option<Logical>,
}

#[derive(Debug, Default)]
pub(crate) struct DelallocReservation {
    manager: Option<Arc<TransactionManager>>,
    data_bytes: u64,
    cost: EditEstimate,
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
    /// Reserves `data_bytes`, whole sectors, the items of that much data, and `cost` more.
    pub(crate) fn make(
        inodes: &Inodes,
        data_bytes: u64,
        cost: EditEstimate,
    ) -> Result<DelallocReservation> {
        let mut delalloc = DelallocReservation::of_data(inodes, data_bytes)?;
        delalloc.cost = cost.and(inodes.cost_of_data(data_bytes));
        inodes.transactions()?.reserve(delalloc.cost);
        // The reservation counts from here on.
        let nothing_more = EditEstimate {
            frees: cost.frees,
            ..EditEstimate::default()
        };
        let _ = inodes.reserve_metadata(nothing_more)?;
        Ok(delalloc)
    }

    /// Reserves the items of `data_bytes` that are written where the file has space already, and `cost` more. It may
    /// use the global reserve, as long as an operation that frees space still fits.
    pub(crate) fn nocow(
        inodes: &Inodes,
        data_bytes: u64,
        cost: EditEstimate,
    ) -> Result<DelallocReservation> {
        let manager = inodes.transactions()?;
        let delalloc = DelallocReservation {
            manager: Some(Arc::clone(manager)),
            data_bytes: 0,
            cost: cost.and(inodes.cost_of_data(data_bytes)),
        };
        manager.reserve(delalloc.cost);
        let _ = inodes.reserve_metadata(EditEstimate::of_freeing())?;
        Ok(delalloc)
    }

    /// Reserves space for data alone.
    fn of_data(inodes: &Inodes, data_bytes: u64) -> Result<DelallocReservation> {
        let manager = inodes.transactions()?;
        manager.space.reserve_data(data_bytes)?;
        Ok(DelallocReservation {
            manager: Some(Arc::clone(manager)),
            data_bytes,
            cost: EditEstimate::default(),
        })
    }

    /// Adds another reservation to this.
    pub(crate) fn join(&mut self, mut other: DelallocReservation) {
        self.data_bytes += std::mem::take(&mut other.data_bytes);
        self.cost = self.cost.and(std::mem::take(&mut other.cost));
        if self.manager.is_none() {
            self.manager = other.manager.take();
        }
    }

    /// Hands a part of the space on, as far as there is any, with what the items of one extent cost.
    pub(crate) fn split(&mut self, bytes: u64) -> DelallocReservation {
        let data_bytes = bytes.min(self.data_bytes);
        self.data_bytes -= data_bytes;
        DelallocReservation {
            manager: self.manager.clone(),
            data_bytes,
            cost: self.cost.take(cost_of_extents(1)),
        }
    }

    /// Counts one more extent than was reserved for, as the data came in pieces. It may use the global reserve, as long
    /// as an operation that frees space still fits: the data was accepted already.
    pub(crate) fn count_piece(&mut self, inodes: &Inodes) -> Result<()> {
        let manager = inodes.transactions()?;
        let cost = EditEstimate::default().bytes(PIECE_BYTES);
        manager.reserve(cost);
        self.cost = self.cost.and(cost);
        let room = EditEstimate::of_freeing();
        for _ in 0..PIECE_TRIES {
            if manager.fits_now(room) {
                return Ok(());
            }
            manager.check_may_commit_accepted()?;
            // Edits that are made cost less than reservations for them.
            inodes.transactions()?.commit_running()?;
            manager.wait_for_readers();
        }
        match manager.fits_now(room) {
            true => Ok(()),
            false => Err(Error::NoSpace),
        }
    }

    /// Releases the space of `bytes` that are not needed after all.
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

    /// Returns how many items it covers.
    pub(crate) fn items(&self) -> u64 {
        self.cost.items
    }

    /// Allocates space on the devices, of what was reserved. More than that is tried for.
    pub(crate) fn allocate(
        &mut self,
        inodes: &Inodes,
        wanted: &DelallocRequest,
    ) -> Result<(Logical, u64)> {
        let manager = inodes.transactions()?;
        if self.data_bytes < wanted.bytes {
            // Rare: a file without copy-on-write that a snapshot has been made of since, for example.
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
            // A block group that a later transaction was the first to use is not for an earlier one.
            let is_outdated = || manager.running_transid() != running;
            match taken {
                Err(SpaceError::NoSpace { .. }) if is_outdated() => {}
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
    /// Reserves space for `data_bytes`, whole sectors. If there is none, reclaims what others have freed or reserved
    /// too much of, until that can bring no more.
    ///
    /// Locks: none may be held, as for `TransactionManager::reserve_metadata`.
    pub(crate) fn reserve_delalloc(
        &self,
        data_bytes: u64,
        cost: EditEstimate,
    ) -> Result<DelallocReservation> {
        let manager = self.transactions()?;
        // Only a commit frees space.
        let is_in_group = manager.gate.is_in_group();
        // SPACE-QUEUE-1
        let must_queue = data_bytes > 0 && manager.queues.data.is_busy() && !is_in_group;
        if !must_queue {
            match DelallocReservation::make(self, data_bytes, cost) {
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
            match DelallocReservation::make(self, data_bytes, cost) {
                Err(error) if error.is_no_space() && tries > 0 => {}
                made => return made,
            }
            // Before it is reclaimed: other threads go on freeing space, which may be what is missing.
            let is_freed = manager.has_edits() || self.has_queued_orphans();
            let frees_more = self.reclaim_data_space()?;
            if is_freed || frees_more || manager.space.may_get_data(data_bytes) {
                tries -= 1;
            } else if self.has_held_orphans() && held_tries > 0 {
                held_tries -= 1;
                clock::sleep(HELD_PAUSE);
            } else {
                tries = 0;
            }
        }
    }

    /// Deletes orphans, writes back what is buffered, as that may take less than its reservation, and commits. Returns
    /// whether another commit frees more.
    ///
    /// Errors: a failed commit. A failed write-back is reported by the next fsync of the file.
    fn reclaim_data_space(&self) -> Result<bool> {
        let manager = self.transactions()?;
        // ORPHAN-QUEUE-2
        self.evict_orphans();
        let _ = manager.write_back_dirty();
        self.transactions()?.commit_running()?;
        manager.wait_for_readers();
        // There may have been nothing to commit.
        manager.shrink_reservation();
        Ok(manager.needs_cleaner())
    }

    /// Returns the estimate for the items of new data. Each extent has its own item, its record in the extent tree, and
    /// the halves of an extent that it splits. The items of checksums are added. There may be more extents than are
    /// known at this point (`count_piece`).
    pub(crate) fn cost_of_data(&self, data_bytes: u64) -> EditEstimate {
        let extent_bytes = match self.settings.expects_compression() {
            false => MAX_EXTENT_BYTES,
            true => WINDOW_BYTES,
        };
        let sectorsize = self.roots.sectorsize();
        let extents = data_bytes.div_ceil(extent_bytes);
        let dirty_ranges = match self.transactions() {
            Ok(manager) if data_bytes > FEW_SECTORS * sectorsize => {
                let piece = manager.space.piece_of_data();
                piece.map_or(0, |piece| data_bytes / piece.max(sectorsize))
            }
            _ => 0,
        };
        let sums = data_bytes / sectorsize;
        let more_csum_items = sums / CsumShape::of(&self.roots.superblock()).max_sums();
        let csums = EditEstimate::items(more_csum_items).in_leaves(0);
        cost_of_extents(extents)
            .and(csums)
            .bytes(sums * self.roots.csum_bytes() + dirty_ranges * PIECE_BYTES)
    }
}

/// Returns the estimate for the items of so many extents, with an item of checksums for each.
fn cost_of_extents(extents: u64) -> EditEstimate {
    EditEstimate::items(6 * extents).in_leaves(2 * extents)
}

//! What a writer was promised for data that has no extent yet: space for it, and room for its items.
//!
//! A promise is made before anything changes, so that no space is an error of the write and not of the
//! write-back. What is not used of it goes back when it is dropped.
//!
//! Not here: the sums that promises count in (`space`, `TransactionManager`).

use std::sync::Arc;
use std::thread;

use ubtrfs_device::waiting;
use ubtrfs_format::ids::Logical;

use super::Inodes;
use super::pieces::WINDOW_BYTES;
use crate::csum_tree::CsumShape;
use crate::error::{Error, Result};
use crate::space::SpaceError;
use crate::transaction::{Cost, TransactionManager};

/// The most that one extent holds; the kernel makes none that is larger.
pub(crate) const MAX_EXTENT_BYTES: u64 = 128 << 20;

/// What an extent's own item, its record and its item of checksums take. Extents of data that comes in pieces lie side by
/// side in all three trees.
const PIECE_BYTES: u64 = 256;

/// How often a reservation makes room. Others may take it, or free more, meanwhile.
const RECLAIM_TRIES: u32 = 4;

/// How often an allocation that has its reservation looks for space: what others give back may come behind it.
const ALLOCATE_TRIES: u32 = 100;

/// How often the room for one more extent of data that was accepted is looked for.
const PIECE_TRIES: u32 = 50;

/// In how many pieces so few sectors are makes no difference.
const FEW_SECTORS: u64 = 4;

/// Space that data is to be put in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) bytes: u64,
    pub(crate) min_bytes: u64,
    /// Where it would best be.
    pub(crate) hint: Option<Logical>,
}

#[derive(Debug, Default)]
pub(crate) struct Promise {
    writer: Option<Arc<TransactionManager>>,
    data_bytes: u64,
    cost: Cost,
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(writer) = &self.writer {
            writer.space.release_data(self.data_bytes);
            writer.settle(self.cost);
        }
    }
}

impl Promise {
    /// Room for `data_bytes`, whole sectors, and for `cost` more than the items of that much data.
    pub(crate) fn make(inodes: &Inodes, data_bytes: u64, cost: Cost) -> Result<Promise> {
        let mut promise = Promise::of_data(inodes, data_bytes)?;
        promise.cost = cost.and(inodes.cost_of_data(data_bytes));
        inodes.writer()?.owe(promise.cost);
        // What is owed counts from here on.
        let nothing_more = Cost {
            frees: cost.frees,
            ..Cost::default()
        };
        let _ = inodes.admit(nothing_more)?;
        Ok(promise)
    }

    /// Room for the items of `data_bytes` that are written where the file has space already, and for `cost` more. It may
    /// be of what is kept for those who free space, as long as one of them finds some.
    pub(crate) fn in_place(inodes: &Inodes, data_bytes: u64, cost: Cost) -> Result<Promise> {
        let writer = inodes.writer()?;
        let promise = Promise {
            writer: Some(Arc::clone(writer)),
            data_bytes: 0,
            cost: cost.and(inodes.cost_of_data(data_bytes)),
        };
        writer.owe(promise.cost);
        let _ = inodes.admit(Cost::of_freeing())?;
        Ok(promise)
    }

    /// Room for data alone.
    fn of_data(inodes: &Inodes, data_bytes: u64) -> Result<Promise> {
        let writer = inodes.writer()?;
        writer.space.reserve_data(data_bytes)?;
        Ok(Promise {
            writer: Some(Arc::clone(writer)),
            data_bytes,
            cost: Cost::default(),
        })
    }

    /// Adds what another holds.
    pub(crate) fn join(&mut self, mut other: Promise) {
        self.data_bytes += std::mem::take(&mut other.data_bytes);
        self.cost = self.cost.and(std::mem::take(&mut other.cost));
        if self.writer.is_none() {
            self.writer = other.writer.take();
        }
    }

    /// Hands a part of the space on, as far as there is any, with what the items of one extent cost.
    pub(crate) fn split(&mut self, bytes: u64) -> Promise {
        let data_bytes = bytes.min(self.data_bytes);
        self.data_bytes -= data_bytes;
        Promise {
            writer: self.writer.clone(),
            data_bytes,
            cost: self.cost.take(cost_of_extents(1)),
        }
    }

    /// Counts an extent that is one more than was thought, as its data came in pieces. What is kept for those who free
    /// space may serve, as long as one of them finds some: others count on this data.
    pub(crate) fn count_piece(&mut self, inodes: &Inodes) -> Result<()> {
        let writer = inodes.writer()?;
        let cost = Cost::default().bytes(PIECE_BYTES);
        writer.owe(cost);
        self.cost = self.cost.and(cost);
        let room = Cost::of_freeing();
        for _ in 0..PIECE_TRIES {
            if writer.has_room_now(room) {
                return Ok(());
            }
            // What is done costs less than what may have to be done, also by others.
            inodes.writer()?.commit_running()?;
            writer.wait_for_readers();
        }
        match writer.has_room_now(room) {
            true => Ok(()),
            false => Err(Error::NoSpace),
        }
    }

    /// Gives back the space of `bytes` that are not needed after all.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.data_bytes);
        if let Some(writer) = &self.writer {
            writer.space.release_data(bytes);
        }
        self.data_bytes -= bytes;
    }

    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// How many items may enter for it.
    pub(crate) fn items(&self) -> u64 {
        self.cost.items
    }

    /// Space on the devices, of what was promised. More than that is tried for.
    pub(crate) fn allocate(&mut self, inodes: &Inodes, wanted: &Wanted) -> Result<(Logical, u64)> {
        let writer = inodes.writer()?;
        if self.data_bytes < wanted.bytes {
            // Rare: a file without copy-on-write that a snapshot has been made of since, for example.
            self.join(Promise::of_data(inodes, wanted.bytes - self.data_bytes)?);
        }
        let Wanted {
            bytes,
            min_bytes,
            hint,
        } = *wanted;
        let takes_pieces = min_bytes <= inodes.roots.sectorsize();
        let mut tries = ALLOCATE_TRIES;
        let (start, len) = loop {
            let running = writer.running_transid();
            let taken = writer.space.allocate_data(bytes, min_bytes, hint, running);
            // A block group that a later transaction was the first to use is not for an earlier one.
            let is_outdated = || writer.running_transid() != running;
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
    /// Promises space for `data_bytes`, whole sectors. If there is none, makes what others have freed or reserved too much
    /// of available, until that can bring no more.
    ///
    /// Locks: none may be held, as for [`crate::Volume::admit`].
    pub(crate) fn promise(&self, data_bytes: u64, cost: Cost) -> Result<Promise> {
        let mut tries = RECLAIM_TRIES;
        loop {
            match Promise::make(self, data_bytes, cost) {
                Err(error) if error.is_no_space() && tries > 0 => {}
                made => return made,
            }
            waiting::check()?;
            let frees_more = self.reclaim_data_space()?;
            let space = &self.writer()?.space;
            tries = match frees_more || space.may_get_data(data_bytes) {
                true => tries - 1,
                false => 0,
            };
        }
    }

    /// Deletes orphans, writes back what is buffered, as that may take less than its reservation, and commits. Returns
    /// whether another commit frees more.
    ///
    /// Errors: a failed commit. Data that is lost in this is told to those who sync it.
    fn reclaim_data_space(&self) -> Result<bool> {
        let writer = self.writer()?;
        self.evict_orphans();
        let _ = writer.write_back_dirty();
        self.writer()?.commit_running()?;
        writer.wait_for_readers();
        // There may have been nothing to commit.
        writer.renew_promise();
        Ok(writer.is_unclean())
    }

    /// What the items of new data cost: for each extent itself, its record in the extent tree, and the halves of what it
    /// splits; and the checksums, whose items are many if they are long. There may be more extents than can be told now
    /// (`count_piece`).
    pub(crate) fn cost_of_data(&self, data_bytes: u64) -> Cost {
        let extent_bytes = match self.settings.expects_compression() {
            false => MAX_EXTENT_BYTES,
            true => WINDOW_BYTES,
        };
        let sectorsize = self.roots.sectorsize();
        let extents = data_bytes.div_ceil(extent_bytes);
        let pieces = match self.writer() {
            Ok(writer) if data_bytes > FEW_SECTORS * sectorsize => {
                let piece = writer.space.piece_of_data();
                piece.map_or(0, |piece| data_bytes / piece.max(sectorsize))
            }
            _ => 0,
        };
        let sums = data_bytes / sectorsize;
        let more_csum_items = sums / CsumShape::of(&self.roots.superblock()).max_sums();
        let csums = Cost::items(more_csum_items).in_leaves(0);
        cost_of_extents(extents)
            .and(csums)
            .bytes(sums * self.roots.csum_bytes() + pieces * PIECE_BYTES)
    }
}

/// With an item of checksums for each.
fn cost_of_extents(extents: u64) -> Cost {
    Cost::items(6 * extents).in_leaves(2 * extents)
}

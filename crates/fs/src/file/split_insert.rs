//! Inserting the items of one write-back in batches, over several transactions.
//!
//! A group of runs may need more items than one commit has metadata space for, or than fit in the memory for
//! deltas. It may replace many old extents, and it becomes many new ones where free space is fragmented.
//!
//! Invariants
//! - SPLIT-INSERT-1: the first batch with a part of a new extent inserts the extent and all of its checksums;
//!   later batches only refer to it. Batches enter in file order, so each part is joined to the one before,
//!   and one file extent item remains in the end.
//!
//! Locks: as in `write_back`. A commit takes no lock of a file, so this thread may commit between two
//! batches.
//! Not here: shrinking files (`truncate`).

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use ubtrfs_device::clock;
use ubtrfs_format::compress::Compression;
use ubtrfs_storage::csum_tree::CsumShape;
use ubtrfs_storage::{EditEstimate, FREEING_ITEMS, Reservation};

use super::Files;
use super::extent::DiskPart;
use super::extent_edit::ExtentEdit;
use super::plan::{RunGroup, TakenData};
use super::store::Stored;
use crate::error::{Error, Result};

/// Items per replaced extent: its EXTENT_DATA item and its data reference.
const REPLACED_ITEMS: u64 = 2;
/// Items per new extent besides checksums: its EXTENT_DATA item and its data reference.
const NEW_ITEMS: u64 = 2;
/// The smallest batch. It fits whenever any operation that frees space fits.
const LEAST_ITEMS: u64 = FREEING_ITEMS;
/// How often the smallest batch retries before it fails with ENOSPC.
const LEAST_TRIES: u32 = 100;
const OTHERS_TAKE: Duration = Duration::from_millis(1);

fn cost_of(items: u64) -> EditEstimate {
    EditEstimate::neighbours(items).with_global_reserve()
}

impl Stored {
    /// Returns its range in the file. The range is empty for inline data, which is the only extent of its
    /// file.
    fn range(&self) -> Range<u64> {
        match self {
            Stored::Inline(_) => 0..0,
            Stored::New { start, part, .. } | Stored::Reserved { start, part, .. } => {
                *start..*start + part.len
            }
        }
    }

    /// Returns the number of items that it inserts.
    fn own_items(&self, shape: CsumShape) -> u64 {
        match self {
            Stored::Inline(_) => 1,
            Stored::New { csums, .. } => NEW_ITEMS + shape.items_of(csums),
            Stored::Reserved { csums, .. } => 1 + shape.items_of(csums),
        }
    }

    /// Returns the number of items that it changes. This includes the items of extents that it replaces in
    /// `extent_edit`.
    fn items(&self, extent_edit: &ExtentEdit, shape: CsumShape) -> u64 {
        let replaced = extent_edit.overlapping(self.range()).count() as u64;
        self.own_items(shape) + REPLACED_ITEMS * replaced
    }

    /// Splits it at file offset `at`. Returns None if it cannot be split.
    fn cut(&self, at: u64) -> Option<(Stored, Stored)> {
        // A compressed extent is not cut. A preallocated one with checksums is not either, as both halves
        // would need their own sums.
        let (start, part, csums) = match self {
            Stored::New { start, part, csums } => (*start, part, csums),
            Stored::Reserved { start, part, csums } if csums.is_empty() => (*start, part, csums),
            _ => return None,
        };
        if part.compression != Compression::None {
            return None;
        }
        let front = DiskPart {
            len: at - start,
            ..part.clone()
        };
        let rest = DiskPart {
            offset: part.offset + front.len,
            len: part.len - front.len,
            ..part.clone()
        };
        let front = match self {
            Stored::New { .. } => Stored::New {
                start,
                part: front,
                csums: csums.clone(),
            },
            _ => Stored::Reserved {
                start,
                part: front,
                csums: Vec::new(),
            },
        };
        // SPLIT-INSERT-1: the front half inserts the extent with the checksums of both halves.
        let rest = Stored::Reserved {
            start: at,
            part: rest,
            csums: Vec::new(),
        };
        Some((front, rest))
    }
}

/// Splits `stored` into batches that change at most `most` items each, as far as the extents can be cut.
/// `extent_edit` holds the extents that they replace.
fn batches(
    stored: &[Stored],
    extent_edit: &ExtentEdit,
    shape: CsumShape,
    most: u64,
) -> Vec<Vec<Stored>> {
    let mut pieces: Vec<Stored> = stored.to_vec();
    // Sorted in descending order, so that `pop` takes the piece with the lowest offset.
    pieces.sort_by_key(|piece| std::cmp::Reverse(piece.range().start));
    let mut batches = Vec::new();
    let mut batch = Vec::new();
    let mut left = most;
    while let Some(piece) = pieces.pop() {
        let (own, items) = (piece.own_items(shape), piece.items(extent_edit, shape));
        // Start a new batch unless the piece fits, or can at least be cut after one replaced extent.
        if left < items.min(own + REPLACED_ITEMS) && !batch.is_empty() {
            batches.push(std::mem::take(&mut batch));
            left = most;
        }
        let range = piece.range();
        let room = left.saturating_sub(own) / REPLACED_ITEMS;
        // Find the end of the last replaced extent that still fits. Take at least one, so that a piece larger
        // than a batch is cut at all.
        let mut hit = extent_edit
            .overlapping(range.clone())
            .map(|(place, _)| place.end);
        let full_at = hit
            .by_ref()
            .take(room.max(1) as usize)
            .last()
            .filter(|_| hit.next().is_some());
        let cut = full_at
            .filter(|at| *at < range.end)
            .and_then(|at| piece.cut(at));
        match cut {
            Some((front, rest)) => {
                batch.push(front);
                pieces.push(rest);
                // The batch is full: the rest opens the next one.
                left = 0;
            }
            None => {
                left = left.saturating_sub(items);
                batch.push(piece);
            }
        }
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

/// How the items of a stored group enter.
pub(super) enum EntryMode<'v> {
    AtOnce(Reservation<'v>),
    /// In batches of at most this many items. Batches get smaller if other operations use up the space.
    InBatches(u64),
}

impl Files {
    /// Returns how `stored` may enter, after a commit if only that makes room for all of it. `reserved`
    /// counts the items that its writers reserved and no group has used yet; the items of `stored` are
    /// subtracted.
    pub(super) fn entry_of(
        &self,
        group: &RunGroup<'_>,
        stored: &[Stored],
        reserved: &mut u64,
    ) -> Result<EntryMode<'_>> {
        let shape = CsumShape::of(&self.roots.superblock());
        let items = stored
            .iter()
            .map(|piece| piece.items(&group.extent_edit, shape));
        let items: u64 = items.sum();
        let more = items.saturating_sub(*reserved);
        *reserved = reserved.saturating_sub(items);
        if more == 0 {
            return Ok(EntryMode::AtOnce(Reservation::already_made()));
        }
        if let Some(reservation) = self.reserve_items(more)? {
            return Ok(EntryMode::AtOnce(reservation));
        }
        // Not enough room beyond the reserved items. A commit may help: the actual edits cost less than their
        // estimates.
        self.inodes.transactions()?.check_may_commit_accepted()?;
        self.inodes.transactions()?.commit_running()?;
        self.inodes.transactions()?.release_freed();
        if let Some(reservation) = self.reserve_items(more)? {
            return Ok(EntryMode::AtOnce(reservation));
        }
        Ok(EntryMode::InBatches(self.items_of_batches(items)?))
    }

    /// Returns the largest batch, up to `items`, that memory and metadata space allow now. It is never below
    /// `LEAST_ITEMS`.
    fn items_of_batches(&self, items: u64) -> Result<u64> {
        let manager = self.inodes.transactions()?;
        let fits = |items: u64| {
            let cost = cost_of(items);
            manager.would_hold(cost) && manager.fits_now(cost.and(EditEstimate::of_freeing()))
        };
        let mut most = items.max(LEAST_ITEMS);
        while most > LEAST_ITEMS && !fits(most) {
            most = (most / 2).max(LEAST_ITEMS);
        }
        Ok(most)
    }

    fn reserve_items(&self, items: u64) -> Result<Option<Reservation<'_>>> {
        let (manager, cost) = (self.inodes.transactions()?, cost_of(items));
        Ok(if manager.has_memory_for(cost) {
            // Leave room for an operation that frees space, or a full volume could not be emptied.
            manager.try_reserve(cost.and(EditEstimate::of_freeing()))
        } else {
            None
        })
    }

    /// Changes the items of one group of runs in several transactions. On failure the space of extents that
    /// have not entered is released.
    pub(super) fn insert_in_batches(
        &self,
        file: &TakenData<'_>,
        group: &RunGroup<'_>,
        stored: &[Stored],
        most: u64,
        incompressible: bool,
    ) -> Result<()> {
        let shape = CsumShape::of(&self.roots.superblock());
        let (mut most, mut size) = (most, group.size.start);
        let mut left = VecDeque::from(batches(stored, &group.extent_edit, shape, most));
        while let Some(batch) = left.front() {
            let is_last = left.len() == 1;
            let end = batch.last().map_or(0, |piece| piece.range().end);
            // The size moves only up to the end of this batch, whose extents exist by then (WRITEBACK-2).
            let after = if is_last {
                group.size.end
            } else {
                size.max(end.min(group.size.end))
            };
            let entered = match self.reserve_batch(most) {
                Ok(None) => {
                    // Others took the space since: split all remaining pieces again, into smaller batches.
                    most = self.items_of_batches(most / 2)?;
                    let pieces: Vec<Stored> = left.into_iter().flatten().collect();
                    left = batches(&pieces, &group.extent_edit, shape, most).into();
                    continue;
                }
                Ok(Some(reservation)) => {
                    let ranges = batch.iter().map(Stored::range).collect();
                    // Reload: the batch before has changed the extents.
                    let extent_edit = file.load_ranges(self, ranges, size..after);
                    extent_edit.and_then(|extent_edit| {
                        let mut group_of_batch = RunGroup {
                            runs: Vec::new(),
                            extent_edit,
                            size: size..after,
                            ends: group.ends && is_last,
                        };
                        self.enter_group(
                            file,
                            &mut group_of_batch,
                            batch,
                            incompressible,
                            reservation,
                        )
                    })
                }
                Err(error) => Err(error),
            };
            if let Err(error) = entered {
                self.release_extents(left.iter().flatten())?;
                return Err(error);
            }
            left.pop_front();
            size = after;
        }
        Ok(())
    }

    /// Reserves metadata for one batch. Returns None if a smaller batch may still fit.
    ///
    /// After a commit it does not check the memory for deltas again. Other threads could take that memory
    /// again and again, and this data has been accepted.
    ///
    /// Errors: no space. Inserting without a reservation could fail the commit, and with it the changes of
    /// all other operations.
    fn reserve_batch(&self, items: u64) -> Result<Option<Reservation<'_>>> {
        if let Some(reservation) = self.reserve_items(items)? {
            return Ok(Some(reservation));
        }
        let (manager, cost) = (self.inodes.transactions()?, cost_of(items));
        manager.check_may_commit_accepted()?;
        for _ in 0..LEAST_TRIES {
            self.inodes.transactions()?.commit_running()?;
            manager.wait_for_readers();
            if let Some(reservation) = manager.try_reserve(cost.and(EditEstimate::of_freeing())) {
                return Ok(Some(reservation));
            }
            // A smaller batch is better than waiting. The smallest one may use even the room kept for
            // operations that free space.
            if items > LEAST_ITEMS {
                return Ok(None);
            }
            if let Some(reservation) = manager.try_reserve(cost) {
                return Ok(Some(reservation));
            }
            // Other operations hold the room, and release it when they leave their transaction.
            clock::sleep(OTHERS_TAKE);
        }
        Err(Error::NoSpace)
    }
}

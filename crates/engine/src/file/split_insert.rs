//! Inserting data in parts, over several transactions.
//!
//! Data may change so many extents that one commit has no room for that, or that the memory for deltas does not
//! suffice. It may replace many extents, and become many where free space is in pieces.
//!
//! Invariants
//! - SPLIT-INSERT-1: the first part of a new extent brings the extent and all of its checksums; the others refer to it.
//!   As they enter in the order of the file, each is joined to the one before, and one item is left in the end.
//!
//! Locks: as in `write_back`. A commit takes no file's, so that this thread may make one between two parts.
//! Not here: files that lose extents (`truncate`).

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use ubtrfs_device::clock;
use ubtrfs_format::compress::Compression;
use ubtrfs_transaction::csum_tree::CsumShape;
use ubtrfs_transaction::{EditEstimate, FREEING_ITEMS, Reservation};

use super::Files;
use super::extent::DiskPart;
use super::extent_edit::ExtentEdit;
use super::plan::{Group, TakenData};
use super::store::Stored;
use crate::error::{Error, Result};

/// Items that an extent which is replaced costs: its own, and its reference.
const REPLACED_ITEMS: u64 = 2;
/// Items that a new extent costs, its checksums apart: its own, and its reference.
const NEW_ITEMS: u64 = 2;
/// There is room for what this many cost if there is for any operation that frees space.
const LEAST_ITEMS: u64 = FREEING_ITEMS;
/// How often the smallest part asks for room.
const LEAST_TRIES: u32 = 100;
const OTHERS_TAKE: Duration = Duration::from_millis(1);

fn cost_of(items: u64) -> EditEstimate {
    EditEstimate::neighbours(items).freeing()
}

impl Stored {
    /// Returns where it is in the file; nowhere for inline data, which is a file's only extent.
    fn range(&self) -> Range<u64> {
        match self {
            Stored::Inline(_) => 0..0,
            Stored::New { start, part, .. } | Stored::Reserved { start, part, .. } => {
                *start..*start + part.len
            }
        }
    }

    /// Returns the number of items that it adds.
    fn own_items(&self, shape: CsumShape) -> u64 {
        match self {
            Stored::Inline(_) => 1,
            Stored::New { csums, .. } => NEW_ITEMS + shape.items_of(csums),
            Stored::Reserved { csums, .. } => 1 + shape.items_of(csums),
        }
    }

    /// Returns the number of items that it changes, where `extent_edit` shows the extents that it replaces.
    fn items(&self, extent_edit: &ExtentEdit, shape: CsumShape) -> u64 {
        let replaced = extent_edit.overlapping(self.range()).count() as u64;
        self.own_items(shape) + REPLACED_ITEMS * replaced
    }

    /// Returns the parts before and behind file offset `at`, or None if it must stay in one piece.
    fn cut(&self, at: u64) -> Option<(Stored, Stored)> {
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
        // SPLIT-INSERT-1
        let rest = Stored::Reserved {
            start: at,
            part: rest,
            csums: Vec::new(),
        };
        Some((front, rest))
    }
}

/// Cuts `stored` so that no part changes more than `most` items, as far as it can be cut. `extent_edit` shows what they
/// replace.
fn parts(
    stored: &[Stored],
    extent_edit: &ExtentEdit,
    shape: CsumShape,
    most: u64,
) -> Vec<Vec<Stored>> {
    let mut dirty_ranges: Vec<Stored> = stored.to_vec();
    dirty_ranges.sort_by_key(|piece| std::cmp::Reverse(piece.range().start));
    let mut parts = Vec::new();
    let mut part = Vec::new();
    let mut left = most;
    while let Some(piece) = dirty_ranges.pop() {
        let (own, items) = (piece.own_items(shape), piece.items(extent_edit, shape));
        if left < items.min(own + REPLACED_ITEMS) && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
            left = most;
        }
        let range = piece.range();
        let room = left.saturating_sub(own) / REPLACED_ITEMS;
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
                part.push(front);
                dirty_ranges.push(rest);
                left = 0;
            }
            None => {
                left = left.saturating_sub(items);
                part.push(piece);
            }
        }
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

/// How what became of a group may enter.
pub(super) enum EntryMode<'v> {
    AtOnce(Reservation<'v>),
    /// In parts of so many items, or of fewer if others take the room meanwhile.
    InParts(u64),
}

impl Files {
    /// Returns how `stored` may enter. Commits if that makes room for all of it. `reserved`: the items that its writers
    /// were reserved and that nothing has entered for; what it takes is taken off.
    pub(super) fn entry_of(
        &self,
        group: &Group<'_>,
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
        self.inodes.transactions()?.check_may_commit_accepted()?;
        self.inodes.transactions()?.commit_running()?;
        self.inodes.transactions()?.release_freed();
        if let Some(reservation) = self.reserve_items(more)? {
            return Ok(EntryMode::AtOnce(reservation));
        }
        Ok(EntryMode::InParts(self.items_of_parts(items)?))
    }

    /// Returns how many items a part of so many at most may change.
    fn items_of_parts(&self, items: u64) -> Result<u64> {
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
        Ok(match manager.has_memory_for(cost) {
            // An operation that frees space must have room afterwards as well.
            true => manager.try_reserve(cost.and(EditEstimate::of_freeing())),
            false => None,
        })
    }

    /// Changes the items of one group of runs, in several transactions. The rest is given back.
    pub(super) fn insert_in_batches(
        &self,
        file: &TakenData<'_>,
        group: &Group<'_>,
        stored: &[Stored],
        most: u64,
        incompressible: bool,
    ) -> Result<()> {
        let shape = CsumShape::of(&self.roots.superblock());
        let (mut most, mut size) = (most, group.size.start);
        let mut left = VecDeque::from(parts(stored, &group.extent_edit, shape, most));
        while let Some(dirty_ranges) = left.front() {
            let is_last = left.len() == 1;
            let end = dirty_ranges.last().map_or(0, |piece| piece.range().end);
            let after = match is_last {
                true => group.size.end,
                false => size.max(end.min(group.size.end)),
            };
            let entered = match self.reserve_part(most) {
                Ok(None) => {
                    most = self.items_of_parts(most / 2)?;
                    let dirty_ranges: Vec<Stored> = left.into_iter().flatten().collect();
                    left = parts(&dirty_ranges, &group.extent_edit, shape, most).into();
                    continue;
                }
                Ok(Some(reservation)) => {
                    let ranges = dirty_ranges.iter().map(Stored::range).collect();
                    let extent_edit = file.load_ranges(self, ranges, size..after);
                    extent_edit.and_then(|extent_edit| {
                        let mut part = Group {
                            runs: Vec::new(),
                            extent_edit,
                            size: size..after,
                            ends: group.ends && is_last,
                        };
                        self.enter_group(file, &mut part, dirty_ranges, incompressible, reservation)
                    })
                }
                Err(error) => Err(error),
            };
            if let Err(error) = entered {
                self.give_back(left.iter().flatten())?;
                return Err(error);
            }
            left.pop_front();
            size = after;
        }
        Ok(())
    }

    /// Reserves for a part; None if a smaller one may find room. After a commit it no longer checks the memory for
    /// deltas. Other threads may take that memory again and again, and the data has been accepted.
    ///
    /// Errors: no space. Inserting it all the same would make the commit fail, with all changes of other operations.
    fn reserve_part(&self, items: u64) -> Result<Option<Reservation<'_>>> {
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
            if items > LEAST_ITEMS {
                return Ok(None);
            }
            if let Some(reservation) = manager.try_reserve(cost) {
                return Ok(Some(reservation));
            }
            // Operations of others have the room, and give it back when they leave.
            clock::sleep(OTHERS_TAKE);
        }
        Err(Error::NoSpace)
    }
}

//! Data that replaces so many extents that one commit has no room for what that changes: it enters in parts.
//!
//! Invariants
//! - STEPS-1: the first part of a new extent brings the extent and all of its checksums; the others refer to it. As they
//!   enter in the order of the file, each is joined to the one before, and one item is left in the end.
//!
//! Locks: as in `write_back`. A commit takes no file's, so that this thread may make one between two parts.
//! Not here: files that lose extents (`truncate`).

use std::ops::Range;

use ubtrfs_format::compress::Compression;

use super::extent::DiskPart;
use super::splice::Splice;
use super::store::Stored;
use super::write_back::{Group, Taken};
use crate::error::Result;
use crate::txn::{Cost, FREEING_ITEMS};
use crate::volume::Volume;

/// Items that an extent which is replaced costs: its own, and its reference.
const EXTENT_ITEMS: u64 = 2;
/// So many are replaced without a look at what there is room for: writers were promised some items for each extent.
const FEW: usize = 16;
/// There is room for what this many cost if there is for any operation that frees space.
const LEAST: usize = (FREEING_ITEMS / EXTENT_ITEMS) as usize;

fn cost_of(extents: usize) -> Cost {
    Cost::neighbours(EXTENT_ITEMS * extents as u64).freeing()
}

impl Stored {
    /// Where it is in the file; nowhere for inline data, which is a file's only extent.
    fn range(&self) -> Range<u64> {
        match self {
            Stored::Inline(_) => 0..0,
            Stored::New { start, part, .. } | Stored::Reserved { start, part, .. } => {
                *start..*start + part.len
            }
        }
    }

    /// What is in front of file offset `at`, and the rest. None if it must stay in one piece.
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
        // STEPS-1
        let rest = Stored::Reserved {
            start: at,
            part: rest,
            csums: Vec::new(),
        };
        Some((front, rest))
    }
}

/// Cuts `stored` so that no part replaces more than `most` of the extents in `splice`, as far as it can be cut.
fn parts(stored: &[Stored], splice: &Splice, most: usize) -> Vec<Vec<Stored>> {
    let mut pieces: Vec<Stored> = stored.to_vec();
    pieces.sort_by_key(|piece| std::cmp::Reverse(piece.range().start));
    let mut parts = vec![Vec::new()];
    let mut left = most;
    while let Some(piece) = pieces.pop() {
        let range = piece.range();
        let mut hit = splice
            .overlapping(range.clone())
            .map(|(place, _)| place.end);
        let full_at = hit
            .by_ref()
            .take(left)
            .last()
            .filter(|_| hit.next().is_some());
        let cut = full_at
            .filter(|at| *at < range.end)
            .and_then(|at| piece.cut(at));
        let part = match cut {
            Some((front, rest)) => {
                pieces.push(rest);
                left = 0;
                front
            }
            None => {
                left = left.saturating_sub(splice.overlapping(range).count());
                piece
            }
        };
        if let Some(last) = parts.last_mut() {
            last.push(part);
        }
        if left == 0 {
            parts.push(Vec::new());
            left = most;
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

impl Volume {
    /// How many extents `group` may replace in one transaction, if it must not replace all that it does. Commits if
    /// that makes room for all.
    pub(super) fn most_at_once(&self, group: &Group<'_>) -> Result<Option<usize>> {
        let mut most = group.splice.loaded_count();
        let writer = self.writer()?;
        if most <= FEW || writer.has_room_now(cost_of(most)) {
            return Ok(None);
        }
        self.commit_running()?;
        self.release_freed();
        if writer.has_room_now(cost_of(most)) {
            return Ok(None);
        }
        while most > LEAST && !writer.has_room_now(cost_of(most)) {
            most = (most / 2).max(LEAST);
        }
        Ok(Some(most))
    }

    /// Changes the items of one group of runs, in several transactions. What has not entered is given back.
    pub(super) fn enter_in_steps(
        &self,
        file: &Taken<'_>,
        group: &Group<'_>,
        stored: &[Stored],
        most: usize,
        incompressible: bool,
    ) -> Result<()> {
        let parts = parts(stored, &group.splice, most);
        let mut size = group.size.start;
        for (number, pieces) in parts.iter().enumerate() {
            let is_last = number + 1 == parts.len();
            let end = pieces.last().map_or(0, |piece| piece.range().end);
            let after = match is_last {
                true => group.size.end,
                false => size.max(end.min(group.size.end)),
            };
            let entered = self.make_room_for(most).and_then(|()| {
                let ranges = pieces.iter().map(Stored::range).collect();
                let mut part = Group {
                    runs: Vec::new(),
                    splice: file.load_ranges(self, ranges, size..after)?,
                    size: size..after,
                    ends: group.ends && is_last,
                };
                self.enter_group(file, &mut part, pieces, incompressible)
            });
            if let Err(error) = entered {
                self.give_back(parts[number..].iter().flatten())?;
                return Err(error);
            }
            size = after;
        }
        Ok(())
    }

    fn make_room_for(&self, extents: usize) -> Result<()> {
        if !self.writer()?.has_room_now(cost_of(extents)) {
            self.commit_running()?;
            self.release_freed();
        }
        Ok(())
    }
}

//! The file ranges whose extents differ.
//!
//! Items that are equal in both snapshots are not passed to this code. So if only one side has a piece, the other one
//! has a hole.
//!
//! The pieces of each side are ascending and do not overlap.
//!
//! Invariants
//! - RANGES-1: at most `MAX_RANGES` ranges are kept. Beyond that, ranges with small gaps between them are merged.

use std::ops::Range;

use ubtrfs_format::item::FileExtent;

pub(super) const MAX_RANGES: usize = 4096;

/// The source of a piece's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BytesFrom {
    /// A hole or preallocated space.
    Zeroes,
    Extent {
        disk_bytenr: u64,
        /// The offset in the extent minus the file offset, which is constant within a piece.
        shift: u64,
    },
    Inline(Vec<u8>),
}

#[derive(Debug)]
struct Piece {
    start: u64,
    end: u64,
    source: BytesFrom,
}

impl Piece {
    fn of(start: u64, extent: &FileExtent<'_>) -> Piece {
        let source = match extent {
            FileExtent::Inline { head, data } => {
                let mut bytes = vec![head.compression];
                bytes.extend_from_slice(data);
                BytesFrom::Inline(bytes)
            }
            FileExtent::Regular { body, prealloc, .. } => match body.disk() {
                Some(disk) if !prealloc => BytesFrom::Extent {
                    disk_bytenr: disk.0,
                    shift: body.offset.get().wrapping_sub(start),
                },
                _ => BytesFrom::Zeroes,
            },
        };
        Piece {
            start,
            end: start.saturating_add(extent.num_bytes()),
            source,
        }
    }
}

/// Receives the extents of both sides in file order.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    old: Option<Piece>,
    new: Option<Piece>,
    found: Vec<Range<u64>>,
    /// Gaps up to this size are merged.
    gap: u64,
}

impl Ranges {
    pub(super) fn add_old(&mut self, start: u64, extent: &FileExtent<'_>) {
        self.compare_up_to(start);
        self.old = Some(Piece::of(start, extent));
    }

    pub(super) fn add_new(&mut self, start: u64, extent: &FileExtent<'_>) {
        self.compare_up_to(start);
        self.new = Some(Piece::of(start, extent));
    }

    /// Returns the ranges within `size`, merged with `others`, and whether some are coarse.
    pub(super) fn finish(mut self, size: u64, others: Vec<Range<u64>>) -> (Vec<Range<u64>>, bool) {
        self.compare_up_to(u64::MAX);
        if !others.is_empty() {
            let mut all = std::mem::take(&mut self.found);
            all.extend(others);
            all.sort_unstable_by_key(|range| range.start);
            for range in all {
                self.push(range.start, range.end);
            }
        }
        self.found.retain(|range| range.start < size);
        if let Some(last) = self.found.last_mut() {
            last.end = last.end.min(size);
        }
        (self.found, self.gap > 0)
    }

    fn compare_up_to(&mut self, limit: u64) {
        loop {
            let starts = [&self.old, &self.new].map(|piece| piece.as_ref().map(|p| p.start));
            let Some(at) = starts.into_iter().flatten().min() else {
                return;
            };
            if at >= limit {
                return;
            }
            let old = self.old.as_ref().filter(|piece| piece.start == at);
            let new = self.new.as_ref().filter(|piece| piece.start == at);
            let ends = [old, new].map(|piece| piece.map(|p| p.end));
            let later = starts.into_iter().flatten().filter(|start| *start > at);
            let end = ends.into_iter().flatten().chain(later).min();
            let end = end.unwrap_or(limit).min(limit);
            let zeroes = &BytesFrom::Zeroes;
            let source = |piece: Option<&Piece>| piece.map_or(zeroes.clone(), |p| p.source.clone());
            if source(old) != source(new) {
                self.push(at, end);
            }
            for piece in [&mut self.old, &mut self.new] {
                if let Some(p) = piece {
                    p.start = p.start.max(end);
                    if p.start >= p.end {
                        *piece = None;
                    }
                }
            }
        }
    }

    fn push(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        match self.found.last_mut() {
            Some(last) if start.saturating_sub(last.end) <= self.gap => {
                last.end = last.end.max(end);
            }
            _ => self.found.push(start..end),
        }
        // RANGES-1
        while self.found.len() > MAX_RANGES {
            self.gap = (self.gap * 2).max(4096);
            let mut kept: Vec<Range<u64>> = Vec::with_capacity(MAX_RANGES);
            for range in self.found.drain(..) {
                match kept.last_mut() {
                    Some(last) if range.start - last.end <= self.gap => last.end = range.end,
                    _ => kept.push(range),
                }
            }
            self.found = kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u64, disk_bytenr: u64) -> Piece {
        let source = BytesFrom::Extent {
            disk_bytenr,
            shift: start.wrapping_neg(),
        };
        Piece {
            start,
            end: start + 4096,
            source,
        }
    }

    // RANGES-1
    #[test]
    fn ranges_beyond_the_limit_become_coarse_and_leave_nothing_out() {
        let mut ranges = Ranges::default();
        let count = 3 * MAX_RANGES as u64;
        for number in 0..count {
            let start = number * 12_288;
            ranges.compare_up_to(start);
            ranges.new = Some(piece(start, 1 << 30));
            assert!(ranges.found.len() <= MAX_RANGES);
        }
        let (found, is_coarse) = ranges.finish(u64::MAX, Vec::new());
        assert!(is_coarse && !found.is_empty());
        for number in 0..count {
            let at = number * 12_288;
            let holds = |range: &Range<u64>| range.start <= at && at + 4096 <= range.end;
            assert!(found.iter().any(holds), "{at}");
        }
    }

    #[test]
    fn parts_of_one_extent_are_equal_to_the_whole() {
        let source = |start: u64| BytesFrom::Extent {
            disk_bytenr: 1 << 30,
            shift: 0_u64.wrapping_sub(start),
        };
        let part = |start, end, of| Piece {
            start,
            end,
            source: source(of),
        };
        let mut ranges = Ranges {
            old: Some(part(0, 12_288, 0)),
            new: Some(part(0, 4096, 0)),
            ..Ranges::default()
        };
        ranges.compare_up_to(4096);
        ranges.new = Some(part(4096, 8192, 4096));
        ranges.compare_up_to(8192);
        ranges.new = Some(part(8192, 12_288, 0));
        let (found, is_coarse) = ranges.finish(12_288, Vec::new());
        let range = 4096..8192;
        assert_eq!((found, is_coarse), (vec![range], false));
    }
}

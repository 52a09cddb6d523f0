//! The ranges of a group that wait for a discard.
//!
//! A small number of ranges is kept in a set, which makes frees and allocations cheap. A larger number is kept as
//! `FreeSpace`, whose memory is bounded.

use std::ops::Range;

use crate::range_set::RangeSet;
use crate::space::free_space::{ExtentRequest, FreeSpace};

/// The maximum number of ranges kept in a set. They take less memory than the free space of a GiB may take.
const FEW: u64 = if cfg!(test) { 64 } else { 1024 };

#[derive(Debug)]
pub(super) enum Waiting {
    Few { ranges: RangeSet, bytes: u64 },
    Many(Box<FreeSpace>),
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting::Few {
            ranges: RangeSet::default(),
            bytes: 0,
        }
    }
}

impl Waiting {
    /// Creates a set of all free ranges.
    pub(super) fn all_of(free: &FreeSpace) -> Waiting {
        Waiting::Many(Box::new(free.clone()))
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Waiting::Few { bytes, .. } => *bytes,
            Waiting::Many(free) => free.free_bytes(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Returns the number of ranges.
    pub(super) fn count(&self) -> u64 {
        match self {
            Waiting::Few { ranges, .. } => ranges.count(),
            Waiting::Many(free) => free.run_count(),
        }
    }

    /// Adds a range of whole sectors. `empty` creates a `FreeSpace` of the group with nothing free.
    pub(super) fn add(&mut self, range: &Range<u64>, empty: impl FnOnce() -> FreeSpace) {
        match self {
            Waiting::Few { ranges, bytes } => {
                *bytes -= ranges.remove(range.clone());
                *bytes += range.end - range.start;
                ranges.add(range.clone());
                if ranges.count() > FEW {
                    let mut many = empty();
                    for range in ranges.iter() {
                        add_to(&mut many, &range);
                    }
                    *self = Waiting::Many(Box::new(many));
                }
            }
            Waiting::Many(free) => add_to(free, range),
        }
    }

    /// Removes a range, and returns the number of waiting bytes in it.
    pub(super) fn remove(&mut self, range: &Range<u64>) -> u64 {
        match self {
            Waiting::Few { bytes: 0, .. } => 0,
            Waiting::Few { ranges, bytes } => {
                let removed = ranges.remove(range.clone());
                *bytes -= removed;
                removed
            }
            Waiting::Many(free) => {
                let removed = free.exclude(range.start, range.end - range.start);
                if free.free_bytes() == 0 {
                    *self = Waiting::default();
                }
                removed
            }
        }
    }

    pub(super) fn longest(&self) -> Option<Range<u64>> {
        match self {
            Waiting::Few { ranges, .. } => {
                ranges.iter().max_by_key(|range| range.end - range.start)
            }
            Waiting::Many(free) => {
                let longest = free.max_extent_bytes();
                let wanted = ExtentRequest {
                    bytes: longest,
                    min_bytes: longest,
                    align: 1,
                    hint: None,
                };
                let (start, len) = free.find(&wanted)?;
                Some(start..start + len)
            }
        }
    }

    pub(super) fn max_extent_bytes(&self) -> u64 {
        match self {
            Waiting::Few { .. } => self.longest().map_or(0, |range| range.end - range.start),
            Waiting::Many(free) => free.max_extent_bytes(),
        }
    }
}

fn add_to(free: &mut FreeSpace, range: &Range<u64>) {
    let len = range.end - range.start;
    if free.add(range.start, len).is_err() {
        free.exclude(range.start, len);
        // Cannot fail: the range was freed in the group, so it consists of whole sectors.
        let _ = free.add(range.start, len);
    }
}

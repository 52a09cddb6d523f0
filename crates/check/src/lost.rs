//! Unreadable blocks, about whose contents nothing is known.
//!
//! A missing counterpart is not reported if it may be in a lost block. The number of ranges is limited. Beyond the
//! limit the last range is extended, which can only suppress more findings.

use ubtrfs_format::key::Key;

use crate::block_set::BlockSet;

const MAX_RANGES: usize = 4096;

/// Ranges of keys of one tree, ascending.
#[derive(Clone, Debug, Default)]
pub(crate) struct LostKeys {
    ranges: Vec<(Key, Option<Key>)>,
}

impl LostKeys {
    pub(crate) fn add(&mut self, range: (Key, Option<Key>)) {
        let is_full = self.ranges.len() >= MAX_RANGES;
        match self.ranges.last_mut() {
            Some(last) if is_full => last.1 = range.1,
            _ => self.ranges.push(range),
        }
    }

    /// Returns whether items with this objectid may have been lost.
    pub(crate) fn touches(&self, objectid: u64) -> bool {
        self.ranges.iter().any(|(first, end)| {
            first.objectid <= objectid && end.is_none_or(|end| objectid <= end.objectid)
        })
    }

    /// Returns whether items with an objectid of `start..=last` may have been lost.
    pub(crate) fn overlaps(&self, start: u64, last: u64) -> bool {
        self.ranges.iter().any(|(first, end)| {
            first.objectid <= last && end.is_none_or(|end| start <= end.objectid)
        })
    }
}

/// Lost blocks of all trees.
#[derive(Debug)]
pub(crate) struct LostBlocks {
    bytenrs: BlockSet,
    /// Whether some of them may contain references to extents or blocks.
    pub(crate) any: bool,
}

impl LostBlocks {
    pub(crate) fn new(sectorsize: u32) -> LostBlocks {
        LostBlocks {
            bytenrs: BlockSet::new(sectorsize),
            any: false,
        }
    }

    /// Adds a lost block. Returns false if it is already known as lost.
    pub(crate) fn insert(&mut self, bytenr: u64) -> bool {
        self.any = true;
        self.bytenrs.insert(bytenr)
    }

    /// Adds a lost block without references. Returns false if it is already known as lost.
    pub(crate) fn insert_without_refs(&mut self, bytenr: u64) -> bool {
        self.bytenrs.insert(bytenr)
    }

    pub(crate) fn contains(&self, bytenr: u64) -> bool {
        self.bytenrs.contains(bytenr)
    }
}

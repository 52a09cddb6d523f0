//! The number of buffered bytes of a file that have no extent with space yet. Each sector is looked up once.
//!
//! Without it, a stat would search the tree once per buffered range, and programs call stat after every
//! write.
//!
//! Invariants
//! - DELALLOC-COUNT-1: a buffered sector is either in `counted` or in `waiting`.
//! - DELALLOC-COUNT-2: `without_space` is a subset of `counted`, and `bytes` is its length.
//!
//! Locks: its mutex is taken while the inode's lock is held, and is held while a count reads the tree.
//! Not here: the search for extents (`delalloc_attr`).

use std::ops::Range;

use ubtrfs_storage::RangeSet;

#[cfg(test)]
mod tests;

#[derive(Debug, Default)]
pub(crate) struct DelallocCount {
    /// Sectors that have not been looked up yet.
    waiting: RangeSet,
    counted: RangeSet,
    without_space: RangeSet,
    bytes: u64,
}

impl DelallocCount {
    /// Adds buffered sectors.
    pub(super) fn add(&mut self, sectors: Range<u64>) {
        // DELALLOC-COUNT-1
        let mut rest = sectors;
        while let Some(gap) = self.counted.first_gap(&rest) {
            rest.start = gap.end;
            self.waiting.add(gap);
        }
    }

    /// Removes sectors that are not buffered any longer.
    pub(super) fn remove(&mut self, sectors: Range<u64>) {
        self.waiting.remove(sectors.clone());
        self.counted.remove(sectors.clone());
        // DELALLOC-COUNT-2
        self.bytes -= self.without_space.remove(sectors);
    }

    /// Marks sectors whose extents have changed, so that they are looked up again.
    pub(crate) fn note_changed(&mut self, range: Range<u64>) {
        self.bytes -= self.without_space.remove(range.clone());
        for sectors in self.counted.take(range) {
            self.waiting.add(sectors);
        }
    }

    /// Returns the bytes without space. `look_up` returns the parts without space of sectors that are not
    /// counted yet.
    pub(crate) fn bytes<E>(
        &mut self,
        mut look_up: impl FnMut(Range<u64>) -> Result<Vec<Range<u64>>, E>,
    ) -> Result<u64, E> {
        while let Some(sectors) = self.waiting.first() {
            for gap in look_up(sectors.clone())? {
                self.bytes += gap.end - gap.start;
                self.without_space.add(gap);
            }
            self.waiting.remove(sectors.clone());
            self.counted.add(sectors);
        }
        Ok(self.bytes)
    }
}

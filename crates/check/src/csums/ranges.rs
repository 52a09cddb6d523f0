//! Sets of address ranges: added in any order, returned as disjoint ranges in ascending order.

use ubtrfs_spill::{Sorted, Sorter};

use crate::error::CheckError;

/// Start and end.
pub(crate) type Range = (u64, u64);

#[derive(Debug)]
pub(crate) struct RangeSorter {
    /// The last range, which the next one may extend.
    open: Option<Range>,
    sorter: Sorter<[u64; 2]>,
}

impl RangeSorter {
    pub(crate) fn new(sorter: Sorter<[u64; 2]>) -> RangeSorter {
        RangeSorter { open: None, sorter }
    }

    pub(crate) fn add(&mut self, (start, end): Range) -> Result<(), CheckError> {
        match &mut self.open {
            Some(open) if open.0 <= start && start <= open.1 => open.1 = open.1.max(end),
            open => {
                if let Some((start, end)) = open.replace((start, end)) {
                    self.sorter.push([start, end])?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<Union, CheckError> {
        if let Some((start, end)) = self.open {
            self.sorter.push([start, end])?;
        }
        let mut union = Union {
            sorted: self.sorter.finish()?,
            ahead: None,
            next: None,
        };
        union.ahead = union.read()?;
        union.advance()?;
        Ok(union)
    }
}

/// An iterator over the union of all ranges, ascending.
#[derive(Debug)]
pub(crate) struct Union {
    sorted: Sorted<[u64; 2]>,
    /// A record that is not merged yet.
    ahead: Option<Range>,
    next: Option<Range>,
}

impl Union {
    fn read(&mut self) -> Result<Option<Range>, CheckError> {
        Ok(self.sorted.next_record()?.map(|[start, end]| (start, end)))
    }

    fn advance(&mut self) -> Result<(), CheckError> {
        self.next = self.ahead;
        let Some(joined) = &mut self.next else {
            return Ok(());
        };
        let mut joined = *joined;
        loop {
            self.ahead = self.read()?;
            match self.ahead {
                Some((start, end)) if start <= joined.1 => joined.1 = joined.1.max(end),
                _ => break,
            }
        }
        self.next = Some(joined);
        Ok(())
    }

    /// Removes the ranges below `end`; a range that crosses it is split.
    pub(crate) fn take_before(
        &mut self,
        end: u64,
        each: &mut dyn FnMut(u64, u64),
    ) -> Result<(), CheckError> {
        while let Some((start, range_end)) = self.next.filter(|(start, _)| *start < end) {
            if range_end > end {
                self.next = Some((end, range_end));
                each(start, end);
            } else {
                self.advance()?;
                each(start, range_end);
            }
        }
        Ok(())
    }
}

/// Calls `each` with the parts of a range outside `others`, which are disjoint and ascending.
pub(crate) fn without((start, end): Range, others: &[Range], each: &mut dyn FnMut(u64, u64)) {
    let mut at = start;
    let first = others.partition_point(|other| other.1 <= start);
    for other in &others[first..] {
        if other.0 >= end {
            break;
        }
        if other.0 > at {
            each(at, other.0);
        }
        at = at.max(other.1);
    }
    if at < end {
        each(at, end);
    }
}

#[cfg(test)]
mod tests {
    use ubtrfs_spill::ScratchDir;

    use super::*;

    #[test]
    fn ranges_of_others_are_cut_out() {
        let others = [(0, 10), (20, 30), (30, 40), (60, 70)];
        let left = |range| {
            let mut left = Vec::new();
            without(range, &others, &mut |start, end| left.push((start, end)));
            left
        };
        assert_eq!(left((5, 65)), [(10, 20), (40, 60)]);
        assert_eq!(left((22, 28)), []);
        assert_eq!(left((10, 20)), [(10, 20)]);
        assert_eq!(left((70, 80)), [(70, 80)]);
        assert_eq!(left((8, 8)), []);
    }

    #[test]
    fn ranges_are_joined_and_cut() {
        let mut ranges = RangeSorter::new(Sorter::new(&ScratchDir::named("/tmp"), 1 << 10));
        for range in [(50, 60), (0, 10), (10, 20), (15, 18), (55, 70), (90, 95)] {
            ranges.add(range).unwrap();
        }
        let mut union = ranges.finish().unwrap();
        let mut taken = Vec::new();
        for end in [5, 12, 56, 100] {
            taken.push((end, 0));
            union
                .take_before(end, &mut |start, end| taken.push((start, end)))
                .unwrap();
        }
        let wanted = [
            (5, 0),
            (0, 5),
            (12, 0),
            (5, 12),
            (56, 0),
            (12, 20),
            (50, 56),
            (100, 0),
            (56, 70),
            (90, 95),
        ];
        assert_eq!(taken, wanted);
    }
}

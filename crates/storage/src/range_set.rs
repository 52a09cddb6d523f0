//! A set of numbers, stored as disjoint ranges that never touch.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers, stored as ranges.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    /// Start to end.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Returns the lowest range.
    pub fn first(&self) -> Option<Range<u64>> {
        let (&start, &end) = self.ranges.first_key_value()?;
        Some(start..end)
    }

    /// Removes a range, and returns the parts of it that were in the set.
    pub fn take(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let before = self.ranges.range(..=range.start).next_back();
        let from = before.map_or(range.start, |(&start, _)| start);
        let overlapping = self.ranges.range(from..range.end.max(from));
        let within = |(&start, &end): (&u64, &u64)| start.max(range.start)..end.min(range.end);
        let mut taken: Vec<Range<u64>> = overlapping.map(within).collect();
        taken.retain(|part| part.start < part.end);
        self.remove(range);
        taken
    }

    /// Returns the ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    /// Returns the number of elements.
    pub fn len_bytes(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }

    /// Returns the number of ranges.
    pub fn count(&self) -> u64 {
        self.ranges.len() as u64
    }

    /// Adds a range.
    pub fn add(&mut self, range: Range<u64>) {
        let mut range = range;
        while let Some((&start, &end)) = self.ranges.range(..=range.end).next_back() {
            if end < range.start {
                break;
            }
            self.ranges.remove(&start);
            range = range.start.min(start)..range.end.max(end);
        }
        if !range.is_empty() {
            self.ranges.insert(range.start, range.end);
        }
    }

    /// Removes a range, and returns the number of elements removed.
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        let mut removed = 0;
        while let Some((&start, &end)) = self.ranges.range(..range.end).next_back() {
            if end <= range.start {
                break;
            }
            self.ranges.remove(&start);
            if end > range.end {
                self.ranges.insert(range.end, end);
            }
            removed += end.min(range.end) - start.max(range.start);
            if start < range.start {
                self.ranges.insert(start, range.start);
            }
        }
        removed
    }

    /// Returns the first part of a range that is not in the set.
    pub fn first_gap(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let before = self.ranges.range(..=range.start).next_back();
        let from = before.map_or(range.start, |(_, &end)| end.max(range.start));
        let next = self.ranges.range(from..).next();
        let end = next.map_or(range.end, |(&start, _)| start.min(range.end));
        // Touching ranges are merged, so a gap follows each range.
        (from < end).then_some(from..end)
    }
}

#[cfg(test)]
mod tests {
    use ubtrfs_sim::{Rng, seed};

    use super::*;

    #[test]
    fn set_agrees_with_a_list_of_flags() {
        const LEN: u64 = 200;
        let mut rng = Rng::new(seed("set_agrees_with_a_list_of_flags"));
        let mut set = RangeSet::default();
        let mut flags = [false; LEN as usize];
        for _ in 0..5000 {
            let start = rng.below(LEN);
            let range = start..(start + 1 + rng.below(20)).min(LEN);
            let part = &mut flags[range.start as usize..range.end as usize];
            if rng.one_in(2) {
                part.fill(true);
                set.add(range);
            } else {
                let held = part.iter().filter(|&&flag| flag).count() as u64;
                part.fill(false);
                let taken = set.clone().take(range.clone());
                assert!(taken.iter().all(|part| {
                    range.start <= part.start && part.start < part.end && part.end <= range.end
                }));
                assert_eq!(
                    taken.iter().map(|part| part.end - part.start).sum::<u64>(),
                    held
                );
                assert_eq!(set.remove(range), held);
            }
            let shown: Vec<bool> = (0..LEN)
                .map(|at| set.iter().any(|range| range.contains(&at)))
                .collect();
            assert_eq!(shown, flags);
            assert_eq!(
                set.len_bytes(),
                flags.iter().filter(|&&flag| flag).count() as u64
            );
            let from = rng.below(LEN);
            let gap = (from..LEN).find(|&at| !flags[at as usize]);
            assert_eq!(set.first_gap(&(from..LEN)).map(|gap| gap.start), gap);
            let runs: Vec<_> = set.iter().collect();
            assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
            assert_eq!(set.count(), runs.len() as u64);
        }
    }
}

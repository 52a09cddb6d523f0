//! Long runs of deleted keys, which later walks skip.
//!
//! A walk that has passed many consecutive whiteouts records their range as a gap, and later walks skip the gap. So
//! only the first walk pays for the deletions, however many there were.
//!
//! Invariants
//! - GAPS-1: no key of a gap is visible. An edit of the mutable set that adds a key cuts the gap under the same lock.
//!   Gaps are discarded before a publication replaces the sets below. After that, a cursor over the old sets can no
//!   longer record gaps.
//! - GAPS-2: gaps do not overlap or touch.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use ubtrfs_format::key::Key;

#[cfg(test)]
mod tests;

/// Maximum number of recorded gaps; more would cost too much memory.
const MOST: usize = 4096;

/// Maps the first key of each gap to its last key.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    ends: BTreeMap<Key, Key>,
}

impl Gaps {
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the gap that contains `key`.
    pub(super) fn around(&self, key: &Key) -> Option<RangeInclusive<Key>> {
        let (first, last) = self.ends.range(..=*key).next_back()?;
        (key <= last).then_some(*first..=*last)
    }

    /// Adds a gap: a range without a visible key.
    pub(super) fn add(&mut self, range: RangeInclusive<Key>) {
        let (mut first, mut last) = range.into_inner();
        // GAPS-2
        let before = first.prev().unwrap_or(first);
        if let Some(gap) = self.around(&before) {
            first = first.min(*gap.start());
        }
        let behind = last.next().unwrap_or(last);
        while let Some((&start, &end)) = self.ends.range(first..=behind).next() {
            self.ends.remove(&start);
            last = last.max(end);
        }
        if self.ends.len() < MOST {
            self.ends.insert(first, last);
        }
    }

    /// Removes a key that became visible from its gap.
    pub(super) fn cut(&mut self, key: &Key) {
        let Some(gap) = self.around(key) else {
            return;
        };
        let (first, last) = gap.into_inner();
        self.ends.remove(&first);
        if let Some(end) = key.prev().filter(|end| first <= *end) {
            self.ends.insert(first, end);
        }
        if let Some(start) = key.next().filter(|start| *start <= last)
            && self.ends.len() < MOST
        {
            self.ends.insert(start, last);
        }
    }
}

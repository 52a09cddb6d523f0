//! Long runs of deleted keys, which a walk need not go through a second time.
//!
//! A walk that has passed many whiteouts one after the other notes where they lie. Later walks skip the
//! range as a whole. So the costs of deleting stay with the first walk there, however much was deleted.
//!
//! Invariants
//! - GAPS-1: no key of a gap is visible through the mutable set: the edit that adds one cuts the gap, under the
//!   same lock. Nor through the sets below: gaps are forgotten before other sets take their place. A cursor that
//!   has walked over the old ones notes nothing any more.
//! - GAPS-2: gaps do not overlap or touch.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use ubtrfs_format::key::Key;

#[cfg(test)]
mod tests;

/// So many are remembered; more would cost too much to keep.
const MOST: usize = 4096;

/// By first key: the last one.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    ends: BTreeMap<Key, Key>,
}

impl Gaps {
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the gap that `key` lies in.
    pub(super) fn around(&self, key: &Key) -> Option<RangeInclusive<Key>> {
        let (first, last) = self.ends.range(..=*key).next_back()?;
        (key <= last).then_some(*first..=*last)
    }

    /// Notes that nothing in the range is visible.
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

    /// Notes that `key` is visible.
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

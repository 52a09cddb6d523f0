//! What is left to discard when a volume is closed.

use std::time::Instant;

use super::{Discard, DiscardMode};

impl Discard {
    /// Discards what waits, all at once and the longest regions of each group first, until the time for it is up. Only
    /// what was freed since the volume was opened.
    ///
    /// The caller has made its last commit, and stopped the background.
    pub fn finish(&self) {
        if self.mode() != DiscardMode::Async || !self.is_possible() || self.at_close.is_zero() {
            return;
        }
        let _queue = self.queue.lock();
        let end = Instant::now() + self.at_close;
        let has_time = || Instant::now() < end && self.is_possible();
        let max = self.limits().max_discard_size;
        while has_time()
            && let Some(region) = self.space.begin_unallocated(max)
        {
            let discarded = self
                .pool
                .discard_physical(region.devid, region.offset, region.len);
            let is_trimmed = self.judge(&discarded);
            self.space.end_unallocated(&region, is_trimmed);
            if is_trimmed {
                self.count_unallocated(&region);
            }
        }
        let min = self.pool.discard_granularity();
        for group in self.space.groups().iter() {
            while has_time()
                && let Some(region) = self.space.take_longest_untrimmed(group, min, max)
            {
                let discarded = self.pool.discard(region.start, region.len);
                let is_trimmed = self.judge(&discarded);
                self.space.put_back(group, &region, is_trimmed);
                if !is_trimmed {
                    break;
                }
                self.count_background(&region);
            }
        }
    }
}

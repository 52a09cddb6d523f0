//! Remaining discards when a volume is closed.

use ubtrfs_device::clock;

use super::{Discard, DiscardMode};

impl Discard {
    /// Discards waiting regions without pauses until the time limit, the longest regions of each group first. Only space
    /// that was freed since the volume was opened is covered.
    ///
    /// The caller has made its last commit, and stopped the background discard.
    pub fn finish(&self) {
        if self.mode() != DiscardMode::Async || !self.is_possible() || self.at_close.is_zero() {
            return;
        }
        let _queue = self.queue.lock();
        let end = clock::now() + self.at_close;
        let has_time = || clock::now() < end && self.is_possible();
        let max = self.limits().max_discard_size;
        while has_time()
            && let Some(out) = self.space.begin_unallocated(max)
        {
            self.discard_unallocated(out);
        }
        let min = self.pool.discard_granularity();
        for group in self.space.groups().iter() {
            while has_time()
                && let Some(out) = self.space.take_longest_untrimmed(group, min, max)
                && self.discard_out(out)
            {}
        }
    }
}

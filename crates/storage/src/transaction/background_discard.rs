//! Background discards while the devices are idle.

use std::cell::Cell;
use std::time::Duration;

use super::manager::TransactionManager;
use crate::discard::DiscardStep;

/// How long a busy device postpones a discard.
const YIELD: Duration = Duration::from_millis(10);
/// How often in a row a discard is postponed. Together with `YIELD`, this limits the delay to a second.
const MOST_YIELDS: u32 = 100;

/// The state of the background thread between two checks of the devices.
#[derive(Debug, Default)]
pub struct DiscardPace {
    /// Number of postponements since the last discard.
    yields: u32,
    /// The pool's count of reads at the last check.
    reads_begun: Cell<u64>,
}

impl TransactionManager {
    /// Discards regions as they become due until the volume is closed. Runs in a thread of its own.
    pub fn discard_in_background(&self) {
        let mut pace = DiscardPace::default();
        while !self.discard.is_stopped() {
            match self.discard_when_idle(&mut pace) {
                DiscardStep::Busy => self.discard.wait(Some(YIELD)),
                DiscardStep::Done => {}
                DiscardStep::NotBefore(within) => self.discard.wait(Some(within)),
                DiscardStep::Idle => self.discard.wait(None),
            }
        }
    }

    /// Discards the next region that is due, unless the devices are busy.
    pub fn discard_when_idle(&self, pace: &mut DiscardPace) -> DiscardStep {
        let yields_now =
            || pace.yields < MOST_YIELDS && (self.is_writing() || self.is_read(&pace.reads_begun));
        let step = self.discard.step(|| self.may_discard(), yields_now);
        match step {
            DiscardStep::Busy => pace.yields += 1,
            DiscardStep::Done => pace.yields = 0,
            DiscardStep::NotBefore(_) | DiscardStep::Idle => {}
        }
        step
    }

    /// Discards the next region that is due, regardless of other IO.
    pub fn discard_step(&self) -> DiscardStep {
        self.discard.step(|| self.may_discard(), || false)
    }

    fn may_discard(&self) -> bool {
        !self.cleaner.is_quiesced() && self.check_alive().is_ok()
    }

    /// Returns whether the devices are being read, or were read since the last check. Consecutive reads leave gaps.
    fn is_read(&self, seen: &Cell<u64>) -> bool {
        let pool = self.roots.pool();
        let begun = pool.reads_begun();
        seen.replace(begun) != begun || pool.is_reading()
    }

    /// Returns whether a commit is in progress, or data is being written.
    fn is_writing(&self) -> bool {
        self.committing.is_locked() || self.data_flush.is_writing()
    }
}

//! The background discards when nothing else needs the devices.

use std::cell::Cell;
use std::time::Duration;

use super::manager::TransactionManager;
use crate::discard::DiscardStep;

/// How long the background leaves the devices to others, ...
const YIELD: Duration = Duration::from_millis(10);
/// ... and how often in a row. So a second is the longest that they keep a discard back.
const MOST_YIELDS: u32 = 100;

/// The state that the background keeps from one look at the devices to the next.
#[derive(Debug, Default)]
pub struct DiscardPace {
    /// How often it has left the devices to others since it discarded something.
    yields: u32,
    /// Reads that had begun when it looked last.
    reads_begun: Cell<u64>,
}

impl TransactionManager {
    /// Discards what is due until the volume is closed. For a thread of its own.
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

    /// Discards the next region that is due, unless others need the devices.
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

    /// Discards the next region that is due, whatever else goes on.
    pub fn discard_step(&self) -> DiscardStep {
        self.discard.step(|| self.may_discard(), || false)
    }

    fn may_discard(&self) -> bool {
        !self.is_quiesced() && self.check_alive().is_ok()
    }

    /// Returns whether the devices are read now, or were since the last look: reads that follow each other leave gaps.
    fn is_read(&self, seen: &Cell<u64>) -> bool {
        let pool = self.roots.pool();
        let begun = pool.reads_begun();
        seen.replace(begun) != begun || pool.is_reading()
    }

    /// Returns whether a commit is in progress, or data is on its way to the devices.
    fn is_writing(&self) -> bool {
        self.committing.is_locked() || self.data_flush.is_writing()
    }
}

//! The background discards when nothing else needs the devices.

use std::time::Duration;

use super::manager::TransactionManager;
use crate::discard::DiscardStep;

/// How long the background leaves the devices to others, ...
const YIELD: Duration = Duration::from_millis(10);
/// ... and how often in a row. So a second is the longest that they keep a discard back.
const MOST_YIELDS: u32 = 100;

impl TransactionManager {
    /// Discards what is due until the volume is closed. For a thread of its own.
    pub fn discard_in_background(&self) {
        let mut yields = 0;
        while !self.discard.is_stopped() {
            let yields_now = || yields < MOST_YIELDS && self.is_writing();
            let may_run = || self.may_discard();
            match self.discard.step(may_run, yields_now) {
                DiscardStep::Busy => {
                    yields += 1;
                    self.discard.wait(Some(YIELD));
                }
                DiscardStep::Done => yields = 0,
                DiscardStep::NotBefore(within) => self.discard.wait(Some(within)),
                DiscardStep::Idle => self.discard.wait(None),
            }
        }
    }

    /// Discards the next region that is due, whatever else goes on.
    pub fn discard_step(&self) -> DiscardStep {
        self.discard.step(|| self.may_discard(), || false)
    }

    fn may_discard(&self) -> bool {
        !self.is_quiesced() && self.check_alive().is_ok()
    }

    /// Whether a commit is in progress, or data is on its way to the devices.
    fn is_writing(&self) -> bool {
        self.committing.is_locked() || self.data_flush.is_writing()
    }
}

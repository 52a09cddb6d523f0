//! Written data of a file that was lost, and who has heard of it.
//!
//! Whoever had the file open at the time hears of a loss once, at the next sync, and so does who opens it before anybody
//! has heard of it: as with files of the kernel. Those who sync without an open file cannot be told apart: each time
//! they hear of it again, until other data has come to the devices after somebody had heard of it, or until the file is
//! not remembered any more.
//!
//! Locks: the inode's protects it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Those of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Losses {
    count: u64,
    /// Why the last happened.
    reason: String,
    /// Somebody has heard of the last.
    is_told: bool,
    /// Other data has come to the devices since.
    is_past: bool,
}

impl Losses {
    pub(super) fn add(&mut self, reason: String) {
        *self = Losses {
            count: self.count + 1,
            reason,
            is_told: false,
            is_past: false,
        };
    }

    /// Written data is on the devices.
    pub(super) fn note_landed(&mut self) {
        self.is_past |= self.is_told;
    }

    pub(super) fn is_untold(&self) -> bool {
        self.count > 0 && !self.is_told
    }

    /// Why there was a loss, for who has no open file.
    pub(super) fn tell(&mut self) -> Option<String> {
        (self.count > 0 && !self.is_past).then(|| self.say())
    }

    /// The same for an open file.
    pub(super) fn tell_to(&mut self, heard: &HeardLosses) -> Option<String> {
        let before = heard.0.swap(self.count, Ordering::Relaxed);
        (before < self.count).then(|| self.say())
    }

    fn say(&mut self) -> String {
        self.is_told = true;
        self.reason.clone()
    }
}

/// Up to which loss an open file has heard of them.
#[derive(Debug, Default)]
pub(crate) struct HeardLosses(AtomicU64);

impl HeardLosses {
    /// For a file that is opened now.
    pub(crate) fn at_opening(losses: &Losses) -> HeardLosses {
        let untold = u64::from(losses.is_untold());
        HeardLosses(AtomicU64::new(losses.count - untold))
    }
}

//! The speed limit of one device.

use std::time::{Duration, Instant};

use ubtrfs_device::clock;

use super::control::ScrubControl;

/// The longest pause before the limit and the end of the scrub are looked at again.
const NAP: Duration = Duration::from_millis(50);
/// Time that a slow device may catch up on.
const CREDIT: Duration = Duration::from_millis(200);

/// Delays the reads of a device so that they stay below the limit.
#[derive(Debug)]
pub(super) struct Pace {
    /// The time at which the bytes so far are due.
    due: Instant,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace { due: clock::now() }
    }

    /// Waits after `bytes` were read, until the limit allows the next read or the scrub is cancelled.
    pub(super) fn wait(&mut self, bytes: u64, control: &ScrubControl) {
        let limit = control.bytes_per_second();
        if limit == 0 {
            return;
        }
        let earliest = clock::now().checked_sub(CREDIT);
        self.due = earliest.map_or(self.due, |earliest| self.due.max(earliest));
        self.due += Duration::from_secs_f64(bytes as f64 / limit as f64);
        loop {
            let left = self.due.saturating_duration_since(clock::now());
            if left.is_zero() || control.is_cancelled() {
                return;
            }
            clock::sleep(left.min(NAP));
        }
    }
}

//! How long discards take on a device that is slow to do them.

use std::time::Duration;

/// The time of a request and, in addition, of each 64 MiB of it.
#[derive(Clone, Copy, Debug)]
pub struct DiscardTime {
    pub request: Duration,
    pub per_64_mib: Duration,
}

impl Default for DiscardTime {
    /// Returns the time on a usual drive.
    fn default() -> Self {
        DiscardTime {
            request: Duration::from_micros(200),
            per_64_mib: Duration::from_millis(1),
        }
    }
}

impl DiscardTime {
    pub fn of(&self, len_bytes: u64) -> Duration {
        let units = len_bytes as f64 / (64 << 20) as f64;
        self.request + self.per_64_mib.mul_f64(units)
    }
}

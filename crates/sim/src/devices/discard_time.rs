//! Latency of discards on a slow device.

use std::time::Duration;

/// The time per request, plus the time per 64 MiB.
#[derive(Clone, Copy, Debug)]
pub struct DiscardTime {
    pub request: Duration,
    pub per_64_mib: Duration,
}

impl Default for DiscardTime {
    /// Returns the times of a typical drive.
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

//! Options of discards: the time and the rate.

use std::time::Duration;

/// The time at which freed space is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardMode {
    /// Only on request.
    None,
    /// In the commit that frees it.
    Sync,
    /// In the background, some time after the commit.
    Async,
}

impl DiscardMode {
    /// Returns the value of the mount option for the mode.
    pub fn name(self) -> &'static str {
        match self {
            DiscardMode::None => "none",
            DiscardMode::Sync => "sync",
            DiscardMode::Async => "async",
        }
    }
}

/// Rate limits of background discards. Names and units match the kernel's `/sys/fs/btrfs/FSID/discard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscardLimits {
    /// Discards per second. With 0, the waiting regions are spread over six hours.
    pub iops_limit: u32,
    /// KiB per second; 0 means no limit.
    pub kbps_limit: u32,
    /// Maximum bytes of one discard; 0 means no limit.
    pub max_discard_size: u64,
}

impl Default for DiscardLimits {
    fn default() -> DiscardLimits {
        DiscardLimits {
            iops_limit: 1000,
            kbps_limit: 0,
            max_discard_size: 64 << 20,
        }
    }
}

/// Delays before untrimmed space is discarded, because it may be reused soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscardDelays {
    /// For space of empty block groups.
    pub empty: Duration,
    /// For space of other groups, before each pass.
    pub used: Duration,
}

impl Default for DiscardDelays {
    fn default() -> DiscardDelays {
        DiscardDelays {
            empty: Duration::from_secs(10),
            used: Duration::from_secs(120),
        }
    }
}

/// Discard options of a volume at its opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardOptions {
    /// None selects async if a device supports discards.
    pub mode: Option<DiscardMode>,
    pub limits: DiscardLimits,
    pub delays: DiscardDelays,
    /// Whether freed space of metadata groups is discarded as well.
    pub metadata: bool,
    /// Maximum time that closing the volume spends on the remaining regions.
    pub at_close: Duration,
}

//! When freed space is discarded, and how fast.

use std::time::Duration;

/// When freed space is discarded.
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
    /// Returns the mode's word, as the mount option has it.
    pub fn name(self) -> &'static str {
        match self {
            DiscardMode::None => "none",
            DiscardMode::Sync => "sync",
            DiscardMode::Async => "async",
        }
    }
}

/// How fast the background discards. Names and units are those of the kernel's `/sys/fs/btrfs/FSID/discard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscardLimits {
    /// Discards a second; with 0, what waits is spread over six hours.
    pub iops_limit: u32,
    /// KiB a second; 0 is no limit.
    pub kbps_limit: u32,
    /// Bytes of a discard; 0 is no limit.
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

/// How long untrimmed space waits in the hope that it is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscardDelays {
    /// Space of groups that nothing is in any more.
    pub empty: Duration,
    /// Space of other groups, ahead of each pass.
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

/// How a volume begins to discard.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiscardOptions {
    /// None is async where a device takes discards.
    pub mode: Option<DiscardMode>,
    pub limits: DiscardLimits,
    pub delays: DiscardDelays,
    /// Freed space of groups of metadata is discarded as well.
    pub metadata: bool,
    /// For how long closing goes on with what waits.
    pub at_close: Duration,
}

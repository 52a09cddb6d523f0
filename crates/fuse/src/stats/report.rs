//! The figures of a mount at one moment.

use std::sync::Arc;
use std::time::Duration;

use ubtrfs_fs::{CacheStats, StoreStats, WriterStats};

use super::histogram::Durations;
use super::{DiscardReport, Verb};

/// The counts of a verb.
#[derive(Clone, Debug)]
pub struct Operation {
    pub verb: Verb,
    /// Requests that were answered with an errno.
    pub errors: u64,
    /// The durations of all requests, including failed ones.
    pub durations: Durations,
}

/// Counts since the mount was made.
#[derive(Clone, Debug)]
pub struct Report {
    pub uptime: Duration,
    /// All verbs, including unused ones.
    pub operations: Vec<Operation>,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Requests that would have blocked the receiving thread and were repeated on another.
    pub handed_over: u64,
    /// The reason why the volume refuses changes, if a transaction was aborted.
    pub aborted: Option<Arc<String>>,
    /// `None` for a read-only mount.
    pub writer: Option<WriterStats>,
    /// `None` for a volume that is only read.
    pub discard: Option<DiscardReport>,
    /// Tree blocks in memory.
    pub nodes: StoreStats,
    /// Decompressed extents in memory.
    pub extents: CacheStats,
    /// Failed read attempts, and ranges that no mirror could supply.
    pub read_errors: u64,
    pub unrecovered: u64,
    /// Damaged mirrors that reads have rewritten.
    pub repaired_mirrors: u64,
}

impl Report {
    /// Lists the verbs with at least one request.
    pub(super) fn in_use(&self) -> impl Iterator<Item = &Operation> {
        let operations = self.operations.iter();
        operations.filter(|operation| operation.durations.count() > 0)
    }

    pub(super) fn total(&self) -> u64 {
        self.in_use()
            .map(|operation| operation.durations.count())
            .sum()
    }
}

/// Returns the phases of commits by name, in their order.
pub(super) fn phases(writer: &WriterStats) -> [(&'static str, Duration); 6] {
    let phases = &writer.phases;
    [
        ("freeze", phases.freeze),
        ("apply", phases.apply),
        ("converge", phases.converge),
        ("write", phases.write),
        ("superblock", phases.superblock),
        ("publish", phases.publish),
    ]
}

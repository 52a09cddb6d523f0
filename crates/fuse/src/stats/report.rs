//! The figures of a mount at one moment.

use std::sync::Arc;
use std::time::Duration;

use ubtrfs_engine::{CacheStats, StoreStats, WriterStats};

use super::histogram::Durations;
use super::{DiscardReport, Verb};

/// The counts of a verb.
#[derive(Clone, Debug)]
pub struct Operation {
    pub verb: Verb,
    /// Requests that were answered with an errno.
    pub errors: u64,
    /// The durations of all requests, those with errors included.
    pub durations: Durations,
}

/// Counts since the mount was made.
#[derive(Clone, Debug)]
pub struct Report {
    pub uptime: Duration,
    /// All verbs, also those that were never asked for.
    pub operations: Vec<Operation>,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Requests that would have waited on the thread that received them and were made again on another.
    pub handed_over: u64,
    /// Why the volume takes no changes any more, if a transaction was aborted.
    pub aborted: Option<Arc<String>>,
    /// None for a mount that is read-only.
    pub writer: Option<WriterStats>,
    /// None for a volume that is only read.
    pub discard: Option<DiscardReport>,
    /// Tree blocks in memory.
    pub nodes: StoreStats,
    /// Decompressed extents in memory.
    pub extents: CacheStats,
    /// Tries to read that failed, and ranges that no mirror could give.
    pub read_errors: u64,
    pub unrecovered: u64,
}

impl Report {
    /// Lists the operations that were asked for.
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

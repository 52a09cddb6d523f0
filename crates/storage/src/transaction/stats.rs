//! Counts of transactions: commits and their phases, waits, bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::full_commit_reason::FullCommitReason;
use super::waits::{WaitCounter, Waiting, Waits};

/// Counts since the volume was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriterStats {
    /// Transactions committed.
    pub commits: u64,
    /// Operations that waited because the memory for deltas was used up.
    pub delta_waits: Waits,
    /// Writers that wrote back data because the write buffer was full.
    pub buffer_waits: Waits,
    /// Bytes of tree blocks written; each block counts once.
    pub node_bytes: u64,
    /// Logs written instead of commits.
    pub logs: u64,
    /// Flushes of data written in place, without a log or a commit.
    pub data_flushes: u64,
    /// Commits instead of logs, by reason.
    pub full_commits: [u64; FullCommitReason::ALL.len()],
    /// Bytes of log blocks written; each block counts once.
    pub log_bytes: u64,
    /// Bytes of data written; copies do not count.
    pub data_bytes: u64,
    /// Bytes written to devices: data and tree blocks in all copies, superblocks, zeros in holes of images.
    pub device_bytes: u64,
    pub phases: CommitPhases,
}

/// The total duration of each phase over all commits.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitPhases {
    /// Operations cannot join in this phase.
    pub freeze: Duration,
    /// Frozen sets of subvolumes, pending subvolumes and cleaning.
    pub apply: Duration,
    pub converge: Duration,
    /// Writing of blocks, and the flush after it.
    pub write: Duration,
    /// Writing and flushing of superblocks.
    pub superblock: Duration,
    pub publish: Duration,
}

impl CommitPhases {
    /// Returns the difference from `before`.
    #[must_use]
    pub fn since(&self, before: &CommitPhases) -> CommitPhases {
        CommitPhases {
            freeze: self.freeze - before.freeze,
            apply: self.apply - before.apply,
            converge: self.converge - before.converge,
            write: self.write - before.write,
            superblock: self.superblock - before.superblock,
            publish: self.publish - before.publish,
        }
    }
}

/// The counters behind [`WriterStats`].
#[derive(Debug, Default)]
pub struct Counters {
    pub(super) commits: AtomicU64,
    pub(super) delta_waits: WaitCounter,
    buffer_waits: WaitCounter,
    pub(super) node_bytes: AtomicU64,
    pub(super) logs: AtomicU64,
    pub(super) data_flushes: AtomicU64,
    pub(super) full_commits: [AtomicU64; FullCommitReason::ALL.len()],
    pub(super) log_bytes: AtomicU64,
    pub(crate) data_bytes: AtomicU64,
    pub(super) phases: Mutex<CommitPhases>,
}

impl Counters {
    /// Counts a writer's wait for room in the write buffer, until it is dropped.
    pub fn wait_for_buffer(&self) -> Waiting<'_> {
        self.buffer_waits.begin()
    }

    pub fn count_data(&self, bytes: u64) {
        self.data_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn stats(&self, device_bytes: u64) -> WriterStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WriterStats {
            commits: get(&self.commits),
            delta_waits: self.delta_waits.so_far(),
            buffer_waits: self.buffer_waits.so_far(),
            node_bytes: get(&self.node_bytes),
            logs: get(&self.logs),
            data_flushes: get(&self.data_flushes),
            full_commits: self.full_commits.each_ref().map(get),
            log_bytes: get(&self.log_bytes),
            data_bytes: get(&self.data_bytes),
            device_bytes,
            phases: *self.phases.lock(),
        }
    }
}

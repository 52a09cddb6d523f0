//! Counts of transactions: commits and their phases, waits, bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::waits::{WaitCounter, Waiting, Waits};

/// Counts since the volume was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriterStats {
    /// Transactions committed.
    pub commits: u64,
    /// Operations that waited because the memory for deltas was used up.
    pub delta_waits: Waits,
    /// Writers that wrote data back because the memory for it was used up.
    pub buffer_waits: Waits,
    /// Bytes of tree blocks written, one copy of each.
    pub node_bytes: u64,
    /// Logs written in place of commits.
    pub logs: u64,
    /// Bytes of log blocks written, one copy of each.
    pub log_bytes: u64,
    /// Bytes of data written, one copy of each.
    pub data_bytes: u64,
    pub phases: CommitPhases,
}

/// What the phases of all commits took, together.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitPhases {
    /// While operations wait to enter.
    pub freeze: Duration,
    /// The frozen sets of subvolumes, pending subvolumes and cleaning.
    pub apply: Duration,
    pub converge: Duration,
    /// Blocks and the flush after them.
    pub write: Duration,
    /// Superblocks and their flushes.
    pub superblock: Duration,
    pub publish: Duration,
}

impl CommitPhases {
    /// What has come to it since it was `before`.
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
    pub(super) log_bytes: AtomicU64,
    pub(crate) data_bytes: AtomicU64,
    pub(super) phases: Mutex<CommitPhases>,
}

impl Counters {
    /// Counts until it is dropped the wait of a writer for room in the write buffer.
    pub fn wait_for_buffer(&self) -> Waiting<'_> {
        self.buffer_waits.begin()
    }

    pub fn count_data(&self, bytes: u64) {
        self.data_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn stats(&self) -> WriterStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WriterStats {
            commits: get(&self.commits),
            delta_waits: self.delta_waits.so_far(),
            buffer_waits: self.buffer_waits.so_far(),
            node_bytes: get(&self.node_bytes),
            logs: get(&self.logs),
            log_bytes: get(&self.log_bytes),
            data_bytes: get(&self.data_bytes),
            phases: *self.phases.lock(),
        }
    }
}

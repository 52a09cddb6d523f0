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
    /// Writers that wrote back data because the write buffer was full.
    pub buffer_waits: Waits,
    /// Bytes of tree blocks written; each block counts once.
    pub node_bytes: u64,
    /// Logs written instead of commits.
    pub logs: u64,
    /// Flushes of data written in place, without a log or a commit.
    pub data_flushes: u64,
    /// Commits instead of logs, by reason.
    pub unlogged: [u64; Unlogged::ALL.len()],
    /// Bytes of log blocks written; each block counts once.
    pub log_bytes: u64,
    /// Bytes of data written; copies do not count.
    pub data_bytes: u64,
    /// Bytes written to devices: data and tree blocks in all copies, superblocks, zeros in holes of images.
    pub device_bytes: u64,
    pub phases: CommitPhases,
}

/// A reason for a full commit instead of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlogged {
    /// There are new chunks, which may contain neither a log nor its data.
    NewChunk,
    /// The chunks recorded by the last commit have no room for it.
    NoRoom,
    /// The subvolume has been deleted.
    Deleted,
    /// A name was lost in a directory that no longer exists.
    LostDirectory,
    /// A name refers to a subvolume, or did so.
    Subvolume,
    /// So large a number of inodes would be logged that a commit is cheaper.
    TooMany,
    /// An item cannot be replayed, or lacks its checksums.
    Item,
    /// An item is so large that Linux could crash during the replay.
    LargeItem,
    /// The data that it needs was not in memory for long enough.
    Cold,
    /// A read or write failed.
    Failed,
}

impl Unlogged {
    pub const ALL: [Unlogged; 10] = [
        Unlogged::NewChunk,
        Unlogged::NoRoom,
        Unlogged::Deleted,
        Unlogged::LostDirectory,
        Unlogged::Subvolume,
        Unlogged::TooMany,
        Unlogged::Item,
        Unlogged::LargeItem,
        Unlogged::Cold,
        Unlogged::Failed,
    ];

    /// Returns the name of the reason in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Unlogged::NewChunk => "new_chunk",
            Unlogged::NoRoom => "no_room",
            Unlogged::Deleted => "deleted_subvolume",
            Unlogged::LostDirectory => "lost_directory",
            Unlogged::Subvolume => "subvolume",
            Unlogged::TooMany => "too_many",
            Unlogged::Item => "item",
            Unlogged::LargeItem => "large_item",
            Unlogged::Cold => "cold",
            Unlogged::Failed => "failed",
        }
    }
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
    pub(super) unlogged: [AtomicU64; Unlogged::ALL.len()],
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
            unlogged: self.unlogged.each_ref().map(get),
            log_bytes: get(&self.log_bytes),
            data_bytes: get(&self.data_bytes),
            device_bytes,
            phases: *self.phases.lock(),
        }
    }
}

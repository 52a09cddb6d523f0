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
    /// Flushes of data that was written in place, where there was nothing to log or to commit.
    pub data_flushes: u64,
    /// Commits in place of logs, by their reasons.
    pub unlogged: [u64; Unlogged::ALL.len()],
    /// Bytes of log blocks written, one copy of each.
    pub log_bytes: u64,
    /// Bytes of data written, one copy of each.
    pub data_bytes: u64,
    /// Bytes that the devices took: data and tree blocks in all copies, superblocks, zeros in holes of images.
    pub device_bytes: u64,
    pub phases: CommitPhases,
}

/// Why a commit takes the place of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlogged {
    /// Chunks are new, which a log must not lie in, nor its data.
    NewChunk,
    /// There is no room for it in the chunks that the last commit knows.
    NoRoom,
    /// The subvolume has been deleted.
    Deleted,
    /// A name was lost in a directory that is gone.
    LostDirectory,
    /// A name led to a subvolume, or leads to one.
    Subvolume,
    /// So many inodes would be logged that a commit is cheaper.
    TooMany,
    /// There is an item that no replay knows, or that lacks its checksums.
    Item,
    /// An item has grown so far that Linux could crash when it replays the log.
    LargeItem,
    /// The data that it needs was not in memory for long enough.
    Cold,
    /// Something could not be read or written.
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

    /// Returns the reason's word for statistics.
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

/// The times that the phases of all commits took, together.
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
    /// Counts until it is dropped the wait of a writer for room in the write buffer.
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

//! Reasons for a full commit where an fsync would otherwise write a log.

/// A reason for a full commit instead of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullCommitReason {
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

impl FullCommitReason {
    pub const ALL: [FullCommitReason; 10] = [
        FullCommitReason::NewChunk,
        FullCommitReason::NoRoom,
        FullCommitReason::Deleted,
        FullCommitReason::LostDirectory,
        FullCommitReason::Subvolume,
        FullCommitReason::TooMany,
        FullCommitReason::Item,
        FullCommitReason::LargeItem,
        FullCommitReason::Cold,
        FullCommitReason::Failed,
    ];

    /// Returns the name of the reason in statistics.
    pub fn name(self) -> &'static str {
        match self {
            FullCommitReason::NewChunk => "new_chunk",
            FullCommitReason::NoRoom => "no_room",
            FullCommitReason::Deleted => "deleted_subvolume",
            FullCommitReason::LostDirectory => "lost_directory",
            FullCommitReason::Subvolume => "subvolume",
            FullCommitReason::TooMany => "too_many",
            FullCommitReason::Item => "item",
            FullCommitReason::LargeItem => "large_item",
            FullCommitReason::Cold => "cold",
            FullCommitReason::Failed => "failed",
        }
    }
}

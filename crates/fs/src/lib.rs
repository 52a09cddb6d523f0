//! The file system: the meaning of the items in the trees.
//!
//! From low to high: `inode` < `file` (data) < `namespace` < `subvolume` < `log` (fsync) < `volume` (the
//! public API). On top are `snapshot` (reading a whole subvolume), `inspect` (reports) and `rights` (of
//! callers). Reads go through views of the trees. A reader waits for another's IO only if both need the same
//! cold block.
//!
//! Not here: trees by id, space and transactions (`ubtrfs-storage`).

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod error;
mod file;
mod inode;
pub mod inspect;
mod log;
mod namespace;
pub mod rights;
mod snapshot;
mod subvolume;
mod sync;
mod volume;

pub use error::{
    CorruptItem, DeviceSetError, Error, ExtentShape, RefError, RefKey, Result, SpaceError,
};
pub use file::{CacheStats, Durable, EncodedData, Fallocate};
pub use inode::{
    AtimePolicy, Attr, Compress, CompressError, LookupRefs, SetAttr, SetTime, XattrMode,
};
pub use namespace::{DirEntry, LastName, NewContents, NewInode, PathEnd, RenameMode};
pub use snapshot::Snapshot;
pub use subvolume::{ReceivedFrom, SubvolumeInfo};
pub use ubtrfs_format::block_group_flags::BlockGroupType;
pub use ubtrfs_format::item::{DeviceNumber, FileKind, FileTime, PreservedAttributes, Times};
pub use ubtrfs_storage::discard::{
    DISCARD_SIZES, DiscardDelays, DiscardLimits, DiscardMode, DiscardStats,
};
pub use ubtrfs_storage::roots::{BlockGroupRecord, Rescue, SubvolumePlace, Tree};
pub use ubtrfs_storage::{
    CommitPhases, ExtentUser, FileId, FullCommitReason, Lifetime, RelocationOptions,
    RelocationReport, ReplaceCounts, RootsOfBlocks, Waits, WriterStats,
};
pub use ubtrfs_tree::{BuildError, Comparison, Difference, StoreStats, TreeError};
pub use volume::{
    ClearedLog, LEAST_MEMORY_BYTES, MountWord, ONLY_SPACE_CACHE_V2, OPEN_OPTIONS, OpenFile,
    OpenOption, OpenOptions, OptionError, OptionKind, StatFs, Volume, WordEffect, WordGroup,
    WordOutcome, WordRefusal, WordRemount, volume_words, word_number, word_text,
};

//! Errors of transactions and of the layers below.
//!
//! Variants carry the request and the place of the fault on disk.

mod devices;
mod refs;
mod space;

use ubtrfs_device::DeviceError;
use ubtrfs_device::nonblocking::WouldBlock;
use ubtrfs_device::progress::Cancelled;
use ubtrfs_format::ids::{InodeNr, Logical, RootId};
use ubtrfs_format::key::Key;
use ubtrfs_format::maker::Marks;
use ubtrfs_tree::{BuildError, TreeError};

pub use devices::DeviceSetError;
pub use refs::{ExtentShape, RefError, RefKey};
pub use space::SpaceError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    WouldBlock(#[from] WouldBlock),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Ref(#[from] RefError),
    #[error(transparent)]
    Space(#[from] SpaceError),
    #[error(transparent)]
    DeviceSet(#[from] DeviceSetError),
    #[error("the volume is read-only since a transaction failed: {0}")]
    Aborted(String),
    #[error("the volume is closed")]
    Closed,
    /// The process that opened the volume has forked this one.
    #[error("the volume was opened by the parent process, before a fork")]
    Forked,
    #[error("the volume cannot be written: {0}")]
    Unwritable(String),
    #[error("the volume is only read, because it has marks of {0}")]
    Marked(Marks),
    #[error("the volume is a seed, which is only read")]
    Seed,
    #[error("no space left on device")]
    NoSpace,
    #[error(
        "a group of operations needs a commit before its end: it is too large, or contains a sync"
    )]
    CommitInGroup,
    #[error("trees still change after {0} rounds of a commit")]
    NoConvergence(usize),
    #[error("a commit panicked: {0}")]
    CommitPanicked(String),
    #[error("subvolume {0} is read-only")]
    ReadOnlySubvolume(RootId),
    /// The subvolume is being sent or compared, and must not move.
    #[error("subvolume {0} is in use as a snapshot")]
    HeldSubvolume(RootId),
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    #[error("tree {0} does not exist")]
    NoSuchTree(RootId),
    #[error("subvolume {0} does not exist")]
    NoSuchSubvolume(RootId),
    #[error("tree {tree}, item {key}: {what}")]
    Corrupt {
        tree: RootId,
        key: Key,
        what: CorruptItem,
    },
    /// Reclaiming space in the layer above has failed (`SpaceReclaim`).
    #[error(transparent)]
    Reclaim(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Returns whether the operation did nothing because the thread must not wait (`ubtrfs_device::nonblocking`).
    pub fn is_would_block(&self) -> bool {
        match self {
            Error::WouldBlock(_) | Error::Tree(TreeError::WouldBlock(_)) => true,
            Error::Device(source) | Error::Space(SpaceError::Device(source)) => {
                source.is_would_block()
            }
            _ => false,
        }
    }

    /// Returns whether the volume is full.
    pub fn is_no_space(&self) -> bool {
        matches!(
            self,
            Error::NoSpace | Error::Space(SpaceError::NoSpace { .. })
        )
    }
}

/// A fault in an item that the tree checker does not detect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CorruptItem {
    #[error("item cannot be decoded")]
    Undecodable,
    #[error("file extent at {logical} is in no chunk, or reaches beyond it")]
    ExtentUnmapped { logical: Logical },
    #[error("a tree block that is in use has no reference")]
    Unreferenced,
    #[error("the references of an extent contradict the trees")]
    WrongReference,
    #[error("{0} is not a valid inode number")]
    InodeNumber(InodeNr),
    #[error("block group has no FREE_SPACE_INFO")]
    NoFreeSpaceInfo,
    #[error("{found} free ranges, FREE_SPACE_INFO has {said}")]
    FreeSpaceCount { said: u64, found: u64 },
    #[error("free space is not stored in the form of FREE_SPACE_INFO")]
    FreeSpaceForm,
    #[error("free space is not whole sectors of its block group")]
    FreeSpaceRange,
    #[error("free space overlaps the range before it")]
    FreeSpaceOverlap,
    #[error("bitmap of free space is missing, or its size or place is wrong")]
    FreeSpaceBitmap,
    #[error("space that is free would be freed again")]
    AlreadyFree,
    #[error("space that is in use would be allocated again")]
    NotFree,
}

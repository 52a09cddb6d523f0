//! Errors of reading a tree, and of preparing a block for writing.

use rustix::io::Errno;
use ubtrfs_device::ReadFailure;
use ubtrfs_device::nonblocking::WouldBlock;
use ubtrfs_format::check::CorruptBlock;
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::key::Key;

#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error(transparent)]
    WouldBlock(#[from] WouldBlock),
    /// No mirror has a valid copy; `reason` is the defect of the last one.
    #[error("tree {tree}: block at {bytenr} is damaged on every mirror: {reason}")]
    Corrupt {
        tree: RootId,
        bytenr: Logical,
        reason: CorruptBlock,
    },
    #[error("tree {tree}: block at {bytenr} cannot be read: {source}")]
    Read {
        tree: RootId,
        bytenr: Logical,
        #[source]
        source: ReadFailure,
    },
    /// The block is valid but is not the block that its parent points to.
    #[error("tree {tree}: block at {bytenr} is not as its parent expects: {reason}")]
    Unexpected {
        tree: RootId,
        bytenr: Logical,
        reason: CorruptBlock,
    },
    /// The block's last key is inside its next sibling's range.
    #[error("tree {tree}: block at {bytenr} ends with key {last}, not below {bound}")]
    KeyBound {
        tree: RootId,
        bytenr: Logical,
        last: Key,
        bound: Key,
    },
    /// A block built for writing is one that the kernel would reject.
    #[error("tree {tree}: block for {bytenr} must not be written: {reason}")]
    Unwritable {
        tree: RootId,
        bytenr: Logical,
        reason: CorruptBlock,
    },
    /// A child pointer that is not aligned to the sector.
    #[error("tree {tree}: block at {bytenr} is not aligned to the sector")]
    Misaligned { tree: RootId, bytenr: Logical },
    /// The root's level is above the format's limit.
    #[error("tree {tree}: root level {level} is too high")]
    Level { tree: RootId, level: u8 },
}

impl TreeError {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(&self) -> Errno {
        match self {
            TreeError::WouldBlock(_) => Errno::AGAIN,
            TreeError::Read { source, .. } => source.errno(),
            TreeError::Corrupt { .. }
            | TreeError::Unexpected { .. }
            | TreeError::KeyBound { .. }
            | TreeError::Unwritable { .. }
            | TreeError::Misaligned { .. }
            | TreeError::Level { .. } => Errno::UCLEAN,
        }
    }
}

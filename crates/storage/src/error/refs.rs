//! References to extents, and the contradictions between them on a damaged volume.

use std::fmt;

use ubtrfs_format::ids::{InodeNr, Logical, RootId};
use ubtrfs_format::key::Key;

/// A reference to an extent, by its holder.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RefKey {
    /// To a tree block, by the tree that contains it.
    TreeRoot(RootId),
    /// To a tree block, by its parent block, which several trees share.
    TreeParent(Logical),
    /// To data, by a file.
    DataRoot {
        root: RootId,
        ino: InodeNr,
        /// File offset minus the offset within the extent; may wrap below zero.
        offset: u64,
    },
    /// To data, by a leaf that several trees share.
    DataParent(Logical),
}

impl RefKey {
    pub(crate) fn is_data(&self) -> bool {
        matches!(self, RefKey::DataRoot { .. } | RefKey::DataParent(_))
    }
}

impl fmt::Display for RefKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RefKey::TreeRoot(root) => write!(f, "tree {root}"),
            RefKey::TreeParent(parent) => write!(f, "node at {parent}"),
            RefKey::DataRoot { root, ino, offset } => {
                let offset = *offset as i64;
                write!(f, "subvolume {root} inode {ino} offset {offset}")
            }
            RefKey::DataParent(parent) => write!(f, "leaf at {parent}"),
        }
    }
}

/// The kind of an extent, as known from its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentShape {
    Data { len: u64 },
    Block { level: u8 },
}

impl fmt::Display for ExtentShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExtentShape::Data { len } => write!(f, "{len} bytes of data"),
            ExtentShape::Block { level } => write!(f, "a tree block of level {level}"),
        }
    }
}

/// A contradiction between an extent and its references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefError {
    #[error("references disagree about the extent at {bytenr}: {one} and {other}")]
    Shapes {
        bytenr: Logical,
        one: ExtentShape,
        other: ExtentShape,
    },
    #[error("extent at {bytenr} was allocated twice")]
    MadeTwice { bytenr: Logical },
    #[error("{shape} at {bytenr} is new, but there is an item {key}")]
    Exists {
        bytenr: Logical,
        shape: ExtentShape,
        key: Key,
    },
    #[error("{shape} at {bytenr} has no item, but is referenced by {}", Referrer(.reference))]
    NoExtent {
        bytenr: Logical,
        shape: ExtentShape,
        reference: Option<RefKey>,
    },
    #[error("{shape} at {bytenr} does not match its item {key}")]
    Unlike {
        bytenr: Logical,
        shape: ExtentShape,
        key: Key,
    },
    #[error("extent at {bytenr} loses {dropped} references from {reference}, but has {found}")]
    NoReference {
        bytenr: Logical,
        reference: RefKey,
        dropped: u64,
        found: u64,
    },
    #[error("tree block at {bytenr} would get a second reference from {reference}")]
    SecondReference { bytenr: Logical, reference: RefKey },
    #[error("extent at {bytenr} would have more references from {reference} than can be counted")]
    Overflow { bytenr: Logical, reference: RefKey },
    #[error("extent at {bytenr} has a count of {refs} references, which is not their sum")]
    Sum { bytenr: Logical, refs: u64 },
}

struct Referrer<'a>(&'a Option<RefKey>);

impl std::fmt::Display for Referrer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(key) => key.fmt(f),
            None => f.write_str("its children"),
        }
    }
}

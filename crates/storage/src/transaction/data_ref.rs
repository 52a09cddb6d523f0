//! Data extents and the references to them, as edits name them.

use ubtrfs_format::ids::{InodeNr, Logical, RootId};

use crate::error::RefKey;

/// A whole data extent on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskExtent {
    pub start: Logical,
    pub len: u64,
}

/// A reference to a data extent, held by the file extent item of (root, ino) at `offset` + the item's own offset into
/// the extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRef {
    pub root: RootId,
    pub ino: InodeNr,
    /// The item's file offset minus its offset into the extent; may wrap below zero.
    pub offset: u64,
}

impl From<DataRef> for RefKey {
    fn from(data: DataRef) -> RefKey {
        RefKey::DataRoot {
            root: data.root,
            ino: data.ino,
            offset: data.offset,
        }
    }
}

//! The location of a tree's root.

use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::key::Key;

/// A tree to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeRoot {
    pub(crate) tree: RootId,
    pub(crate) bytenr: Logical,
    pub(crate) level: u8,
    pub(crate) generation: Option<Transid>,
    /// Progress of the deletion of a subvolume: nodes at or above this level lack the children before the key.
    pub(crate) dropped: Option<(Key, u8)>,
}

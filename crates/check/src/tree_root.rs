//! The place where a tree begins.

use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::key::Key;

/// A tree to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeRoot {
    pub(crate) tree: RootId,
    pub(crate) bytenr: Logical,
    pub(crate) level: u8,
    pub(crate) generation: Option<Transid>,
    /// How far the deletion of a subvolume has come: nodes from this level up lack what lies before the key.
    pub(crate) dropped: Option<(Key, u8)>,
}

//! Subvolumes and snapshots that the next commit creates.
//!
//! A snapshot contains its source as of the freeze. The commit therefore creates it after the source's changes were
//! applied, and adds its directory entry afterwards: a snapshot does not contain itself.
//!
//! Locks: the operation keeps the directory locked until the commit is done, so the values given here stay valid
//! (`subvolume::create`).

use std::sync::Arc;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::RootItem;
use ubtrfs_format::key::Key;

use crate::roots::Tree;

/// Items to insert or replace.
pub type Puts = Vec<(Key, Vec<u8>)>;

/// A subvolume that the next commit creates.
#[derive(Clone, Debug)]
pub struct PendingSubvolume {
    pub id: RootId,
    pub origin: Origin,
    /// UUID, parent UUID, flags, times, root directory; the commit fills in address and generations.
    pub item: RootItem,
    /// The tree of the parent directory, and the items to put there.
    pub dir_tree: Arc<Tree>,
    pub dir_puts: Puts,
    /// References for the root tree. The commit adds the ROOT_ITEM.
    pub root_puts: Puts,
    /// Items for the UUID tree.
    pub uuid_puts: Puts,
}

#[derive(Clone, Debug)]
pub enum Origin {
    /// The items of a new subvolume, in key order; they fit into one leaf.
    New(Puts),
    /// A snapshot of this tree.
    Snapshot(Arc<Tree>),
}

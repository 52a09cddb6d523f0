//! Subvolumes and snapshots that the next commit creates.
//!
//! A snapshot shows its source as of the freeze. So the commit creates it after the source's changes were
//! applied, and adds its directory entry afterwards: a snapshot does not hold itself.
//!
//! Locks: the operation keeps the directory locked until the commit is done, so that the values given here stay
//! true (`subvolume::create`).

use std::sync::Arc;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::RootItem;
use ubtrfs_format::key::Key;

use crate::roots::Tree;

/// Items as they shall be, whether there before or not.
pub type Puts = Vec<(Key, Vec<u8>)>;

/// A subvolume that the next commit creates.
#[derive(Clone, Debug)]
pub struct PendingSubvolume {
    pub id: RootId,
    pub origin: Origin,
    /// uuid, parent uuid, flags, times, root directory; the commit fills in place and generations.
    pub item: RootItem,
    /// The tree of the directory that will hold it, and what changes there.
    pub dir_tree: Arc<Tree>,
    pub dir_puts: Puts,
    /// Into the root tree: references. The ROOT_ITEM is the commit's.
    pub root_puts: Puts,
    /// Into the UUID tree.
    pub uuid_puts: Puts,
}

#[derive(Clone, Debug)]
pub enum Origin {
    /// The items of the new subvolume, in key order; they fit one leaf.
    New(Puts),
    /// A snapshot of this one.
    Snapshot(Arc<Tree>),
}

//! The fields of root items that later phases need.

use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::item::RootItem;
use ubtrfs_format::key::Key;
use ubtrfs_format::uuid::Uuid;

use crate::tree_root::TreeRoot;

/// A subset of a root item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RootEntry {
    pub(crate) key: Key,
    pub(crate) bytenr: u64,
    pub(crate) level: u8,
    pub(crate) generation: u64,
    pub(crate) refs: u32,
    drop_progress: Key,
    drop_level: u8,
    pub(crate) uuid: Uuid,
    pub(crate) received_uuid: Uuid,
}

impl RootEntry {
    pub(crate) fn new(key: Key, item: &RootItem) -> RootEntry {
        RootEntry {
            key,
            bytenr: item.bytenr.get(),
            level: item.level,
            generation: item.generation.get(),
            refs: item.refs.get(),
            drop_progress: item.drop_progress.get(),
            drop_level: item.drop_level,
            uuid: item.uuid,
            received_uuid: item.received_uuid,
        }
    }

    pub(crate) fn id(&self) -> RootId {
        RootId(self.key.objectid)
    }

    /// Returns whether it is a subvolume whose deletion is pending or in progress.
    pub(crate) fn is_deleted(&self) -> bool {
        self.id().is_subvolume() && self.refs == 0
    }

    pub(crate) fn tree_root(&self) -> TreeRoot {
        // A relocation tree that is being merged also stores its progress there, but is still complete.
        let is_half = self.drop_progress.objectid != 0 && self.refs == 0;
        TreeRoot {
            tree: self.id(),
            bytenr: Logical(self.bytenr),
            level: self.level,
            generation: Some(Transid(self.generation)),
            dropped: is_half.then_some((self.drop_progress, self.drop_level)),
        }
    }
}

//! Data extents of a log: finds those that the last commit lacks.

use std::collections::HashSet;
use std::sync::Arc;

use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::View;

use crate::error::Result;
use crate::inode::Inodes;
use ubtrfs_storage::space::Space;
use ubtrfs_storage::{DiskExtent, TransactionHandle};

/// The data extents of a writable volume during a replay.
pub(super) struct ExtentTable<'v> {
    /// The extent tree as of the last commit.
    extents: View,
    space: Arc<Space>,
    txn: &'v TransactionHandle<'v>,
    made: HashSet<(Logical, u64)>,
}

impl<'v> ExtentTable<'v> {
    pub(super) fn new(inodes: &Inodes, txn: &'v TransactionHandle<'v>) -> Result<ExtentTable<'v>> {
        let tree = inodes.roots.tree(RootId::EXTENT_TREE)?;
        Ok(ExtentTable {
            extents: tree.committed_view(),
            space: Arc::clone(&inodes.transactions()?.space),
            txn,
            made: HashSet::new(),
        })
    }

    /// Allocates an extent unless it exists, so that references can be added. Returns false if its space is
    /// in use.
    pub(super) fn make(&mut self, extent: DiskExtent) -> Result<bool> {
        let DiskExtent { start, len } = extent;
        let key = Key::new(start.0, KeyType::EXTENT_ITEM, len);
        if self.made.contains(&(start, len)) || self.extents.get(&key)?.is_some() {
            return Ok(true);
        }
        // REPLAY-1
        if !self.space.take_data(start, len) {
            return Ok(false);
        }
        self.txn.new_data_extent(extent);
        self.made.insert((start, len));
        Ok(true)
    }
}

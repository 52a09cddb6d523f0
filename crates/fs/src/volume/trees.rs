//! The trees of an open volume, and the layers below them.

use std::sync::Arc;

use ubtrfs_device::Pool;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::superblock::Superblock;
use ubtrfs_storage::roots::{BlockGroupRecord, Roots, Tree};
use ubtrfs_tree::{NodeStore, View};

use super::Volume;
use crate::error::Result;

impl Volume {
    /// Returns whether POSIX ACLs are enabled for the volume.
    pub fn counts_acls(&self) -> bool {
        self.roots.counts_acls()
    }

    pub fn is_writable(&self) -> bool {
        self.roots.is_writable()
    }

    /// Returns the superblock as of the last commit.
    pub fn superblock(&self) -> Arc<Superblock> {
        self.roots.superblock()
    }

    /// Returns the device layer: devices, chunk map, read errors.
    pub fn pool(&self) -> &Pool {
        self.roots.pool()
    }

    /// Returns the trees by id, for work on the whole volume.
    pub fn roots(&self) -> &Arc<Roots> {
        &self.roots
    }

    /// Returns the cache of tree blocks for all trees of the volume.
    pub fn node_store(&self) -> &Arc<NodeStore> {
        self.roots.node_store()
    }

    pub fn chunk_tree(&self) -> View {
        self.roots.chunk_tree()
    }

    pub fn root_tree(&self) -> View {
        self.roots.root_tree()
    }

    /// Returns a tree that the root tree names, or None.
    pub fn find_tree(&self, id: RootId) -> Result<Option<Arc<Tree>>> {
        Ok(self.roots.find_tree(id)?)
    }

    /// Returns a tree that must exist.
    pub fn tree(&self, id: RootId) -> Result<Arc<Tree>> {
        Ok(self.roots.tree(id)?)
    }

    /// Returns the tree of a subvolume that has not been deleted.
    pub fn subvolume_tree(&self, id: RootId) -> Result<Arc<Tree>> {
        Ok(self.roots.subvolume_tree(id)?)
    }

    /// Calls `each` with every block group in address order.
    pub fn for_each_block_group(&self, each: &mut dyn FnMut(BlockGroupRecord)) -> Result<()> {
        Ok(self.roots.for_each_block_group(each)?)
    }
}

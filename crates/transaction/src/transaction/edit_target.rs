//! Where edits of items go: into the running transaction, or into memory alone.

use std::sync::Arc;

use ubtrfs_format::ids::Transid;
use ubtrfs_tree::Edit;

use super::estimate::{DataRef, DiskExtent};
use super::handle::TransactionHandle;
use crate::roots::{ItemChange, NameChanges, Tree};

/// A taker of edits of items, and of the changes of extents that come with them.
pub trait EditTarget {
    /// Returns the transaction that creates the items.
    fn transid(&self) -> Transid;

    /// Makes edits of one tree. `names` tells of all names that are changed.
    fn edit_items(&self, tree: &Arc<Tree>, edits: Vec<Edit>, names: Option<&NameChanges>);

    fn add_data_ref(&self, extent: DiskExtent, data: DataRef);

    fn drop_data_ref(&self, extent: DiskExtent, data: DataRef);
}

impl EditTarget for TransactionHandle<'_> {
    fn transid(&self) -> Transid {
        TransactionHandle::transid(self)
    }

    fn edit_items(&self, tree: &Arc<Tree>, edits: Vec<Edit>, names: Option<&NameChanges>) {
        self.edit_names(tree, edits, names);
    }

    fn add_data_ref(&self, extent: DiskExtent, data: DataRef) {
        TransactionHandle::add_data_ref(self, extent, data);
    }

    fn drop_data_ref(&self, extent: DiskExtent, data: DataRef) {
        TransactionHandle::drop_data_ref(self, extent, data);
    }
}

/// Edits of a volume that is only read. References of extents are nothing that its readers ask for.
#[derive(Debug)]
pub struct EditsInMemory {
    pub transid: Transid,
}

impl EditTarget for EditsInMemory {
    fn transid(&self) -> Transid {
        self.transid
    }

    fn edit_items(&self, tree: &Arc<Tree>, edits: Vec<Edit>, names: Option<&NameChanges>) {
        tree.edit(edits, names, ItemChange::Any, self.transid);
    }

    fn add_data_ref(&self, _: DiskExtent, _: DataRef) {}

    fn drop_data_ref(&self, _: DiskExtent, _: DataRef) {}
}

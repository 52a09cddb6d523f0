//! The destination of item edits: the running transaction, or memory only.

use std::sync::Arc;

use ubtrfs_format::ids::Transid;
use ubtrfs_tree::Edit;

use super::data_ref::{DataRef, DiskExtent};
use super::handle::TransactionHandle;
use crate::roots::{ItemChange, NameChanges, Tree};

/// A destination of item edits, and of the reference changes that belong to them.
pub trait EditTarget {
    /// Returns the transaction that creates the items.
    fn transid(&self) -> Transid;

    /// Applies edits to one tree. `names` must list all names that change.
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

/// Edits of a read-only volume, in memory. Reference changes are ignored, because no reader needs them.
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

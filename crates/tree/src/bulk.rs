//! Bulk load: sorted items to a finished tree, full leaves first, then level upon level of nodes.
//!
//! A builder accepts items in key order and emits each block as soon as it is full. So it holds one open block per
//! level for a tree of any size. The sink chooses the addresses and stores the blocks. Equal items, format and
//! addresses give equal bytes.
//!
//! Invariants
//! - BULK-1: keys ascend strictly; an item out of order is an error and is never written.
//! - BULK-2: every block but the last of its level is as full as its entries allow.
//! - BULK-3: a tree has a root: without items, an empty leaf.
//! - BULK-4: the number and the levels of the blocks depend only on the sizes of the items.
//!
//! Not here: the meaning of the items, and free addresses; both are up to the caller.

use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::key::Key;
use ubtrfs_format::node::{ITEM_HEAD_SIZE, KeyPtr, leaf_data_size, max_key_ptrs};

use crate::build::{BlockFormat, BlockSink, BuildError, OpenLeaf};

#[cfg(test)]
mod tests;

/// Address and level of a tree's root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeRoot {
    pub logical: Logical,
    pub level: u8,
}

/// Builder of one tree.
#[derive(Debug)]
pub struct BulkTree<'a, S> {
    format: &'a BlockFormat,
    owner: RootId,
    sink: &'a mut S,
    leaf: OpenLeaf,
    /// The open node of each level, starting with level 1.
    nodes: Vec<Vec<KeyPtr>>,
    last_key: Option<Key>,
}

impl<'a, S: BlockSink> BulkTree<'a, S> {
    pub fn new(format: &'a BlockFormat, owner: RootId, sink: &'a mut S) -> Self {
        BulkTree {
            format,
            owner,
            sink,
            leaf: OpenLeaf::new(format.nodesize),
            nodes: Vec::new(),
            last_key: None,
        }
    }

    /// Adds an item. Its key must be above all keys so far.
    pub fn push(&mut self, key: Key, data: &[u8]) -> Result<(), S::Error> {
        // BULK-1
        if let Some(last) = self.last_key.filter(|last| *last >= key) {
            return Err(BuildError::KeyOrder { last, key }.into());
        }
        let needed = data.len().saturating_add(ITEM_HEAD_SIZE);
        let room_bytes = leaf_data_size(self.format.nodesize);
        if needed > room_bytes {
            let size_bytes = data.len();
            return Err(BuildError::ItemTooLarge {
                key,
                size_bytes,
                room_bytes,
            }
            .into());
        }
        // BULK-2, BULK-4: a leaf ends exactly where the next item does not fit.
        if needed > self.leaf.free_bytes() {
            let ptr = self.close_leaf()?;
            self.add_ptr(0, ptr)?;
        }
        self.leaf.append(key, data);
        self.last_key = Some(key);
        Ok(())
    }

    /// Emits the open blocks and returns the root.
    pub fn finish(mut self) -> Result<TreeRoot, S::Error> {
        // BULK-3: the last leaf may be empty if it is the only one.
        let mut ptr = self.close_leaf()?;
        let mut level = 0;
        // Adding a pointer to a full node opens the next level, so the end is looked up each time.
        while level < self.nodes.len() {
            self.add_ptr(level, ptr)?;
            ptr = self.close_node(level)?;
            level += 1;
        }
        Ok(TreeRoot {
            logical: Logical(ptr.blockptr.get()),
            level: level as u8,
        })
    }

    /// Adds a child to the open node at `nodes[index]`, whose level is `index + 1`.
    fn add_ptr(&mut self, index: usize, ptr: KeyPtr) -> Result<(), S::Error> {
        if index == self.nodes.len() {
            self.nodes.push(Vec::new());
        }
        // BULK-2, BULK-4
        if self.nodes[index].len() == max_key_ptrs(self.format.nodesize) {
            let full = self.close_node(index)?;
            self.add_ptr(index + 1, full)?;
        }
        self.nodes[index].push(ptr);
        Ok(())
    }

    fn close_leaf(&mut self) -> Result<KeyPtr, S::Error> {
        let leaf = std::mem::replace(&mut self.leaf, OpenLeaf::new(self.format.nodesize));
        self.format.emit_leaf(self.owner, leaf, self.sink)
    }

    fn close_node(&mut self, index: usize) -> Result<KeyPtr, S::Error> {
        let ptrs = std::mem::take(&mut self.nodes[index]);
        self.format
            .emit_node(self.owner, index as u8 + 1, &ptrs, self.sink)
    }
}

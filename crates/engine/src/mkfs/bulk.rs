//! Sorted items to a finished tree: full leaves first, then level upon level of nodes.
//!
//! A builder takes items in key order and hands each block over as soon as it is full, so that a tree
//! of any size costs one open block a level. Where a block lies, and what becomes of it, is the sink's
//! business. The same items, format and places give the same bytes.
//!
//! Invariants
//! - BULK-1: keys ascend strictly; an item out of order is refused, never written.
//! - BULK-2: every block but the last of its level is as full as its entries allow.
//! - BULK-3: a tree has a root: without items, an empty leaf.
//! - BULK-4: the number and the levels of the blocks follow from the sizes of the items alone.
//!
//! Not here: what the items say (`trees`), which addresses are free (`place`).

use ubtrfs_format::csum::CsumType;
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::key::Key;
use ubtrfs_format::node::{
    HEADER_SIZE, Header, ITEM_HEAD_SIZE, ItemHead, KeyPtr, header_flags, leaf_data_size,
    max_key_ptrs,
};
use ubtrfs_format::uuid::Uuid;
use zerocopy::IntoBytes;

#[cfg(test)]
mod tests;

/// What the blocks of one volume and transaction have in common.
#[derive(Clone, Debug)]
pub struct BlockFormat {
    pub nodesize: usize,
    pub csum_type: CsumType,
    /// What headers carry as fsid; the metadata_uuid where the volume has one.
    pub fsid: Uuid,
    pub chunk_tree_uuid: Uuid,
    pub generation: Transid,
}

/// A finished block, checksum included.
#[derive(Clone, Debug)]
pub struct TreeBlock {
    pub logical: Logical,
    pub owner: RootId,
    pub level: u8,
    /// The lowest key; [`Key::MIN`] in an empty leaf.
    pub first_key: Key,
    pub bytes: Vec<u8>,
}

/// Where a tree begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeRoot {
    pub logical: Logical,
    pub level: u8,
}

/// Gives blocks their places and takes them.
pub trait BlockSink {
    type Error: From<BulkError>;

    /// The address for a block of `level` that is about to be emitted.
    fn place(&mut self, level: u8) -> Result<Logical, Self::Error>;

    /// Children come before their parents.
    fn emit(&mut self, block: TreeBlock) -> Result<(), Self::Error>;
}

/// An item that has no place in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BulkError {
    #[error("key {key} is not above {last}")]
    KeyOrder { last: Key, key: Key },
    #[error("item {key} of {size_bytes} bytes does not fit a leaf of {room_bytes}")]
    ItemTooLarge {
        key: Key,
        size_bytes: usize,
        room_bytes: usize,
    },
}

/// Builds one tree.
#[derive(Debug)]
pub struct BulkTree<'a, S> {
    format: &'a BlockFormat,
    owner: RootId,
    sink: &'a mut S,
    leaf: OpenLeaf,
    /// The open node of each level from 1 up.
    nodes: Vec<Vec<KeyPtr>>,
    last_key: Option<Key>,
}

#[derive(Debug)]
struct OpenLeaf {
    /// A whole block, its header still blank.
    bytes: Vec<u8>,
    first_key: Key,
    items: usize,
    /// Start of the lowest item data within the block.
    data_start: usize,
}

impl OpenLeaf {
    fn new(nodesize: usize) -> OpenLeaf {
        OpenLeaf {
            bytes: vec![0; nodesize],
            first_key: Key::MIN,
            items: 0,
            data_start: nodesize,
        }
    }

    fn free_bytes(&self) -> usize {
        self.data_start - HEADER_SIZE - self.items * ITEM_HEAD_SIZE
    }

    fn append(&mut self, key: Key, data: &[u8]) {
        if self.items == 0 {
            self.first_key = key;
        }
        self.data_start -= data.len();
        self.bytes[self.data_start..][..data.len()].copy_from_slice(data);
        let head = ItemHead {
            key: key.into(),
            offset: ((self.data_start - HEADER_SIZE) as u32).into(),
            size: (data.len() as u32).into(),
        };
        let at = HEADER_SIZE + self.items * ITEM_HEAD_SIZE;
        self.bytes[at..][..ITEM_HEAD_SIZE].copy_from_slice(head.as_bytes());
        self.items += 1;
    }
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

    /// Adds an item above all before it.
    pub fn push(&mut self, key: Key, data: &[u8]) -> Result<(), S::Error> {
        if let Some(last) = self.last_key.filter(|last| *last >= key) {
            return Err(BulkError::KeyOrder { last, key }.into());
        }
        let needed = data.len().saturating_add(ITEM_HEAD_SIZE);
        let room_bytes = leaf_data_size(self.format.nodesize);
        if needed > room_bytes {
            let size_bytes = data.len();
            return Err(BulkError::ItemTooLarge {
                key,
                size_bytes,
                room_bytes,
            }
            .into());
        }
        if needed > self.leaf.free_bytes() {
            let ptr = self.close_leaf()?;
            self.add_ptr(0, ptr)?;
        }
        self.leaf.append(key, data);
        self.last_key = Some(key);
        Ok(())
    }

    /// Emits what is still open and returns the root.
    pub fn finish(mut self) -> Result<TreeRoot, S::Error> {
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
        if self.nodes[index].len() == max_key_ptrs(self.format.nodesize) {
            let full = self.close_node(index)?;
            self.add_ptr(index + 1, full)?;
        }
        self.nodes[index].push(ptr);
        Ok(())
    }

    fn close_leaf(&mut self) -> Result<KeyPtr, S::Error> {
        let leaf = std::mem::replace(&mut self.leaf, OpenLeaf::new(self.format.nodesize));
        self.emit(0, leaf.first_key, leaf.items, leaf.bytes)
    }

    fn close_node(&mut self, index: usize) -> Result<KeyPtr, S::Error> {
        let ptrs = std::mem::take(&mut self.nodes[index]);
        let first_key = ptrs.first().map_or(Key::MIN, |ptr| ptr.key.get());
        let mut bytes = vec![0; self.format.nodesize];
        let packed = ptrs.as_bytes();
        bytes[HEADER_SIZE..][..packed.len()].copy_from_slice(packed);
        self.emit(index as u8 + 1, first_key, ptrs.len(), bytes)
    }

    /// Completes a block and hands it over; returns what its parent says about it.
    fn emit(
        &mut self,
        level: u8,
        first_key: Key,
        entries: usize,
        mut bytes: Vec<u8>,
    ) -> Result<KeyPtr, S::Error> {
        let logical = self.sink.place(level)?;
        let format = self.format;
        let header = Header {
            csum: [0; 32],
            fsid: format.fsid,
            bytenr: logical.0.into(),
            flags: (header_flags::WRITTEN
                | header_flags::MIXED_BACKREF_REV << header_flags::BACKREF_REV_SHIFT)
                .into(),
            chunk_tree_uuid: format.chunk_tree_uuid,
            generation: format.generation.0.into(),
            owner: self.owner.0.into(),
            nritems: (entries as u32).into(),
            level,
        };
        bytes[..HEADER_SIZE].copy_from_slice(header.as_bytes());
        format.csum_type.seal_block(&mut bytes);
        self.sink.emit(TreeBlock {
            logical,
            owner: self.owner,
            level,
            first_key,
            bytes,
        })?;
        Ok(KeyPtr {
            key: first_key.into(),
            blockptr: logical.0.into(),
            generation: format.generation.0.into(),
        })
    }
}

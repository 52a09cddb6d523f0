//! Assembly of tree blocks from items and pointers.
//!
//! Not here: which entries belong in one block (`bulk`, `apply`), and the address of a block (`BlockSink`).

use std::ops::Range;

use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::key::Key;
use ubtrfs_format::node::{
    HEADER_SIZE, Header, ITEM_HEAD_SIZE, ItemHead, KeyPtr, Node, header_flags,
};
use ubtrfs_format::uuid::Uuid;
use zerocopy::IntoBytes;

/// The properties that the blocks of one volume and transaction share.
#[derive(Clone, Debug)]
pub struct BlockFormat {
    pub nodesize: usize,
    /// The fsid in block headers: the metadata_uuid where the volume has one.
    pub fsid: Uuid,
    pub chunk_tree_uuid: Uuid,
    pub generation: Transid,
}

/// A block that is complete except for its checksum.
#[derive(Clone, Debug)]
pub struct TreeBlock {
    pub logical: Logical,
    pub owner: RootId,
    pub level: u8,
    /// The lowest key; [`Key::MIN`] in an empty leaf.
    pub first_key: Key,
    pub bytes: Vec<u8>,
}

/// Chooses addresses for new blocks and receives them.
pub trait BlockSink {
    type Error: From<BuildError>;

    /// Chooses the address for a block of `level` that begins with `first_key` and is about to be emitted.
    fn place(&mut self, level: u8, first_key: &Key) -> Result<Logical, Self::Error>;

    /// Receives a finished block. Children are emitted before their parents. The code that writes the block computes
    /// its checksum.
    fn emit(&mut self, block: TreeBlock) -> Result<(), Self::Error>;
}

/// An item that cannot be stored in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    #[error("key {key} is not above {last}")]
    KeyOrder { last: Key, key: Key },
    #[error("item {key} of {size_bytes} bytes does not fit a leaf of {room_bytes}")]
    ItemTooLarge {
        key: Key,
        size_bytes: usize,
        room_bytes: usize,
    },
}

/// A leaf that is being filled in key order; its header is still blank.
#[derive(Debug)]
pub(crate) struct OpenLeaf {
    bytes: Vec<u8>,
    first_key: Key,
    items: usize,
    /// Offset of the lowest item data within the block.
    data_start: usize,
}

impl OpenLeaf {
    pub(crate) fn new(nodesize: usize) -> OpenLeaf {
        OpenLeaf {
            bytes: vec![0; nodesize],
            first_key: Key::MIN,
            items: 0,
            data_start: nodesize,
        }
    }

    pub(crate) fn free_bytes(&self) -> usize {
        self.data_start - HEADER_SIZE - self.items * ITEM_HEAD_SIZE
    }

    /// Appends an item. It must fit, and its key must be above all keys in the leaf.
    pub(crate) fn append(&mut self, key: Key, data: &[u8]) {
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

    /// Appends adjacent items of another leaf. They must fit, and their keys must be above all keys in this leaf.
    pub(crate) fn append_run(&mut self, node: Node<'_>, slots: Range<usize>) {
        let heads = &node.heads()[slots.clone()];
        let Some(first) = heads.first() else { return };
        if self.items == 0 {
            self.first_key = first.key.get();
        }
        let data = node.data_of(slots);
        let old_end = (first.offset.get() + first.size.get()) as usize + HEADER_SIZE;
        let moved = (self.data_start as u32).wrapping_sub(old_end as u32);
        self.data_start -= data.len();
        self.bytes[self.data_start..][..data.len()].copy_from_slice(data);
        let at = HEADER_SIZE + self.items * ITEM_HEAD_SIZE;
        let room = self.bytes[at..].chunks_exact_mut(ITEM_HEAD_SIZE);
        for (room, head) in room.zip(heads) {
            let offset = head.offset.get().wrapping_add(moved).into();
            room.copy_from_slice(ItemHead { offset, ..*head }.as_bytes());
        }
        self.items += heads.len();
    }
}

impl BlockFormat {
    /// Completes and emits a leaf, and returns the pointer for its parent.
    pub(crate) fn emit_leaf<S: BlockSink>(
        &self,
        owner: RootId,
        leaf: OpenLeaf,
        sink: &mut S,
    ) -> Result<KeyPtr, S::Error> {
        self.emit(owner, 0, leaf.first_key, leaf.items, leaf.bytes, sink)
    }

    /// Builds and emits an interior node of `ptrs`, which must fit.
    pub(crate) fn emit_node<S: BlockSink>(
        &self,
        owner: RootId,
        level: u8,
        ptrs: &[KeyPtr],
        sink: &mut S,
    ) -> Result<KeyPtr, S::Error> {
        let first_key = ptrs.first().map_or(Key::MIN, |ptr| ptr.key.get());
        let mut bytes = vec![0; self.nodesize];
        let packed = ptrs.as_bytes();
        bytes[HEADER_SIZE..][..packed.len()].copy_from_slice(packed);
        self.emit(owner, level, first_key, ptrs.len(), bytes, sink)
    }

    fn emit<S: BlockSink>(
        &self,
        owner: RootId,
        level: u8,
        first_key: Key,
        entries: usize,
        mut bytes: Vec<u8>,
        sink: &mut S,
    ) -> Result<KeyPtr, S::Error> {
        let logical = sink.place(level, &first_key)?;
        let header = Header {
            csum: [0; 32],
            fsid: self.fsid,
            bytenr: logical.0.into(),
            flags: (header_flags::WRITTEN
                | header_flags::MIXED_BACKREF_REV << header_flags::BACKREF_REV_SHIFT)
                .into(),
            chunk_tree_uuid: self.chunk_tree_uuid,
            generation: self.generation.0.into(),
            owner: owner.0.into(),
            nritems: (entries as u32).into(),
            level,
        };
        bytes[..HEADER_SIZE].copy_from_slice(header.as_bytes());
        sink.emit(TreeBlock {
            logical,
            owner,
            level,
            first_key,
            bytes,
        })?;
        Ok(KeyPtr {
            key: first_key.into(),
            blockptr: logical.0.into(),
            generation: self.generation.0.into(),
        })
    }
}

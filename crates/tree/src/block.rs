//! A verified tree block that many readers share, and an item that keeps its block in memory.

use std::ops::{Deref, Range};
use std::sync::Arc;

use ubtrfs_format::ids::Transid;
use ubtrfs_format::key::Key;
use ubtrfs_format::node::Node;

/// The bytes of a tree block that passed the checker. Cheap to clone.
///
/// The bytes are allocated separately from the reference count: an allocation of a power of two wastes nothing. A few
/// bytes more would waste a quarter of the whole cache.
#[derive(Clone)]
pub struct Block {
    bytes: Arc<Box<[u8]>>,
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Block").field(&self.node().bytenr()).finish()
    }
}

impl Block {
    /// Wraps `bytes`, which must have passed `ubtrfs_format::check`.
    pub(crate) fn from_verified(bytes: Box<[u8]>) -> Block {
        debug_assert!(Node::new(&bytes).is_some());
        let bytes = Arc::new(bytes);
        Block { bytes }
    }

    pub fn node(&self) -> Node<'_> {
        Node::new(&self.bytes).expect("verified blocks are longer than a header")
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns whether both share the same bytes in memory.
    pub(crate) fn is_same(&self, other: &Block) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes)
    }

    /// Returns the item in `slot` together with a reference to this block.
    pub fn item(&self, slot: usize) -> Option<Item> {
        let (key, bytes) = self.node().item(slot)?;
        let start = bytes.as_ptr() as usize - self.bytes.as_ptr() as usize;
        let range = start..start + bytes.len();
        Some(Item {
            key,
            value: Value::Slot(self.clone(), range),
        })
    }
}

/// An item's key and bytes; dereferences to the bytes.
#[derive(Clone, Debug)]
pub struct Item {
    key: Key,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    /// Committed: bytes of a block.
    Slot(Block, Range<usize>),
    /// Not in any block yet.
    Delta(Arc<[u8]>),
}

impl Item {
    pub(crate) fn from_delta(key: Key, value: Arc<[u8]>) -> Item {
        Item {
            key,
            value: Value::Delta(value),
        }
    }

    pub fn key(&self) -> Key {
        self.key
    }

    /// Returns the generation of the item's block, or None if the item is in no block yet.
    pub fn generation(&self) -> Option<Transid> {
        match &self.value {
            Value::Slot(block, _) => Some(Transid(block.node().header().generation.get())),
            Value::Delta(_) => None,
        }
    }
}

impl Deref for Item {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.value {
            Value::Slot(block, range) => &block.bytes[range.clone()],
            Value::Delta(bytes) => bytes,
        }
    }
}

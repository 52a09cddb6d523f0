//! Tree blocks: header, item heads, child pointers, and key search.
//!
//! A [`Node`] is a view of bytes. The accessors are total: an index or a range outside of the block returns None, so
//! that unverified bytes cannot cause a panic. In verified blocks (`check`) this does not occur.

use std::ops::Range;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::{Logical, RootId, Transid};
use crate::key::{DiskKey, Key, KeyType};
use crate::uuid::Uuid;

/// Flags of a header; its top byte is the backref revision.
pub mod header_flags {
    pub const WRITTEN: u64 = 1 << 0;
    pub const RELOC: u64 = 1 << 1;
    pub const BACKREF_REV_SHIFT: u32 = 56;
    pub const MIXED_BACKREF_REV: u64 = 1;
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    pub csum: [u8; 32],
    pub fsid: Uuid,
    pub bytenr: U64,
    pub flags: U64,
    pub chunk_tree_uuid: Uuid,
    pub generation: U64,
    pub owner: U64,
    pub nritems: U32,
    pub level: u8,
}
const _: () = assert!(size_of::<Header>() == HEADER_SIZE);
pub const HEADER_SIZE: usize = 101;

/// Key and location of an item in a leaf; `offset` is relative to the end of the header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ItemHead {
    pub key: DiskKey,
    pub offset: U32,
    pub size: U32,
}
const _: () = assert!(size_of::<ItemHead>() == ITEM_HEAD_SIZE);
pub const ITEM_HEAD_SIZE: usize = 25;

/// A child pointer in an interior node.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct KeyPtr {
    pub key: DiskKey,
    /// A multiple of the sectorsize, never 0.
    pub blockptr: U64,
    /// Equals the generation in the child's header.
    pub generation: U64,
}
const _: () = assert!(size_of::<KeyPtr>() == 33);

/// Returns the number of bytes in a leaf for items and their heads.
pub const fn leaf_data_size(nodesize: usize) -> usize {
    nodesize - HEADER_SIZE
}

/// Returns whether Linux may crash when a log replay extends a committed item from `old_len` to `new_len` bytes.
///
/// The replay of Linux 6.18 searches for space for the whole new item. If both items together exceed a leaf, this
/// fails with EOVERFLOW. The replay misinterprets the error as an existing item with enough space, and extends it
/// until `BUG()`.
pub fn replay_outgrows_leaf(
    item_type: KeyType,
    old_len: usize,
    new_len: usize,
    nodesize: usize,
) -> bool {
    let is_extended = matches!(
        item_type,
        KeyType::XATTR_ITEM | KeyType::INODE_REF | KeyType::INODE_EXTREF
    );
    is_extended
        && new_len > old_len
        && old_len + new_len + ITEM_HEAD_SIZE > leaf_data_size(nodesize)
}

/// Returns the maximum number of child pointers in an interior node.
pub const fn max_key_ptrs(nodesize: usize) -> usize {
    leaf_data_size(nodesize) / size_of::<KeyPtr>()
}

/// A view of one tree block.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    block: &'a [u8],
}

impl<'a> Node<'a> {
    /// Views `block` as a node. Returns None if the block is too short for a header.
    pub fn new(block: &'a [u8]) -> Option<Node<'a>> {
        (block.len() > HEADER_SIZE).then_some(Node { block })
    }

    pub fn block(self) -> &'a [u8] {
        self.block
    }

    pub fn header(self) -> &'a Header {
        Header::ref_from_bytes(&self.block[..HEADER_SIZE]).expect("length checked in new")
    }

    pub fn level(self) -> u8 {
        self.header().level
    }

    pub fn is_leaf(self) -> bool {
        self.level() == 0
    }

    pub fn owner(self) -> RootId {
        RootId(self.header().owner.get())
    }

    pub fn generation(self) -> Transid {
        Transid(self.header().generation.get())
    }

    pub fn bytenr(self) -> Logical {
        Logical(self.header().bytenr.get())
    }

    /// Returns the number of slots in use, limited to the maximum for this block size.
    pub fn len(self) -> usize {
        self.heads_or_ptrs_len()
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    fn heads_or_ptrs_len(self) -> usize {
        let entry = if self.is_leaf() {
            ITEM_HEAD_SIZE
        } else {
            size_of::<KeyPtr>()
        };
        let room = (self.block.len() - HEADER_SIZE) / entry;
        (self.header().nritems.get() as usize).min(room)
    }

    /// Returns the item heads. An interior node has none.
    pub fn heads(self) -> &'a [ItemHead] {
        if !self.is_leaf() {
            return &[];
        }
        let bytes = &self.block[HEADER_SIZE..][..self.len() * ITEM_HEAD_SIZE];
        <[ItemHead]>::ref_from_bytes(bytes).expect("a multiple of the head's size")
    }

    /// Returns the child pointers. A leaf has none.
    pub fn ptrs(self) -> &'a [KeyPtr] {
        if self.is_leaf() {
            return &[];
        }
        let bytes = &self.block[HEADER_SIZE..][..self.len() * size_of::<KeyPtr>()];
        <[KeyPtr]>::ref_from_bytes(bytes).expect("a multiple of the pointer's size")
    }

    /// Returns the key in `slot`, of a leaf or an interior node.
    pub fn key(self, slot: usize) -> Option<Key> {
        if self.is_leaf() {
            self.heads().get(slot).map(|head| head.key.get())
        } else {
            self.ptrs().get(slot).map(|ptr| ptr.key.get())
        }
    }

    /// Returns the key and bytes of the item in `slot` of a leaf.
    pub fn item(self, slot: usize) -> Option<(Key, &'a [u8])> {
        let head = self.heads().get(slot)?;
        let start = HEADER_SIZE.checked_add(head.offset.get() as usize)?;
        let end = start.checked_add(head.size.get() as usize)?;
        Some((head.key.get(), self.block.get(start..end)?))
    }

    /// Returns the bytes of adjacent items in a verified leaf, the last item's first.
    pub fn data_of(self, slots: Range<usize>) -> &'a [u8] {
        let heads = self.heads().get(slots).unwrap_or_default();
        let (Some(first), Some(last)) = (heads.first(), heads.last()) else {
            return &[];
        };
        let at = |offset: u32| HEADER_SIZE.saturating_add(offset as usize);
        let end = at(first.offset.get()).saturating_add(first.size.get() as usize);
        let data = self.block.get(at(last.offset.get())..end);
        data.unwrap_or_default()
    }

    /// Iterates over all items of a leaf whose bytes are within the block.
    pub fn items(self) -> impl Iterator<Item = (Key, &'a [u8])> {
        (0..self.heads().len()).filter_map(move |slot| self.item(slot))
    }

    /// Returns the slot of `key` (Ok) or its insertion slot (Err), by binary search.
    pub fn search(self, key: &Key) -> Result<usize, usize> {
        if self.is_leaf() {
            self.heads()
                .binary_search_by(|head| head.key.get().cmp(key))
        } else {
            self.ptrs().binary_search_by(|ptr| ptr.key.get().cmp(key))
        }
    }

    /// Returns the slot of the child that may contain `key`: the last one with a key not above it, or else the first.
    pub fn child_slot(self, key: &Key) -> usize {
        match self.search(key) {
            Ok(slot) => slot,
            Err(slot) => slot.saturating_sub(1),
        }
    }
}

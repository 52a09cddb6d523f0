//! Allocated extents and the references to them.
//!
//! An EXTENT_ITEM or METADATA_ITEM consists of a head and inline references, ordered by type, then by descending
//! offset or hash. A non-skinny tree block has its [`TreeBlockInfo`] in between. References that do not fit are
//! separate (keyed) items.

use bitflags::bitflags;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::key::{DiskKey, KeyType};
use crate::name_hash::extent_data_ref_hash;

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ExtentHead {
    pub refs: U64,
    pub generation: U64,
    pub flags: U64,
}
const _: () = assert!(size_of::<ExtentHead>() == 24);

bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct ExtentFlags: u64 {
        const DATA = 1 << 0;
        const TREE_BLOCK = 1 << 1;
        /// The block itself is the parent in the references to its children, instead of a root.
        const FULL_BACKREF = 1 << 8;
        const _ = !0;
    }
}

impl ExtentHead {
    pub fn flags(&self) -> ExtentFlags {
        ExtentFlags::from_bits_retain(self.flags.get())
    }
}

/// Located between head and references of a tree block without SKINNY_METADATA.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct TreeBlockInfo {
    pub key: DiskKey,
    pub level: u8,
}
const _: () = assert!(size_of::<TreeBlockInfo>() == 18);

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ExtentDataRef {
    pub root: U64,
    pub objectid: U64,
    /// File offset minus the offset within the extent; may wrap below zero.
    pub offset: U64,
    pub count: U32,
}
const _: () = assert!(size_of::<ExtentDataRef>() == 28);

impl ExtentDataRef {
    /// Returns the hash that orders inline references and is the offset in the key of keyed ones.
    pub fn hash(&self) -> u64 {
        extent_data_ref_hash(self.root.get(), self.objectid.get(), self.offset.get())
    }
}

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SharedDataRef {
    pub count: U32,
}
const _: () = assert!(size_of::<SharedDataRef>() == 4);

/// The subvolume that first allocated the extent; used by simple quotas.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ExtentOwnerRef {
    pub root_id: U64,
}
const _: () = assert!(size_of::<ExtentOwnerRef>() == 8);

/// An inline reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InlineRef {
    TreeBlock { root: u64 },
    SharedBlock { parent: u64 },
    ExtentData(ExtentDataRef),
    SharedData { parent: u64, count: u32 },
    Owner { root: u64 },
}

impl InlineRef {
    pub fn key_type(&self) -> KeyType {
        match self {
            InlineRef::TreeBlock { .. } => KeyType::TREE_BLOCK_REF,
            InlineRef::SharedBlock { .. } => KeyType::SHARED_BLOCK_REF,
            InlineRef::ExtentData(_) => KeyType::EXTENT_DATA_REF,
            InlineRef::SharedData { .. } => KeyType::SHARED_DATA_REF,
            InlineRef::Owner { .. } => KeyType::EXTENT_OWNER_REF,
        }
    }

    /// Returns the number that orders references of one type. It is also the offset in the key of a keyed reference.
    pub fn sequence(&self) -> u64 {
        match self {
            InlineRef::TreeBlock { root } | InlineRef::Owner { root } => *root,
            InlineRef::SharedBlock { parent } | InlineRef::SharedData { parent, .. } => *parent,
            InlineRef::ExtentData(data) => data.hash(),
        }
    }

    /// Returns the encoded size in an item.
    pub fn encoded_len(&self) -> usize {
        let fields = match self {
            InlineRef::TreeBlock { .. }
            | InlineRef::SharedBlock { .. }
            | InlineRef::Owner { .. } => size_of::<U64>(),
            InlineRef::ExtentData(_) => size_of::<ExtentDataRef>(),
            InlineRef::SharedData { .. } => size_of::<U64>() + size_of::<SharedDataRef>(),
        };
        size_of::<u8>() + fields
    }

    /// Appends the encoded reference to an item.
    pub fn encode(&self, item: &mut Vec<u8>) {
        item.push(self.key_type().0);
        match self {
            InlineRef::TreeBlock { root: number }
            | InlineRef::SharedBlock { parent: number }
            | InlineRef::Owner { root: number } => {
                item.extend_from_slice(&number.to_le_bytes());
            }
            InlineRef::ExtentData(data) => item.extend_from_slice(data.as_bytes()),
            InlineRef::SharedData { parent, count } => {
                item.extend_from_slice(&parent.to_le_bytes());
                item.extend_from_slice(&count.to_le_bytes());
            }
        }
    }

    /// Returns the number of references that it represents.
    pub fn count(&self) -> u64 {
        match self {
            InlineRef::TreeBlock { .. } | InlineRef::SharedBlock { .. } => 1,
            InlineRef::ExtentData(data) => u64::from(data.count.get()),
            InlineRef::SharedData { count, .. } => u64::from(*count),
            InlineRef::Owner { .. } => 0,
        }
    }
}

/// An iterator over the inline references of an extent; stops at the first invalid one.
#[derive(Clone, Debug)]
pub struct InlineRefs<'a> {
    rest: &'a [u8],
}

impl<'a> InlineRefs<'a> {
    /// Creates an iterator over the references in `bytes`, which begin after the head (and the tree block's info).
    pub fn new(bytes: &'a [u8]) -> Self {
        InlineRefs { rest: bytes }
    }

    /// Returns the bytes that are not parsed yet; empty at the end of a valid item.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl Iterator for InlineRefs<'_> {
    type Item = InlineRef;

    fn next(&mut self) -> Option<InlineRef> {
        let (&type_, rest) = self.rest.split_first()?;
        let number = |rest| {
            U64::ref_from_prefix(rest)
                .ok()
                .map(|(n, rest)| (n.get(), rest))
        };
        let (reference, rest) = match KeyType(type_) {
            KeyType::EXTENT_DATA_REF => {
                let (data, rest) = ExtentDataRef::ref_from_prefix(rest).ok()?;
                (InlineRef::ExtentData(*data), rest)
            }
            KeyType::SHARED_DATA_REF => {
                let (parent, rest) = number(rest)?;
                let (shared, rest) = SharedDataRef::ref_from_prefix(rest).ok()?;
                (
                    InlineRef::SharedData {
                        parent,
                        count: shared.count.get(),
                    },
                    rest,
                )
            }
            KeyType::TREE_BLOCK_REF => {
                let (root, rest) = number(rest)?;
                (InlineRef::TreeBlock { root }, rest)
            }
            KeyType::SHARED_BLOCK_REF => {
                let (parent, rest) = number(rest)?;
                (InlineRef::SharedBlock { parent }, rest)
            }
            KeyType::EXTENT_OWNER_REF => {
                let (root, rest) = number(rest)?;
                (InlineRef::Owner { root }, rest)
            }
            _ => return None,
        };
        self.rest = rest;
        Some(reference)
    }
}

/// The decoded parts of an EXTENT_ITEM or METADATA_ITEM.
#[derive(Clone, Debug)]
pub struct DecodedExtent<'a> {
    pub head: &'a ExtentHead,
    /// Only for a tree block in an EXTENT_ITEM.
    pub tree_block: Option<&'a TreeBlockInfo>,
    pub refs: InlineRefs<'a>,
}

/// Decodes an item; `item_type` distinguishes skinny tree blocks. Returns None if it is too short.
pub fn decode_extent(item_type: KeyType, bytes: &[u8]) -> Option<DecodedExtent<'_>> {
    let (head, rest) = ExtentHead::ref_from_prefix(bytes).ok()?;
    let with_info =
        item_type == KeyType::EXTENT_ITEM && head.flags().contains(ExtentFlags::TREE_BLOCK);
    let (tree_block, rest) = if with_info {
        let (info, rest) = TreeBlockInfo::ref_from_prefix(rest).ok()?;
        (Some(info), rest)
    } else {
        (None, rest)
    };
    Some(DecodedExtent {
        head,
        tree_block,
        refs: InlineRefs::new(rest),
    })
}

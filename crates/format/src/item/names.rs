//! Back references from an inode to its names.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The head of one name in an INODE_REF item, key (inode, INODE_REF, parent); the name follows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct InodeRefHead {
    /// The entry's index in the parent (its DIR_INDEX key offset).
    pub index: U64,
    pub name_len: U16,
}
const _: () = assert!(size_of::<InodeRefHead>() == 10);

/// The head of one name in an INODE_EXTREF item, key (inode, INODE_EXTREF, hash); the name follows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct InodeExtrefHead {
    pub parent_objectid: U64,
    pub index: U64,
    pub name_len: U16,
}
const _: () = assert!(size_of::<InodeExtrefHead>() == 18);

#[derive(Clone, Copy, Debug)]
pub struct RefEntry<'a> {
    pub index: u64,
    pub name: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
pub struct ExtrefEntry<'a> {
    pub parent: u64,
    pub index: u64,
    pub name: &'a [u8],
}

/// The names packed in one INODE_REF item.
#[derive(Clone, Debug)]
pub struct InodeRefs<'a> {
    rest: &'a [u8],
}

impl<'a> InodeRefs<'a> {
    pub fn new(item: &'a [u8]) -> Self {
        InodeRefs { rest: item }
    }

    /// Returns the bytes that are not parsed yet; empty at the end of a valid item.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for InodeRefs<'a> {
    type Item = RefEntry<'a>;

    fn next(&mut self) -> Option<RefEntry<'a>> {
        let (head, rest) = InodeRefHead::ref_from_prefix(self.rest).ok()?;
        let (name, rest) = rest.split_at_checked(usize::from(head.name_len.get()))?;
        self.rest = rest;
        Some(RefEntry {
            index: head.index.get(),
            name,
        })
    }
}

/// The names packed in one INODE_EXTREF item.
#[derive(Clone, Debug)]
pub struct InodeExtrefs<'a> {
    rest: &'a [u8],
}

impl<'a> InodeExtrefs<'a> {
    pub fn new(item: &'a [u8]) -> Self {
        InodeExtrefs { rest: item }
    }

    /// Returns the bytes that are not parsed yet; empty at the end of a valid item.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for InodeExtrefs<'a> {
    type Item = ExtrefEntry<'a>;

    fn next(&mut self) -> Option<ExtrefEntry<'a>> {
        let (head, rest) = InodeExtrefHead::ref_from_prefix(self.rest).ok()?;
        let (name, rest) = rest.split_at_checked(usize::from(head.name_len.get()))?;
        self.rest = rest;
        Some(ExtrefEntry {
            parent: head.parent_objectid.get(),
            index: head.index.get(),
            name,
        })
    }
}

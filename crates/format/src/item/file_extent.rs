//! File extents: the mapping of file ranges to data.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::{Logical, Transid};

/// The common part of all file extents.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FileExtentHead {
    pub generation: U64,
    /// Decompressed size of the whole extent, including parts that are not used.
    pub ram_bytes: U64,
    pub compression: u8,
    pub encryption: u8,
    pub other_encoding: U16,
    pub type_: u8,
}
const _: () = assert!(size_of::<FileExtentHead>() == FILE_EXTENT_INLINE_START);

/// Offset of the data of an inline extent within its item.
pub const FILE_EXTENT_INLINE_START: usize = 21;

/// The fields after the head of a regular or preallocated extent.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FileExtentRegular {
    /// 0 for a hole.
    pub disk_bytenr: U64,
    pub disk_num_bytes: U64,
    /// Offset of this file range within the (decompressed) extent.
    pub offset: U64,
    pub num_bytes: U64,
}
const _: () = assert!(size_of::<FileExtentRegular>() == 32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FileExtentKind {
    Inline = 0,
    Regular = 1,
    Prealloc = 2,
}

impl FileExtentKind {
    pub fn from_raw(raw: u8) -> Option<FileExtentKind> {
        Some(match raw {
            0 => FileExtentKind::Inline,
            1 => FileExtentKind::Regular,
            2 => FileExtentKind::Prealloc,
            _ => return None,
        })
    }
}

/// A decoded file extent item.
#[derive(Clone, Copy, Debug)]
pub enum FileExtent<'a> {
    Inline {
        head: &'a FileExtentHead,
        /// The stored bytes, compressed or not.
        data: &'a [u8],
    },
    Regular {
        head: &'a FileExtentHead,
        body: &'a FileExtentRegular,
        prealloc: bool,
    },
}

impl<'a> FileExtent<'a> {
    /// Decodes an item. Returns None if the kind is unknown or the item is too short.
    pub fn decode(bytes: &'a [u8]) -> Option<FileExtent<'a>> {
        let (head, rest) = FileExtentHead::ref_from_prefix(bytes).ok()?;
        match FileExtentKind::from_raw(head.type_)? {
            FileExtentKind::Inline => Some(FileExtent::Inline { head, data: rest }),
            kind => {
                let (body, _) = FileExtentRegular::ref_from_prefix(rest).ok()?;
                Some(FileExtent::Regular {
                    head,
                    body,
                    prealloc: kind == FileExtentKind::Prealloc,
                })
            }
        }
    }

    pub fn head(&self) -> &'a FileExtentHead {
        match self {
            FileExtent::Inline { head, .. } | FileExtent::Regular { head, .. } => head,
        }
    }

    /// Returns the length of the item's file range. For an inline extent it is the decompressed size.
    pub fn num_bytes(&self) -> u64 {
        match self {
            FileExtent::Inline { head, .. } => head.ram_bytes.get(),
            FileExtent::Regular { body, .. } => body.num_bytes.get(),
        }
    }

    pub fn transid(&self) -> Transid {
        Transid(self.head().generation.get())
    }
}

impl FileExtentRegular {
    /// Returns the extent's address, or None for a hole.
    pub fn disk(&self) -> Option<Logical> {
        (self.disk_bytenr.get() != 0).then_some(Logical(self.disk_bytenr.get()))
    }
}

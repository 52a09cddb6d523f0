//! File extents: which bytes a file has where.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::{Logical, Transid};

/// The part that all file extents share.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FileExtentHead {
    pub generation: U64,
    /// Bytes of the extent when decompressed, the whole extent and not only the part that is used.
    pub ram_bytes: U64,
    pub compression: u8,
    pub encryption: u8,
    pub other_encoding: U16,
    pub type_: u8,
}
const _: () = assert!(size_of::<FileExtentHead>() == FILE_EXTENT_INLINE_START);

/// Where the data of an inline extent begins within its item.
pub const FILE_EXTENT_INLINE_START: usize = 21;

/// The fields behind the head of a regular or preallocated extent.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FileExtentRegular {
    /// 0: a hole.
    pub disk_bytenr: U64,
    pub disk_num_bytes: U64,
    /// Where in the (decompressed) extent this file range begins.
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

/// A file extent item, decoded.
#[derive(Clone, Copy, Debug)]
pub enum FileExtent<'a> {
    Inline {
        head: &'a FileExtentHead,
        /// The bytes as stored, compressed or not.
        data: &'a [u8],
    },
    Regular {
        head: &'a FileExtentHead,
        body: &'a FileExtentRegular,
        prealloc: bool,
    },
}

impl<'a> FileExtent<'a> {
    /// Decodes an item. It returns None if the kind is unknown or the item too short for it.
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

    /// Returns the bytes of the file that the item stands for. An inline extent's are its decompressed size.
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
    /// Returns the extent's place, or None for a hole.
    pub fn disk(&self) -> Option<Logical> {
        (self.disk_bytenr.get() != 0).then_some(Logical(self.disk_bytenr.get()))
    }
}

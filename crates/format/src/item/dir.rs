//! Directory entries and extended attributes: packed records of a head, a name and data.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::key::{DiskKey, Key};

/// The head of a DIR_ITEM, DIR_INDEX or XATTR_ITEM record; the name and then the data follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DirHead {
    /// An inode of this subvolume, or a subvolume (ROOT_ITEM); zero for an xattr.
    pub location: DiskKey,
    pub transid: U64,
    pub data_len: U16,
    pub name_len: U16,
    pub type_: u8,
}
const _: () = assert!(size_of::<DirHead>() == 30);

/// A range of directory indexes in a log tree: key (dir, DIR_LOG_INDEX, first index).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DirLogItem {
    pub end: U64,
}
const _: () = assert!(size_of::<DirLogItem>() == 8);

/// The kind of a file, like [`std::fs::FileType`]. The root of a subvolume is a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FileKind {
    /// A regular file.
    Regular = 1,
    /// A directory.
    Directory = 2,
    /// A character device.
    CharDevice = 3,
    /// A block device.
    BlockDevice = 4,
    /// A FIFO.
    Fifo = 5,
    /// A socket.
    Socket = 6,
    /// A symbolic link.
    Symlink = 7,
}

impl FileKind {
    /// The type byte that marks an extended attribute.
    pub const RAW_XATTR: u8 = 8;
    /// Set on the type byte of an encrypted name.
    pub const RAW_ENCRYPTED: u8 = 128;

    /// Returns the kind for the type byte of a directory entry.
    pub fn from_raw(raw: u8) -> Option<FileKind> {
        Some(match raw {
            1 => FileKind::Regular,
            2 => FileKind::Directory,
            3 => FileKind::CharDevice,
            4 => FileKind::BlockDevice,
            5 => FileKind::Fifo,
            6 => FileKind::Socket,
            7 => FileKind::Symlink,
            _ => return None,
        })
    }

    /// Returns the type byte of a directory entry.
    pub fn raw(self) -> u8 {
        self as u8
    }

    /// The bits of a mode with the file type.
    pub const MODE_BITS: u32 = 0o170_000;

    /// Returns the kind for the format bits of a mode.
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        Some(match mode & FileKind::MODE_BITS {
            0o100_000 => FileKind::Regular,
            0o040_000 => FileKind::Directory,
            0o020_000 => FileKind::CharDevice,
            0o060_000 => FileKind::BlockDevice,
            0o010_000 => FileKind::Fifo,
            0o140_000 => FileKind::Socket,
            0o120_000 => FileKind::Symlink,
            _ => return None,
        })
    }

    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        *self == FileKind::Directory
    }

    /// Returns whether it is a regular file.
    pub fn is_file(&self) -> bool {
        *self == FileKind::Regular
    }

    /// Returns whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        *self == FileKind::Symlink
    }
}

/// One record of a DIR_ITEM, DIR_INDEX or XATTR_ITEM.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    pub head: &'a DirHead,
    pub name: &'a [u8],
    pub data: &'a [u8],
}

impl DirEntry<'_> {
    pub fn location(&self) -> Key {
        self.head.location.get()
    }

    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_raw(self.head.type_)
    }
}

/// The records packed in one item.
#[derive(Clone, Debug)]
pub struct DirEntries<'a> {
    rest: &'a [u8],
}

impl<'a> DirEntries<'a> {
    pub fn new(item: &'a [u8]) -> Self {
        DirEntries { rest: item }
    }

    /// Returns the bytes that are not parsed yet; empty at the end of a valid item.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for DirEntries<'a> {
    type Item = DirEntry<'a>;

    fn next(&mut self) -> Option<DirEntry<'a>> {
        let (head, rest) = DirHead::ref_from_prefix(self.rest).ok()?;
        let (name, rest) = rest.split_at_checked(usize::from(head.name_len.get()))?;
        let (data, rest) = rest.split_at_checked(usize::from(head.data_len.get()))?;
        self.rest = rest;
        Some(DirEntry { head, name, data })
    }
}

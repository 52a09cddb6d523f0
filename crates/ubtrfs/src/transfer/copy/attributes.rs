//! The attributes that a copy preserves, from a volume or the host.

use ubtrfs_fs::{Attr, FileKind, FileTime};

/// Names and values of extended attributes.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// The attributes that a copy preserves.
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    pub(crate) kind: FileKind,
    /// Format and permission bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    /// In bytes.
    pub(crate) size: u64,
    /// The device number, in the encoding of inodes.
    pub(crate) rdev: u64,
    pub(crate) atime: FileTime,
    pub(crate) mtime: FileTime,
    /// Empty unless requested.
    pub(crate) xattrs: Xattrs,
}

impl Attributes {
    /// Converts the attributes of a file of a volume.
    pub(crate) fn of(attr: &Attr, xattrs: Xattrs) -> Attributes {
        Attributes {
            kind: attr.kind,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            nlink: attr.nlink,
            size: attr.size,
            rdev: attr.rdev,
            atime: attr.atime,
            mtime: attr.mtime,
            xattrs,
        }
    }
}

//! What a copy keeps of a file besides its contents, wherever the file is.

use ubtrfs_engine::{Attr, FileKind, FileTime};

pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) kind: FileKind,
    /// Format and permission bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    pub(crate) size: u64,
    /// Of a device, as an inode holds it.
    pub(crate) rdev: u64,
    pub(crate) atime: FileTime,
    pub(crate) mtime: FileTime,
    /// Empty unless they were asked for.
    pub(crate) xattrs: Xattrs,
}

impl Facts {
    pub(crate) fn of(attr: &Attr, xattrs: Xattrs) -> Facts {
        Facts {
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

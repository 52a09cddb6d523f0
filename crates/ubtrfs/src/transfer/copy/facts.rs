//! Attributes that a copy keeps of a file, wherever the file is.

use ubtrfs_engine::{Attr, FileKind, FileTime};

/// Names and values of extended attributes.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Attributes that a copy keeps of a file.
#[derive(Clone, Debug)]
pub struct Facts {
    pub kind: FileKind,
    /// Format and permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    /// In bytes.
    pub size: u64,
    /// The number of a device, as an inode holds it.
    pub rdev: u64,
    pub atime: FileTime,
    pub mtime: FileTime,
    /// Empty unless they were asked for.
    pub xattrs: Xattrs,
}

impl Facts {
    /// Takes the attributes of a file of a volume.
    pub fn of(attr: &Attr, xattrs: Xattrs) -> Facts {
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

//! The attributes of an original, from a volume or the host.

use ubtrfs_fs::{Attr, FileKind, PreservedAttributes};

/// Names and values of extended attributes.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// The attributes of an original.
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    pub(crate) kind: FileKind,
    pub(crate) file: PreservedAttributes,
    pub(crate) nlink: u32,
    /// In bytes.
    pub(crate) size: u64,
    /// Empty unless requested.
    pub(crate) xattrs: Xattrs,
}

impl Attributes {
    /// Converts the attributes of a file of a volume.
    pub(crate) fn of(attr: &Attr, xattrs: Xattrs) -> Attributes {
        Attributes {
            kind: attr.kind,
            file: attr.into(),
            nlink: attr.nlink,
            size: attr.size,
            xattrs,
        }
    }
}

//! Properties: attributes of the namespace `btrfs.`. Only `btrfs.compression` exists.
//!
//! Setting the property also sets or clears inode flags. New inodes inherit it from their directory.

use ubtrfs_format::compress::Compression;
use ubtrfs_format::item::{FileKind, InodeFlags};

use crate::error::{Error, Result};

pub(crate) const NAMESPACE: &[u8] = b"btrfs.";
pub(crate) const COMPRESSION: &[u8] = b"btrfs.compression";

/// The values of `btrfs.compression`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompressionProperty {
    /// No setting.
    Unset,
    Never,
    With(Compression),
}

const ALGORITHMS: [Compression; 3] = [Compression::Zlib, Compression::Lzo, Compression::Zstd];

impl CompressionProperty {
    /// Parses a value of the property. As in the kernel, the value only has to begin with the algorithm's
    /// name: a level may follow.
    pub(crate) fn parse(value: &[u8]) -> Option<CompressionProperty> {
        match value {
            b"" => return Some(CompressionProperty::Unset),
            b"no" | b"none" => return Some(CompressionProperty::Never),
            _ => {}
        }
        let is_named = |kind: &Compression| value.starts_with(kind.name().as_bytes());
        ALGORITHMS
            .into_iter()
            .find(is_named)
            .map(CompressionProperty::With)
    }

    /// Returns the algorithm that a stored value names.
    pub(crate) fn algorithm(value: Option<&[u8]>) -> Option<Compression> {
        match value.and_then(CompressionProperty::parse) {
            Some(CompressionProperty::With(algorithm)) => Some(algorithm),
            _ => None,
        }
    }

    /// Returns `flags` updated for an inode with the property.
    pub(crate) fn apply(self, flags: InodeFlags) -> InodeFlags {
        let flags = flags - (InodeFlags::COMPRESS | InodeFlags::NOCOMPRESS);
        match self {
            CompressionProperty::Unset => flags,
            CompressionProperty::Never => flags | InodeFlags::NOCOMPRESS,
            CompressionProperty::With(_) => flags | InodeFlags::COMPRESS,
        }
    }
}

/// Returns whether data of an inode with these flags may be compressed.
pub(crate) fn can_compress(flags: InodeFlags) -> bool {
    !flags.intersects(InodeFlags::NODATACOW | InodeFlags::NODATASUM)
}

/// Returns whether the property has an effect on an inode of this type. Other inodes accept and ignore it.
pub(crate) fn is_of_use(kind: FileKind) -> bool {
    matches!(kind, FileKind::Regular | FileKind::Directory)
}

/// Parses and checks a property of this name and value.
pub(crate) fn check(name: &[u8], value: &[u8], flags: InodeFlags) -> Result<CompressionProperty> {
    if name != COMPRESSION {
        return Err(Error::Invalid("property"));
    }
    match CompressionProperty::parse(value) {
        Some(CompressionProperty::With(_) | CompressionProperty::Never) if !can_compress(flags) => {
            Err(Error::Invalid(
                "compression of a file that is not copied on write",
            ))
        }
        Some(wish) => Ok(wish),
        None => Err(Error::Invalid("value of the property")),
    }
}

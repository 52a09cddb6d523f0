//! Limits of names, attributes, symlink targets, files and links, which are set by the format or by Linux.
//!
//! These checks apply to all new files, from a folder, an archive, a stream, a mount or a program. The kernel rejects
//! a whole leaf, with all its files, if one item exceeds a limit.

use rustix::io::Errno;

use crate::item::{DirHead, FILE_EXTENT_INLINE_START};
use crate::node::{ITEM_HEAD_SIZE, leaf_data_size};

/// Maximum length of the name of a directory entry or an extended attribute.
pub const MAX_NAME_BYTES: usize = 255;
/// Maximum length of a symlink target: Linux includes its NUL in the 4,096 bytes of a path.
pub const MAX_TARGET_BYTES: usize = 4095;
/// Maximum file size in Linux.
pub const MAX_FILE_BYTES: u64 = i64::MAX as u64;
/// Maximum number of names of one inode.
pub const MAX_LINKS: u32 = 65_535;
/// Maximum major and minor device number in a btrfs inode.
pub const MAX_DEVICE: (u32, u32) = (0xfff, 0xf_ffff);

/// A limit that a new file exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error("a name of {len} bytes (max {MAX_NAME_BYTES})")]
    NameTooLong { len: usize },
    #[error("a name that is empty, or holds a NUL or a slash")]
    Name,
    #[error("an attribute with a name of {len} bytes (max {MAX_NAME_BYTES})")]
    XattrNameTooLong { len: usize },
    #[error("an attribute with a name that is empty or holds a NUL")]
    XattrName,
    #[error("an attribute of {len} bytes (max {max})")]
    XattrTooLarge { len: usize, max: usize },
    #[error("an empty link target")]
    TargetEmpty,
    #[error("a link target that holds a NUL")]
    Target,
    #[error("a link target of {len} bytes (max {max})")]
    TargetTooLong { len: usize, max: usize },
    #[error("a size of {bytes} bytes (max {MAX_FILE_BYTES})")]
    FileTooLarge { bytes: u64 },
    #[error("{count} names (max {MAX_LINKS})")]
    TooManyLinks { count: u64 },
    #[error("a device with the numbers {major}, {minor} (max {}, {})", MAX_DEVICE.0, MAX_DEVICE.1)]
    Device { major: u32, minor: u32 },
}

impl LimitError {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(self) -> Errno {
        match self {
            LimitError::NameTooLong { .. }
            | LimitError::XattrNameTooLong { .. }
            | LimitError::TargetTooLong { .. } => Errno::NAMETOOLONG,
            LimitError::FileTooLarge { .. } => Errno::FBIG,
            LimitError::TooManyLinks { .. } => Errno::MLINK,
            LimitError::XattrTooLarge { .. } => Errno::NOSPC,
            LimitError::TargetEmpty => Errno::NOENT,
            LimitError::Name
            | LimitError::XattrName
            | LimitError::Target
            | LimitError::Device { .. } => Errno::INVAL,
        }
    }
}

/// Checks the name of a directory entry.
pub fn check_name(name: &[u8]) -> Result<(), LimitError> {
    if name.len() > MAX_NAME_BYTES {
        return Err(LimitError::NameTooLong { len: name.len() });
    }
    match name {
        b"" | b"." | b".." => Err(LimitError::Name),
        _ if name.iter().any(|byte| matches!(byte, 0 | b'/')) => Err(LimitError::Name),
        _ => Ok(()),
    }
}

/// Checks the name of an extended attribute.
pub fn check_xattr_name(name: &[u8]) -> Result<(), LimitError> {
    if name.len() > MAX_NAME_BYTES {
        return Err(LimitError::XattrNameTooLong { len: name.len() });
    }
    if name.is_empty() || name.contains(&0) {
        Err(LimitError::XattrName)
    } else {
        Ok(())
    }
}

/// Checks an extended attribute of a volume with nodes of `nodesize` bytes.
pub fn check_xattr(name: &[u8], value: &[u8], nodesize: usize) -> Result<(), LimitError> {
    check_xattr_name(name)?;
    let len = name.len() + value.len();
    let max = leaf_data_size(nodesize) - ITEM_HEAD_SIZE - size_of::<DirHead>();
    if len > max {
        Err(LimitError::XattrTooLarge { len, max })
    } else {
        Ok(())
    }
}

/// Checks the target of a symbolic link in a volume with nodes of `nodesize` bytes.
pub fn check_target(target: &[u8], nodesize: usize) -> Result<(), LimitError> {
    let room = leaf_data_size(nodesize) - ITEM_HEAD_SIZE - FILE_EXTENT_INLINE_START;
    let (len, max) = (target.len(), room.min(MAX_TARGET_BYTES));
    if target.is_empty() {
        Err(LimitError::TargetEmpty)
    } else if len > max {
        Err(LimitError::TargetTooLong { len, max })
    } else if target.contains(&0) {
        Err(LimitError::Target)
    } else {
        Ok(())
    }
}

/// Checks the size of a regular file.
pub fn check_file_size(bytes: u64) -> Result<(), LimitError> {
    if bytes > MAX_FILE_BYTES {
        Err(LimitError::FileTooLarge { bytes })
    } else {
        Ok(())
    }
}

/// Checks the number of names of an inode.
pub fn check_links(count: u64) -> Result<(), LimitError> {
    if count > u64::from(MAX_LINKS) {
        Err(LimitError::TooManyLinks { count })
    } else {
        Ok(())
    }
}

/// Checks the major and minor number of a device.
pub fn check_device(major: u32, minor: u32) -> Result<(), LimitError> {
    if major > MAX_DEVICE.0 || minor > MAX_DEVICE.1 {
        Err(LimitError::Device { major, minor })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_linux() {
        let long = [b'n'; 4096];
        check_name(&long[..255]).unwrap();
        assert!(check_name(&long[..256]).is_err());
        check_xattr(&long[..255], b"", 4096).unwrap();
        assert!(check_xattr(&long[..256], b"", 4096).is_err());
        // The kernel's maximum: a leaf of 16 KiB less 101 bytes of header, 25 of the item and 30 of its head.
        check_xattr(b"user.a", &[0; 16_228 - 6], 16 << 10).unwrap();
        assert!(check_xattr(b"user.a", &[0; 16_228 - 5], 16 << 10).is_err());
        check_target(&long[..4095], 16 << 10).unwrap();
        assert!(check_target(&long, 16 << 10).is_err());
        assert!(check_target(&long[..4095], 4096).is_err());
        check_file_size(i64::MAX as u64).unwrap();
        assert!(check_file_size(1 << 63).is_err());
        check_links(65_535).unwrap();
        assert!(check_links(65_536).is_err());
        check_device(4095, 1_048_575).unwrap();
        assert!(check_device(4096, 0).is_err());
        assert!(check_device(0, 1 << 20).is_err());
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert_eq!(check_name(bad), Err(LimitError::Name));
        }
        assert!(check_target(b"", 4096).is_err() && check_target(b"a\0b", 4096).is_err());
        assert!(check_xattr_name(b"").is_err() && check_xattr_name(b"user.\0").is_err());
    }
}

//! Targets that streams are received into.

use std::io;

use rustix::io::Errno;
use ubtrfs_device::errno_of;
use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::{RootId, Transid};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::rights::Refused;
use ubtrfs_fs::{DeviceNumber, FileTime};

use super::path::TreePath;

/// Data on disk has whole sectors of at least this size; inline extents may be smaller.
pub(super) const LEAST_SECTOR_BYTES: u64 = 4096;

/// The sender's identification of a subvolume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sent {
    pub uuid: Uuid,
    /// The transaction that last changed it.
    pub ctransid: Transid,
}

/// Creates subvolumes one after the other. Paths are relative to the most recent one.
///
/// No call follows symbolic links or enters other subvolumes.
pub trait Target {
    fn sectorsize(&self) -> Result<u64, TargetError>;

    /// Starts a new, empty subvolume in the destination.
    fn create_subvolume(&mut self, name: &[u8]) -> Result<(), TargetError>;

    /// Starts a writable snapshot of a subvolume that is the sent one or was received from it.
    fn create_snapshot(&mut self, name: &[u8], parent: &Sent) -> Result<(), TargetError>;

    /// Stores the origin of the subvolume and makes it read-only.
    fn finish(&mut self, sent: &Sent) -> Result<(), TargetError>;

    fn create(&mut self, path: TreePath<'_>, new: &NewFile<'_>) -> Result<(), TargetError>;
    fn rename(&mut self, path: TreePath<'_>, to: TreePath<'_>) -> Result<(), TargetError>;
    /// Creates a file at `to`, as if it had been created at `path` and renamed. Returns false, with no changes, if
    /// that needs two steps. The same applies after an error.
    fn create_renamed(
        &mut self,
        _path: TreePath<'_>,
        _to: TreePath<'_>,
        _new: &NewFile<'_>,
    ) -> Result<bool, TargetError> {
        Ok(false)
    }
    /// Creates a regular file at `to`, as if it had been created at `path`, renamed, written and given its
    /// attributes. Without a rename the paths are equal. Returns false, with no changes, if that needs several steps.
    /// The same applies after an error.
    fn create_filled(
        &mut self,
        _path: TreePath<'_>,
        _to: TreePath<'_>,
        _data: &[u8],
        _set: &SetAttributes,
    ) -> Result<bool, TargetError> {
        Ok(false)
    }
    /// Adds the name `path` to the file at `existing`.
    fn link(&mut self, path: TreePath<'_>, existing: TreePath<'_>) -> Result<(), TargetError>;
    fn unlink(&mut self, path: TreePath<'_>) -> Result<(), TargetError>;
    fn rmdir(&mut self, path: TreePath<'_>) -> Result<(), TargetError>;

    fn set_xattr(
        &mut self,
        path: TreePath<'_>,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), TargetError>;
    fn remove_xattr(&mut self, path: TreePath<'_>, name: &[u8]) -> Result<(), TargetError>;
    /// Sets the permission bits of a file. `mode` has no other bits.
    fn chmod(&mut self, path: TreePath<'_>, mode: u32) -> Result<(), TargetError>;
    fn chown(&mut self, path: TreePath<'_>, uid: u32, gid: u32) -> Result<(), TargetError>;
    fn set_times(
        &mut self,
        path: TreePath<'_>,
        atime: FileTime,
        mtime: FileTime,
    ) -> Result<(), TargetError>;
    /// Sets several attributes of a file. After an error some of them may be set.
    fn set_attributes(
        &mut self,
        path: TreePath<'_>,
        set: &SetAttributes,
    ) -> Result<(), TargetError> {
        if let Some((uid, gid)) = set.owner {
            self.chown(path, uid, gid)?;
        }
        if let Some(mode) = set.mode {
            self.chmod(path, mode)?;
        }
        match set.times {
            Some((atime, mtime)) => self.set_times(path, atime, mtime),
            None => Ok(()),
        }
    }

    fn write(&mut self, path: TreePath<'_>, offset: u64, data: &[u8]) -> Result<(), TargetError>;
    /// Stores compressed data unchanged, if it is a natural extent at this offset. Returns false, with no changes, if
    /// the data must be decompressed.
    fn write_encoded(
        &mut self,
        path: TreePath<'_>,
        offset: u64,
        extent: &EncodedExtent<'_>,
    ) -> Result<bool, TargetError>;
    fn clone_range(
        &mut self,
        path: TreePath<'_>,
        offset: u64,
        len: u64,
        from: &CloneSource<'_>,
    ) -> Result<(), TargetError>;
    fn truncate(&mut self, path: TreePath<'_>, size: u64) -> Result<(), TargetError>;
    /// Changes the allocation of a range. `mode` is as in fallocate(2).
    fn fallocate(
        &mut self,
        path: TreePath<'_>,
        mode: u32,
        offset: u64,
        len: u64,
    ) -> Result<(), TargetError>;
}

/// Attributes to set, in this order.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SetAttributes {
    /// User and group.
    pub owner: Option<(u32, u32)>,
    /// Permission bits only.
    pub mode: Option<u32>,
    /// The access and modification times.
    pub times: Option<(FileTime, FileTime)>,
}

/// A file to create.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NewFile<'a> {
    File,
    Directory,
    Fifo,
    Socket,
    CharDevice(DeviceNumber),
    BlockDevice(DeviceNumber),
    Symlink(&'a [u8]),
}

/// The source of a clone.
#[derive(Clone, Copy, Debug)]
pub struct CloneSource<'a> {
    /// None for the subvolume being received.
    pub subvolume: Option<Sent>,
    pub path: TreePath<'a>,
    pub offset: u64,
}

/// Compressed data that was checked by decompressing it.
#[derive(Clone, Copy, Debug)]
pub struct EncodedExtent<'a> {
    pub compression: Compression,
    /// The sector size of LZO data.
    pub lzo_sector_bytes: Option<usize>,
    /// Padded to whole sectors, unless it is from an inline extent.
    pub bytes: &'a [u8],
    /// All of it, decompressed.
    pub plain: &'a [u8],
    /// Offset of the file's part in the decompressed data.
    pub unencoded_offset: u64,
    pub file_len: u64,
}

impl EncodedExtent<'_> {
    pub fn unencoded_len(&self) -> u64 {
        self.plain.len() as u64
    }

    /// Returns whether a volume with this sector size could itself create such an extent at `offset` of a file.
    ///
    /// Other extents must not be stored: kernels do not check all of these properties.
    pub fn is_natural(&self, offset: u64, sectorsize: u64) -> bool {
        let (len, plain_len) = (self.bytes.len() as u64, self.unencoded_len());
        let end = self.unencoded_offset + self.file_len;
        let of_sectors = [plain_len, offset, self.unencoded_offset];
        let is_of_sectors = len.is_multiple_of(LEAST_SECTOR_BYTES)
            && of_sectors.iter().all(|at| at.is_multiple_of(sectorsize));
        let is_inline = (offset, self.unencoded_offset, self.file_len) == (0, 0, plain_len)
            && plain_len <= sectorsize;
        let lzo_fits = self
            .lzo_sector_bytes
            .is_none_or(|bytes| bytes as u64 == sectorsize);
        // The space after the end of a file must be zeros, because it becomes visible when the file grows.
        let behind = end..end.next_multiple_of(sectorsize).min(plain_len);
        let behind = &self.plain[behind.start as usize..behind.end as usize];
        self.compression != Compression::None
            && lzo_fits
            && self.file_len > 0
            && len > 0
            && len < plain_len
            && (is_of_sectors || is_inline)
            && behind.iter().all(|&byte| byte == 0)
    }
}

/// The reason why a target did not execute a command.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error(transparent)]
    Engine(#[from] ubtrfs_fs::Error),
    /// The caller has no permission to read a clone source.
    #[error(transparent)]
    Refused(Refused),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("cannot find parent subvolume: none has or was received from UUID {0}")]
    NoParent(Uuid),
    #[error("cannot find clone source subvolume: none has or was received from UUID {0}")]
    NoCloneSource(Uuid),
    #[error("subvolume {id} with UUID {uuid} is not read-only: it may have changed since")]
    Modified { id: RootId, uuid: Uuid },
    #[error("subvolume {0} is not reachable from the destination's mount")]
    Unreachable(RootId),
    #[error("another subvolume is there")]
    OtherSubvolume,
    #[error("fallocate mode {0:#x} is not supported")]
    FallocateMode(u32),
}

impl From<Refused> for TargetError {
    fn from(refused: Refused) -> TargetError {
        match refused {
            Refused::Volume(error) => TargetError::Engine(error),
            refused => TargetError::Refused(refused),
        }
    }
}

impl TargetError {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(&self) -> Errno {
        match self {
            TargetError::Engine(error) => error.errno(),
            TargetError::Refused(refused) => refused.errno(),
            TargetError::Io(error) => errno_of(error),
            TargetError::NoParent(_)
            | TargetError::NoCloneSource(_)
            | TargetError::Unreachable(_) => Errno::NOENT,
            TargetError::Modified { .. } => Errno::PERM,
            TargetError::OtherSubvolume => Errno::XDEV,
            TargetError::FallocateMode(_) => Errno::OPNOTSUPP,
        }
    }

    /// Returns whether further commands would fail for the same reason.
    pub fn is_final(&self) -> bool {
        match self {
            TargetError::Engine(error) => matches!(
                error,
                ubtrfs_fs::Error::Aborted(_)
                    | ubtrfs_fs::Error::Marked(_)
                    | ubtrfs_fs::Error::ReadOnly
                    | ubtrfs_fs::Error::Closed
            ),
            _ => false,
        }
    }
}

//! Targets that a stream is received into.

use std::io;

use ubtrfs_engine::FileTime;
use ubtrfs_engine::rights::Refused;
use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::{RootId, Transid};
use ubtrfs_format::uuid::Uuid;

use super::encoded::LEAST_SECTOR_BYTES;
use super::path::TreePath;

/// A subvolume as the sender knows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sent {
    pub uuid: Uuid,
    /// The transaction that changed it last.
    pub ctransid: Transid,
}

/// Makes one subvolume after the other. Paths are below the one that was begun last.
///
/// No call follows a symbolic link, or enters another subvolume.
pub trait Target {
    fn sectorsize(&self) -> Result<u64, TargetError>;

    /// Begins with an empty subvolume in the destination.
    fn create_subvolume(&mut self, name: &[u8]) -> Result<(), TargetError>;

    /// Begins with a writable snapshot of a subvolume that was received, or is the one that was sent.
    fn create_snapshot(&mut self, name: &[u8], parent: &Sent) -> Result<(), TargetError>;

    /// Notes what the subvolume was received from, and makes it read-only.
    fn finish(&mut self, sent: &Sent) -> Result<(), TargetError>;

    fn create(&mut self, path: TreePath<'_>, new: &NewFile<'_>) -> Result<(), TargetError>;
    fn rename(&mut self, path: TreePath<'_>, to: TreePath<'_>) -> Result<(), TargetError>;
    /// Makes a file at `to`, as if it had been made at `path` and renamed. False, with nothing changed, if that takes
    /// two steps; so after an error.
    fn create_renamed(
        &mut self,
        _path: TreePath<'_>,
        _to: TreePath<'_>,
        _new: &NewFile<'_>,
    ) -> Result<bool, TargetError> {
        Ok(false)
    }
    /// Makes a regular file at `to`, as if it had been made at `path`, renamed, written and given its attributes. The
    /// paths are equal if it is not renamed. False, with nothing changed, if that takes several steps; so after an
    /// error.
    fn create_filled(
        &mut self,
        _path: TreePath<'_>,
        _to: TreePath<'_>,
        _data: &[u8],
        _set: &SetAttributes,
    ) -> Result<bool, TargetError> {
        Ok(false)
    }
    /// Gives the file at `existing` the further name `path`.
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
    /// Sets the permission bits of a file. `mode` has these alone.
    fn chmod(&mut self, path: TreePath<'_>, mode: u32) -> Result<(), TargetError>;
    fn chown(&mut self, path: TreePath<'_>, uid: u32, gid: u32) -> Result<(), TargetError>;
    fn set_times(
        &mut self,
        path: TreePath<'_>,
        atime: FileTime,
        mtime: FileTime,
    ) -> Result<(), TargetError>;
    /// Sets several attributes of a file. An error may leave some of them set.
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
    /// Stores compressed data as it is, which is natural at that place. False, with nothing changed, if it must be
    /// decompressed.
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
    /// Changes the space of a range. `mode` is that of fallocate(2).
    fn fallocate(
        &mut self,
        path: TreePath<'_>,
        mode: u32,
        offset: u64,
        len: u64,
    ) -> Result<(), TargetError>;
}

/// Attributes to be set, in this order.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SetAttributes {
    /// User and group.
    pub owner: Option<(u32, u32)>,
    /// Permission bits alone.
    pub mode: Option<u32>,
    /// The times of access and of modification.
    pub times: Option<(FileTime, FileTime)>,
}

/// A file to be made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NewFile<'a> {
    File,
    Directory,
    Fifo,
    Socket,
    CharDevice(Device),
    BlockDevice(Device),
    Symlink(&'a [u8]),
}

/// The number of a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Device {
    pub major: u32,
    pub minor: u32,
}

/// The source that a range shares its extents with.
#[derive(Clone, Copy, Debug)]
pub struct CloneSource<'a> {
    /// None: the subvolume that is being received.
    pub subvolume: Option<Sent>,
    pub path: TreePath<'a>,
    pub offset: u64,
}

/// Compressed data that was checked and decompresses.
#[derive(Clone, Copy, Debug)]
pub struct EncodedExtent<'a> {
    pub compression: Compression,
    /// The size of the sectors that LZO data was made for.
    pub lzo_sector_bytes: Option<usize>,
    /// Padded to whole sectors unless it is from an inode item.
    pub bytes: &'a [u8],
    /// All of it decompressed.
    pub plain: &'a [u8],
    /// Where in the decompressed data the file's part begins.
    pub unencoded_offset: u64,
    pub file_len: u64,
}

impl EncodedExtent<'_> {
    pub fn unencoded_len(&self) -> u64 {
        self.plain.len() as u64
    }

    /// Tells if a volume with sectors of this size could itself have such an extent at `offset` of a file.
    ///
    /// Others must not be stored: kernels do not check all of it.
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
        // The space behind the end of a file reads as zeros as soon as it grows.
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

/// Why a target did not do what a command says.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error(transparent)]
    Engine(#[from] ubtrfs_engine::Error),
    /// The caller may not read a file that the stream clones from.
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
    /// Returns whether further commands would fail for the same reason.
    pub fn is_final(&self) -> bool {
        match self {
            TargetError::Engine(error) => matches!(
                error,
                ubtrfs_engine::Error::Aborted(_)
                    | ubtrfs_engine::Error::ReadOnly
                    | ubtrfs_engine::Error::Closed
            ),
            _ => false,
        }
    }
}

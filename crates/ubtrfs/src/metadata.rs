//! Attributes of a file: kind, size, owner, times, flags. Plain values, as in `std::fs` and `std::os::unix::fs`.

#[cfg(test)]
mod tests;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

use ubtrfs_format::item::InodeFlags;
use ubtrfs_fs::{Attr, Error, FileId, FileKind, SetAttr, SetTime, Volume};

use crate::transfer::host_device;

/// The size of the units that [`Metadata::blocks`] counts.
const BLOCK_BYTES: u64 = 512;

/// The metadata of a file, like [`std::fs::Metadata`].
///
/// ```
/// use ubtrfs::Volume;
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.write("/file", b"content")?;
/// let metadata = root.metadata("/file")?;
/// assert!(metadata.is_file());
/// assert_eq!(metadata.len(), 7);
/// assert_eq!(metadata.mode() & 0o777, 0o644);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Metadata {
    attr: Attr,
    subvolume_id: u64,
    sector_bytes: u64,
}

impl Metadata {
    /// Reads the metadata of the file with this id.
    pub(crate) fn of_engine(volume: &Volume, id: FileId) -> Result<Metadata, Error> {
        Ok(Metadata {
            attr: volume.attr(id)?,
            subvolume_id: id.root.0,
            sector_bytes: u64::from(volume.superblock().sectorsize.get()),
        })
    }

    /// Returns the kind of the file.
    pub fn file_type(&self) -> FileKind {
        self.attr.kind
    }

    /// Returns whether it is a directory. The root of a subvolume is also a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Returns whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Returns whether it is a symbolic link, which is possible only if links are not followed.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Returns the size in bytes, including uncommitted data.
    #[expect(clippy::len_without_is_empty, reason = "std has none either")]
    pub fn len(&self) -> u64 {
        self.attr.size
    }

    /// Returns the permission bits as `std` permissions.
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.attr.mode)
    }

    /// Returns the time of the last change of the content.
    pub fn modified(&self) -> SystemTime {
        self.attr.mtime.into()
    }

    /// Returns the time of the last recorded access. Mounts record accesses, and this library does not.
    pub fn accessed(&self) -> SystemTime {
        self.attr.atime.into()
    }

    /// Returns the time of creation.
    pub fn created(&self) -> SystemTime {
        self.attr.otime.into()
    }

    /// Returns the time of the last change of content or attributes.
    pub fn changed(&self) -> SystemTime {
        self.attr.ctime.into()
    }

    /// Returns file type and permissions, as `st_mode`.
    pub fn mode(&self) -> u32 {
        self.attr.mode
    }

    /// Returns the user that owns the file.
    pub fn uid(&self) -> u32 {
        self.attr.uid
    }

    /// Returns the group of the file.
    pub fn gid(&self) -> u32 {
        self.attr.gid
    }

    /// Returns the number of names of the file.
    pub fn nlink(&self) -> u64 {
        u64::from(self.attr.nlink)
    }

    /// Returns the inode number, unique within its subvolume.
    pub fn ino(&self) -> u64 {
        self.attr.ino.0
    }

    /// Returns the id of the subvolume of the file. Together with [`Metadata::ino`] it identifies the file in the
    /// volume.
    pub fn subvolume_id(&self) -> u64 {
        self.subvolume_id
    }

    /// Returns the device number of a device file, as `st_rdev`.
    pub fn rdev(&self) -> u64 {
        host_device(self.attr.rdev)
    }

    /// Returns the allocated space in units of 512 bytes, rounded up to sectors, as `st_blocks` in a mount. Shared
    /// extents count for each file.
    pub fn blocks(&self) -> u64 {
        let sectors = self.attr.nbytes.div_ceil(self.sector_bytes.max(1));
        sectors.saturating_mul(self.sector_bytes) / BLOCK_BYTES
    }

    /// Returns the flags of `chattr`.
    pub fn flags(&self) -> FileFlags {
        FileFlags::of(self.attr.flags)
    }

    /// Returns the names of all flags of the inode, such as "NODATASUM".
    pub fn flag_names(&self) -> Vec<&'static str> {
        let named = self.attr.flags.iter_names();
        named.map(|(name, _)| name).collect()
    }

    /// Returns the allocated space in bytes, as recorded in the inode. For a small inline file it is the length.
    pub fn bytes_used(&self) -> u64 {
        self.attr.nbytes
    }

    /// Returns the transaction that created the file.
    pub fn generation(&self) -> u64 {
        self.attr.generation
    }

    /// Returns the transaction that last changed the inode.
    pub fn changed_generation(&self) -> u64 {
        self.attr.transid.0
    }
}

/// New times for a file, like [`std::fs::FileTimes`]. Times that are not set do not change.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use ubtrfs::{FileTimes, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.write("/file", b"")?;
/// let past = UNIX_EPOCH + Duration::from_secs(1 << 30);
/// root.set_times("/file", FileTimes::new().set_modified(past))?;
/// assert_eq!(root.metadata("/file")?.modified(), past);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct FileTimes {
    accessed: Option<SetTime>,
    modified: Option<SetTime>,
}

impl FileTimes {
    /// Creates a value that changes nothing.
    pub fn new() -> FileTimes {
        FileTimes::default()
    }

    /// Sets the time of the last access.
    #[must_use]
    pub fn set_accessed(mut self, time: SystemTime) -> FileTimes {
        self.accessed = Some(SetTime::At(time.into()));
        self
    }

    /// Sets the time of the last access to the current time.
    #[must_use]
    pub fn set_accessed_now(mut self) -> FileTimes {
        self.accessed = Some(SetTime::Now);
        self
    }

    /// Sets the time of the last change of the content.
    #[must_use]
    pub fn set_modified(mut self, time: SystemTime) -> FileTimes {
        self.modified = Some(SetTime::At(time.into()));
        self
    }

    /// Sets the time of the last change of the content to the current time, equal to [`Metadata::changed`].
    #[must_use]
    pub fn set_modified_now(mut self) -> FileTimes {
        self.modified = Some(SetTime::Now);
        self
    }

    pub(crate) fn to_change(self) -> SetAttr {
        SetAttr {
            atime: self.accessed,
            mtime: self.modified,
            ..SetAttr::default()
        }
    }
}

/// The flags of `chattr`, with its letters.
///
/// ```
/// use ubtrfs::{FileFlags, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.write("/file", b"")?;
/// let immutable = FileFlags { immutable: true, ..FileFlags::default() };
/// root.set_flags("/file", immutable)?;
/// assert!(root.remove_file("/file").is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of its own, and most combinations are of use"
)]
pub struct FileFlags {
    /// `S`: each change is durable when the call returns.
    pub sync: bool,
    /// `D`: each change of names in the directory is durable when the call returns.
    pub dir_sync: bool,
    /// `i`: nothing can be changed.
    pub immutable: bool,
    /// `a`: the file can only grow, a directory can only gain names.
    pub append: bool,
    /// `d`: dump(8) skips the file.
    pub no_dump: bool,
    /// `A`: reading does not update the access time.
    pub no_atime: bool,
    /// `C`: data is overwritten in place, without checksums. It takes effect on empty files. New files inherit it.
    pub no_cow: bool,
    /// `c`: data is compressed. New files inherit it.
    pub compress: bool,
    /// `m`: data is not compressed. New files inherit it.
    pub no_compress: bool,
}

impl FileFlags {
    fn of(flags: InodeFlags) -> FileFlags {
        FileFlags {
            sync: flags.contains(InodeFlags::SYNC),
            dir_sync: flags.contains(InodeFlags::DIRSYNC),
            immutable: flags.contains(InodeFlags::IMMUTABLE),
            append: flags.contains(InodeFlags::APPEND),
            no_dump: flags.contains(InodeFlags::NODUMP),
            no_atime: flags.contains(InodeFlags::NOATIME),
            no_cow: flags.contains(InodeFlags::NODATACOW),
            compress: flags.contains(InodeFlags::COMPRESS),
            no_compress: flags.contains(InodeFlags::NOCOMPRESS),
        }
    }

    pub(crate) fn to_inode(self) -> InodeFlags {
        let flags = [
            (self.sync, InodeFlags::SYNC),
            (self.dir_sync, InodeFlags::DIRSYNC),
            (self.immutable, InodeFlags::IMMUTABLE),
            (self.append, InodeFlags::APPEND),
            (self.no_dump, InodeFlags::NODUMP),
            (self.no_atime, InodeFlags::NOATIME),
            (self.no_cow, InodeFlags::NODATACOW),
            (self.compress, InodeFlags::COMPRESS),
            (self.no_compress, InodeFlags::NOCOMPRESS),
        ];
        let set = flags.iter().filter(|(is_set, _)| *is_set);
        set.fold(InodeFlags::empty(), |all, (_, flag)| all | *flag)
    }
}

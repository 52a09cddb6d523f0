//! A change between two snapshots, as a plain value.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use ubtrfs_format::item::{DeviceNumber, FileKind, FileTime, InodeFlags, InodeItem};

/// A change of a name, or of the file that it refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Change {
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The path from the root of the snapshot, without a leading slash; empty for the root itself. For a removed name
    /// it is the path in the old snapshot, otherwise in the new one.
    #[serde(skip)]
    pub path: PathBuf,
    /// The path in the old snapshot of a renamed file.
    #[serde(with = "any_path")]
    pub renamed_from: Option<PathBuf>,
    /// A name of the file in both snapshots, given in the new one, if a hard link was added or removed.
    #[serde(with = "any_path")]
    pub link_of: Option<PathBuf>,
    /// The kind of the file. A nested subvolume counts as a directory.
    #[serde(with = "file_kind")]
    pub file_type: FileKind,
    /// The inode number of the file. `None` for a nested subvolume, which a snapshot contains as an empty directory.
    pub ino: Option<u64>,
    /// The attributes in the old snapshot, if the file exists there.
    pub old: Option<FileAttributes>,
    /// The attributes in the new snapshot, if the file exists there.
    pub new: Option<FileAttributes>,
    /// Changed extended attributes of a file that exists in both snapshots.
    pub xattrs: Vec<XattrChange>,
    /// The number of further changed extended attributes, which are too many to be listed.
    pub more_xattrs: u64,
    /// Written ranges of the new content of a file that exists in both snapshots.
    pub data: Vec<Range<u64>>,
    /// Whether ranges that are close together were merged, because there were too many.
    pub data_is_coarse: bool,
}

/// The kind of a change to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ChangeKind {
    /// The name was removed.
    Removed,
    /// The name was added.
    Added,
    /// The file of the name had another name before.
    Renamed,
    /// The file of an unchanged name was changed.
    Changed,
}

/// The attributes of a file in one of two snapshots that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FileAttributes {
    /// The size in bytes; 0 for a directory.
    pub len: u64,
    /// The permission bits.
    pub mode: u32,
    /// The user that owns the file.
    pub uid: u32,
    /// The group of the file.
    pub gid: u32,
    /// The number of names of the file.
    pub nlink: u32,
    /// The device number of a device file, as `st_rdev`.
    pub rdev: u64,
    /// The flags of the inode with the bits of the format, without those that only the file system uses.
    pub flag_bits: u64,
    /// The time of the last recorded access.
    #[serde(with = "time")]
    pub accessed: SystemTime,
    /// The time of the last change of the content.
    #[serde(with = "time")]
    pub modified: SystemTime,
    /// The time of the last change of content or attributes.
    #[serde(with = "time")]
    pub changed: SystemTime,
    /// The time of creation.
    #[serde(with = "time")]
    pub created: SystemTime,
}

/// A difference of one extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct XattrChange {
    /// The name, namespace included.
    pub name: OsString,
    /// The kind of the difference.
    pub kind: XattrChangeKind,
}

/// The kind of a difference of an extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum XattrChangeKind {
    /// Only the old snapshot has it.
    Removed,
    /// Only the new snapshot has it.
    Added,
    /// Its value differs.
    Changed,
}

impl Change {
    /// Creates a change with only a name.
    pub(super) fn new(path: PathBuf, kind: ChangeKind, file_type: FileKind) -> Change {
        Change {
            path,
            kind,
            renamed_from: None,
            link_of: None,
            file_type,
            ino: None,
            old: None,
            new: None,
            xattrs: Vec::new(),
            more_xattrs: 0,
            data: Vec::new(),
            data_is_coarse: false,
        }
    }

    /// Returns whether mode, owner, size, times or flags differ, for a file in both snapshots.
    pub fn has_other_attributes(&self) -> bool {
        let both = self.old.zip(self.new);
        both.is_some_and(|(old, new)| old != new)
    }

    /// Returns whether a file with an unchanged name has no reported difference.
    pub(super) fn is_nothing(&self) -> bool {
        self.kind == ChangeKind::Changed
            && self.old == self.new
            && self.xattrs.is_empty()
            && self.data.is_empty()
    }
}

impl FileAttributes {
    pub(super) fn of(item: &InodeItem, file_type: FileKind) -> FileAttributes {
        let internal = InodeFlags::PREALLOC | InodeFlags::ROOT_ITEM_INIT;
        let device = DeviceNumber::from_inode(item.rdev.get());
        let time = |time| SystemTime::from(FileTime::from(time));
        FileAttributes {
            len: match file_type {
                FileKind::Directory => 0,
                _ => item.size.get(),
            },
            mode: item.mode.get() & 0o7777,
            uid: item.uid.get(),
            gid: item.gid.get(),
            nlink: item.nlink.get(),
            rdev: rustix::fs::makedev(device.major, device.minor),
            flag_bits: (item.flags() - internal).bits(),
            accessed: time(item.atime),
            modified: time(item.mtime),
            changed: time(item.ctime),
            created: time(item.otime),
        }
    }
}

/// A file kind as its byte in directory entries.
mod file_kind {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use ubtrfs_format::item::FileKind;

    pub(super) fn serialize<S: Serializer>(kind: &FileKind, to: S) -> Result<S::Ok, S::Error> {
        kind.raw().serialize(to)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<FileKind, D::Error> {
        let kind = FileKind::from_raw(u8::deserialize(from)?);
        kind.ok_or_else(|| D::Error::custom("file kind"))
    }
}

/// A path of any bytes. A `PathBuf` would have to be UTF-8.
mod any_path {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        path.as_ref().map(|path| path.as_os_str()).serialize(to)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(
        from: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        let path: Option<OsString> = Deserialize::deserialize(from)?;
        Ok(path.map(PathBuf::from))
    }
}

/// A time, which may be before 1970.
mod time {
    use std::time::SystemTime;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use ubtrfs_format::item::FileTime;

    pub(super) fn serialize<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
        let FileTime { sec, nsec } = FileTime::from(*time);
        (sec, nsec).serialize(to)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<SystemTime, D::Error> {
        let (sec, nsec) = Deserialize::deserialize(from)?;
        Ok(FileTime { sec, nsec }.into())
    }
}

//! A change, in its reported form.

use serde::{Deserialize, Serialize};
use ubtrfs_format::item::{FileKind, InodeItem, Timespec};

/// A change of a name or of the inode that it refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffEntry {
    /// Path from the root of the snapshot, without a leading slash; "" is the root itself. A removed entry has its
    /// path in the old snapshot, all others in the new one.
    #[serde(skip)]
    pub path: Vec<u8>,
    pub kind: ChangeKind,
    /// The old path of a renamed entry.
    pub renamed_from: Option<Vec<u8>>,
    /// If a hard link was added or removed: a path of the same file in the new snapshot that is unchanged.
    pub link_of: Option<Vec<u8>>,
    /// A nested subvolume is a directory.
    #[serde(with = "file_kind")]
    pub file_type: FileKind,
    /// None for a nested subvolume, which a snapshot contains as an empty directory.
    pub inode: Option<u64>,
    /// In the old snapshot.
    pub old: Option<Attributes>,
    /// In the new snapshot.
    pub new: Option<Attributes>,
    /// Changed extended attributes, if the file exists in both snapshots.
    pub xattrs: Vec<XattrChange>,
    /// How many more attributes have changed than are listed.
    pub more_xattrs: u64,
    /// Ranges of the file that were written, if it exists in both snapshots.
    pub data: Vec<ByteRange>,
    /// Whether there were too many ranges, so that some close ranges were merged.
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

/// Seconds since 1970, and nanoseconds.
pub type DiffTime = (i64, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Bytes; 0 for a directory.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    /// Device number in on-disk format: 12 bits of major number above 20 of minor number.
    pub rdev: u64,
    /// Inode flags, without internal flags of the file system.
    pub flags: u64,
    pub atime: DiffTime,
    pub mtime: DiffTime,
    pub ctime: DiffTime,
    pub otime: DiffTime,
}

impl Attributes {
    pub(super) fn of(item: &InodeItem, file_type: FileKind) -> Attributes {
        use ubtrfs_format::item::InodeFlags;
        let time = |time: Timespec| (time.sec.get(), time.nsec.get());
        let internal = InodeFlags::PREALLOC | InodeFlags::ROOT_ITEM_INIT;
        Attributes {
            size: match file_type {
                FileKind::Directory => 0,
                _ => item.size.get(),
            },
            mode: item.mode.get() & 0o7777,
            uid: item.uid.get(),
            gid: item.gid.get(),
            links: item.nlink.get(),
            rdev: item.rdev.get(),
            flags: (item.flags() - internal).bits(),
            atime: time(item.atime),
            mtime: time(item.mtime),
            ctime: time(item.ctime),
            otime: time(item.otime),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XattrChange {
    pub name: Vec<u8>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteRange {
    pub start: u64,
    pub end: u64,
}

impl DiffEntry {
    /// Creates an entry with only a name.
    pub(super) fn new(path: Vec<u8>, kind: ChangeKind, file_type: FileKind) -> DiffEntry {
        DiffEntry {
            path,
            kind,
            renamed_from: None,
            link_of: None,
            file_type,
            inode: None,
            old: None,
            new: None,
            xattrs: Vec::new(),
            more_xattrs: 0,
            data: Vec::new(),
            data_is_coarse: false,
        }
    }

    /// Returns whether a file with an unchanged name has no reported difference.
    pub(super) fn is_nothing(&self) -> bool {
        self.kind == ChangeKind::Changed
            && self.old == self.new
            && self.xattrs.is_empty()
            && self.data.is_empty()
    }
}

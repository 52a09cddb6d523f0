//! Differences between two snapshots.

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::SystemTime;

use ubtrfs_fs::{FileKind, FileTime, Snapshot as HeldSnapshot};
use ubtrfs_stream::{Attributes, Diff, DiffEntry, DiffError};

use crate::error::{Naming, Result};
use crate::transfer::host_device;

/// The memory for changes in bytes. Further changes go to a temporary file.
const MEMORY_BYTES: usize = 32 << 20;

/// An iterator over the changes between two snapshots, in the order of paths.
///
/// Memory use does not depend on the number of changes.
///
/// ```
/// use std::path::Path;
/// use ubtrfs::{Access, ChangeKind, Snapshot, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let data = volume.root().create_subvolume("/data")?;
/// data.write("/old", b"content")?;
/// let before = Snapshot::open(&data.snapshot("/", "/before", Access::ReadOnly)?)?;
/// data.rename("/old", "/new")?;
/// let after = Snapshot::open(&data.snapshot("/", "/after", Access::ReadOnly)?)?;
///
/// let changes = after.changes_since(&before)?.collect::<Result<Vec<_>, _>>()?;
/// let renamed = changes.iter().find(|change| change.kind == ChangeKind::Renamed);
/// let renamed = renamed.expect("there is one");
/// assert_eq!(renamed.path, Path::new("new"));
/// assert_eq!(renamed.renamed_from.as_deref(), Some(Path::new("old")));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Changes {
    /// `None` after an error.
    diff: Option<Diff>,
}

impl Changes {
    pub(crate) fn new(
        old: &HeldSnapshot,
        new: &HeldSnapshot,
    ) -> std::result::Result<Changes, DiffError> {
        let diff = Some(Diff::new(old, new, MEMORY_BYTES)?);
        Ok(Changes { diff })
    }
}

impl Iterator for Changes {
    type Item = Result<Change>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.diff.as_mut()?.next_entry();
        if next.is_err() {
            self.diff = None;
        }
        let change = next.map(|entry| entry.map(Change::of));
        change.naming_alone("compare snapshots").transpose()
    }
}

/// The kind of a change to a name. [`Changes`] has an example.
pub use ubtrfs_stream::ChangeKind;

/// A change of a name, or of its file. [`Changes`] has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The path from the root of the snapshot, without a leading slash; empty for the root itself. For a removed name
    /// it is the path in the old snapshot, otherwise in the new one.
    pub path: PathBuf,
    /// The path in the old snapshot of a renamed file.
    pub renamed_from: Option<PathBuf>,
    /// A name of the file in both snapshots, given in the new one, if a hard link was added or removed.
    pub link_of: Option<PathBuf>,
    /// The kind of the file. A nested subvolume counts as a directory.
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

/// The attributes of a file in one of two snapshots that are compared.
///
/// ```
/// use ubtrfs::{Access, Snapshot, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let data = volume.root().create_subvolume("/data")?;
/// data.write("/log", b"one")?;
/// let before = Snapshot::open(&data.snapshot("/", "/before", Access::ReadOnly)?)?;
/// data.write("/log", b"one, two")?;
/// let after = Snapshot::open(&data.snapshot("/", "/after", Access::ReadOnly)?)?;
///
/// let changes = after.changes_since(&before)?.collect::<Result<Vec<_>, _>>()?;
/// let log = changes.iter().find(|change| change.path.ends_with("log"));
/// let (old, new) = log.and_then(|log| log.old.zip(log.new)).expect("both have it");
/// assert_eq!((old.len, new.len), (3, 8));
/// assert!(old.modified < new.modified);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    pub accessed: SystemTime,
    /// The time of the last change of the content.
    pub modified: SystemTime,
    /// The time of the last change of content or attributes.
    pub changed: SystemTime,
    /// The time of creation.
    pub created: SystemTime,
}

/// A difference of one extended attribute.
///
/// ```
/// use ubtrfs::{Access, Snapshot, Volume, XattrChangeKind};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let data = volume.root().create_subvolume("/data")?;
/// data.write("/file", b"")?;
/// let before = Snapshot::open(&data.snapshot("/", "/before", Access::ReadOnly)?)?;
/// data.set_xattr("/file", "user.note", b"kept")?;
/// let after = Snapshot::open(&data.snapshot("/", "/after", Access::ReadOnly)?)?;
///
/// let changes = after.changes_since(&before)?.collect::<Result<Vec<_>, _>>()?;
/// let file = changes.iter().find(|change| change.path.ends_with("file"));
/// let xattr = &file.expect("it has changed").xattrs[0];
/// assert_eq!((xattr.name.to_str(), xattr.kind), (Some("user.note"), XattrChangeKind::Added));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct XattrChange {
    /// The name, namespace included.
    pub name: OsString,
    /// The kind of the difference.
    pub kind: XattrChangeKind,
}

/// The kind of a difference of an extended attribute. [`XattrChange`] has an example.
pub use ubtrfs_stream::XattrChangeKind;

impl Change {
    /// Returns whether mode, owner, size, times or flags differ, for a file in both snapshots.
    pub fn has_other_attributes(&self) -> bool {
        let both = self.old.zip(self.new);
        both.is_some_and(|(old, new)| old != new)
    }

    fn of(entry: DiffEntry) -> Change {
        let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
        let ranges = entry.data.into_iter();
        Change {
            kind: entry.kind,
            path: path(entry.path),
            renamed_from: entry.renamed_from.map(path),
            link_of: entry.link_of.map(path),
            file_type: entry.file_type,
            ino: entry.inode,
            old: entry.old.as_ref().map(FileAttributes::of),
            new: entry.new.as_ref().map(FileAttributes::of),
            xattrs: entry.xattrs.into_iter().map(XattrChange::of).collect(),
            more_xattrs: entry.more_xattrs,
            data: ranges.map(|range| range.start..range.end).collect(),
            data_is_coarse: entry.data_is_coarse,
        }
    }
}

impl FileAttributes {
    fn of(attributes: &Attributes) -> FileAttributes {
        let time = |(sec, nsec)| SystemTime::from(FileTime { sec, nsec });
        FileAttributes {
            len: attributes.size,
            mode: attributes.mode,
            uid: attributes.uid,
            gid: attributes.gid,
            nlink: attributes.links,
            rdev: host_device(attributes.rdev),
            flag_bits: attributes.flags,
            accessed: time(attributes.atime),
            modified: time(attributes.mtime),
            changed: time(attributes.ctime),
            created: time(attributes.otime),
        }
    }
}

impl XattrChange {
    fn of(change: ubtrfs_stream::XattrChange) -> XattrChange {
        XattrChange {
            name: OsString::from_vec(change.name),
            kind: change.kind,
        }
    }
}

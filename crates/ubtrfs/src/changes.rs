//! Differences between two snapshots.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ubtrfs_engine::{FileKind, Snapshot as HeldSnapshot};
use ubtrfs_stream::{ChangeKind as Kind, Diff, DiffEntry, DiffError, EntryType};

use crate::error::{Naming, Result};
use crate::metadata::FileType;

/// Changes that are kept in memory, in bytes. More lie in a temporary file.
const MEMORY_BYTES: usize = 32 << 20;

/// An iterator over the changes between two snapshots, in the order of paths.
///
/// Memory does not grow with what differs.
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
    /// None after an error.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// It is gone.
    Removed,
    /// It is new.
    Added,
    /// Its file had another name before.
    Renamed,
    /// The name is as it was, and its file is not.
    Changed,
}

/// A change of a name, or of what it leads to. [`Changes`] has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The path from the root of the snapshot, without a slash before it; empty for the root itself. Of a removed name it is
    /// that in the old snapshot, else that in the new one.
    pub path: PathBuf,
    /// The path in the old snapshot of what was renamed.
    pub renamed_from: Option<PathBuf>,
    /// A path in the new snapshot under which the file was and is, where a hard link was added or removed.
    pub link_of: Option<PathBuf>,
    /// The kind of the file. The place of another subvolume is a directory.
    pub file_type: FileType,
    /// Mode, owner, size, times or flags differ, of a file that both snapshots have.
    pub has_other_attributes: bool,
    /// Names of extended attributes that differ, of a file that both snapshots have. Of very many, some are left out.
    pub xattrs: Vec<OsString>,
    /// Ranges of the new content that were written, of a file that both snapshots have. Of very many, some are joined.
    pub data: Vec<Range<u64>>,
}

impl Change {
    fn of(entry: DiffEntry) -> Change {
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        let names = entry.xattrs.iter().map(|xattr| &xattr.name);
        Change {
            kind: match entry.kind {
                Kind::Removed => ChangeKind::Removed,
                Kind::Added => ChangeKind::Added,
                Kind::Renamed => ChangeKind::Renamed,
                Kind::Changed => ChangeKind::Changed,
            },
            path: path(&entry.path),
            renamed_from: entry.renamed_from.as_deref().map(path),
            link_of: entry.link_of.as_deref().map(path),
            file_type: FileType::new(kind_of(entry.entry_type)),
            has_other_attributes: entry.old.is_some()
                && entry.new.is_some()
                && entry.old != entry.new,
            xattrs: names
                .map(|name| OsStr::from_bytes(name).to_owned())
                .collect(),
            data: entry
                .data
                .iter()
                .map(|range| range.start..range.end)
                .collect(),
        }
    }
}

fn kind_of(entry_type: EntryType) -> FileKind {
    match entry_type {
        EntryType::File => FileKind::Regular,
        EntryType::Directory | EntryType::Subvolume => FileKind::Directory,
        EntryType::Symlink => FileKind::Symlink,
        EntryType::CharDevice => FileKind::CharDevice,
        EntryType::BlockDevice => FileKind::BlockDevice,
        EntryType::Fifo => FileKind::Fifo,
        EntryType::Socket => FileKind::Socket,
    }
}

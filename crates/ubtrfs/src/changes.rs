//! Differences between two snapshots.

use ubtrfs_fs::Snapshot as HeldSnapshot;
use ubtrfs_stream::{Diff, DiffError};

use crate::error::{Naming, Result};

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
        let change = self.diff.as_mut()?.next_change();
        if change.is_err() {
            self.diff = None;
        }
        change.naming_alone("compare snapshots").transpose()
    }
}

/// The kind of a change to a name. [`Changes`] has an example.
pub use ubtrfs_stream::ChangeKind;

/// A change of a name, or of its file. [`Changes`] has an example.
pub use ubtrfs_stream::Change;

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
pub use ubtrfs_stream::FileAttributes;

/// A difference of one extended attribute.
///
/// ```
/// use ubtrfs::{Access, Snapshot, Volume, XattrChangeKind, XattrMode};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let data = volume.root().create_subvolume("/data")?;
/// data.write("/file", b"")?;
/// let before = Snapshot::open(&data.snapshot("/", "/before", Access::ReadOnly)?)?;
/// data.set_xattr("/file", "user.note", b"kept", XattrMode::Any)?;
/// let after = Snapshot::open(&data.snapshot("/", "/after", Access::ReadOnly)?)?;
///
/// let changes = after.changes_since(&before)?.collect::<Result<Vec<_>, _>>()?;
/// let file = changes.iter().find(|change| change.path.ends_with("file"));
/// let xattr = &file.expect("it has changed").xattrs[0];
/// assert_eq!((xattr.name.to_str(), xattr.kind), (Some("user.note"), XattrChangeKind::Added));
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_stream::XattrChange;

/// The kind of a difference of an extended attribute. [`XattrChange`] has an example.
pub use ubtrfs_stream::XattrChangeKind;

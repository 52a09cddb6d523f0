//! Listing a directory in batches.
//!
//! Invariants
//! - ENTRY-PATH-1: the path of an entry is below the path of its directory, regardless of its name.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubtrfs_fs::{DirEntry as EngineEntry, Error as EngineError, FileId, FileKind, SetAttr};

use crate::error::{Naming, Result};
use crate::handle::Engine;
use crate::metadata::Metadata;
use crate::transfer::walk::is_component;

#[cfg(test)]
mod tests;

/// The number of entries that are read at a time.
const BATCH: usize = 256;
/// The inode number in the kernel of the empty directory for a subvolume that a snapshot did not copy.
const EMPTY_SUBVOLUME_DIR_INO: u64 = 2;

/// An iterator over the entries of a directory, in the order of their creation.
///
/// Memory use does not depend on the directory. Names that are added concurrently may be left out, so it always ends.
///
/// ```
/// use ubtrfs::Volume;
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.write("/one", b"")?;
/// root.create_dir("/two")?;
/// for entry in root.read_dir("/")? {
///     let entry = entry?;
///     assert_eq!(entry.file_type().is_dir(), entry.file_name() == "two");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ReadDir {
    engine: Engine,
    dir: FileId,
    path: Arc<Path>,
    batch: VecDeque<EngineEntry>,
    /// The first index of the next batch.
    next: u64,
    /// The exclusive upper bound of indexes when the listing began.
    end: u64,
    /// Returned after the entries that were read before it.
    failure: Option<EngineError>,
}

impl ReadDir {
    /// Reads the first entries, so that a path that is not a directory fails at once.
    pub(crate) fn new(
        engine: &Engine,
        dir: FileId,
        path: &Path,
    ) -> std::result::Result<ReadDir, EngineError> {
        let mut listing = ReadDir {
            engine: engine.clone(),
            dir,
            path: path.into(),
            batch: VecDeque::new(),
            next: 0,
            end: u64::MAX,
            failure: None,
        };
        listing.fill();
        if listing.batch.is_empty()
            && let Some(failure) = listing.failure.take()
        {
            return Err(failure);
        }
        listing.end = engine.dir_end(dir)?;
        Ok(listing)
    }

    fn fill(&mut self) {
        let ReadDir {
            batch, next, end, ..
        } = self;
        let mut has_more = false;
        let listed = self.engine.readdir(self.dir, *next, &mut |entry| {
            if entry.index >= *end {
                return ControlFlow::Break(());
            }
            *next = entry.index.saturating_add(1);
            batch.push_back(entry);
            has_more = batch.len() == BATCH;
            if has_more {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        if listed.is_err() || !has_more {
            self.next = self.end;
        }
        self.failure = listed.err();
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.is_empty() && self.next < self.end {
            self.fill();
        }
        let Some(entry) = self.batch.pop_front() else {
            let failure = self.failure.take()?;
            return Some(Err(failure).naming("list", &self.path));
        };
        Some(Ok(DirEntry::new(
            &self.engine,
            Arc::clone(&self.path),
            entry,
        )))
    }
}

/// An entry of a directory, like [`std::fs::DirEntry`].
///
/// ```
/// use std::path::Path;
/// use ubtrfs::Volume;
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// volume.root().create_dir("/dir")?;
/// volume.root().write("/dir/file", b"content")?;
/// let entry = volume.root().read_dir("/dir")?.next().expect("there is one")?;
/// assert_eq!(entry.path(), Path::new("/dir/file"));
/// assert_eq!(entry.metadata()?.len(), 7);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DirEntry {
    pub(crate) engine: Engine,
    dir: Arc<Path>,
    entry: EngineEntry,
}

impl DirEntry {
    pub(crate) fn new(engine: &Engine, dir: Arc<Path>, entry: EngineEntry) -> DirEntry {
        DirEntry {
            engine: engine.clone(),
            dir,
            entry,
        }
    }

    /// Returns the handle of the file for the engine.
    pub(crate) fn id(&self) -> FileId {
        self.entry.id
    }

    /// Returns the name within the directory.
    pub fn file_name(&self) -> OsString {
        OsStr::from_bytes(&self.entry.name).to_owned()
    }

    /// Returns the path of the directory, as it was given, joined with the name.
    ///
    /// A damaged volume may contain invalid names, such as `..` or a name with a slash. They are escaped here, so that
    /// the path cannot lead out of the directory. [`DirEntry::file_name`] has the bytes of the volume.
    pub fn path(&self) -> PathBuf {
        // ENTRY-PATH-1
        if is_component(&self.entry.name) {
            self.dir.join(OsStr::from_bytes(&self.entry.name))
        } else {
            self.dir.join(OsString::from_vec(escaped(&self.entry.name)))
        }
    }

    /// Returns the kind of the file. A link is not followed.
    pub fn file_type(&self) -> FileKind {
        self.entry.kind
    }

    /// Returns the inode number, unique within its subvolume.
    pub fn ino(&self) -> u64 {
        let id = self.entry.id;
        if id.is_empty_subvolume_dir() {
            EMPTY_SUBVOLUME_DIR_INO
        } else {
            id.ino.0
        }
    }

    /// Returns whether it is the root of a subvolume.
    pub fn is_subvolume(&self) -> bool {
        let id = self.entry.id;
        !id.is_empty_subvolume_dir() && self.engine.root_dir(id.root).is_ok_and(|root| root == id)
    }

    /// Reads the metadata of the file. A link is not followed.
    ///
    /// # Errors
    ///
    /// The file no longer exists, or the volume cannot be read.
    pub fn metadata(&self) -> Result<Metadata> {
        let metadata = Metadata::of_engine(&self.engine, self.entry.id);
        metadata.naming("read the attributes of", &self.path())
    }

    /// Reads the target of a symbolic link.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::read_link`](crate::Subvolume::read_link).
    pub fn read_link(&self) -> Result<PathBuf> {
        let target = self.engine.readlink(self.entry.id);
        let target = target.naming("read the link", &self.path())?;
        Ok(OsString::from_vec(target).into())
    }

    /// Reads an extended attribute of the file, without a new path lookup. A link is not followed.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::symlink_xattr`](crate::Subvolume::symlink_xattr).
    pub fn xattr(&self, name: impl AsRef<OsStr>) -> Result<Option<Vec<u8>>> {
        let value = self.engine.xattr(self.entry.id, name.as_ref().as_bytes());
        value.naming("read an attribute of", &self.path())
    }

    /// Sets the permission bits of the file, without a new path lookup. A link is not followed.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::set_permissions`](crate::Subvolume::set_permissions).
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        let _entered = self.engine.enter();
        let set = SetAttr {
            mode: Some(permissions.mode()),
            ..SetAttr::default()
        };
        let set = self.engine.set_attr(self.entry.id, &set);
        set.naming("set the permissions of", &self.path())
    }

    /// Sets user and group of the file, without a new path lookup. A link is not followed; `None` leaves an id
    /// unchanged.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::lchown`](crate::Subvolume::lchown).
    pub fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let _entered = self.engine.enter();
        let given = give(&self.engine, self.entry.id, uid, gid);
        given.naming("change the owner of", &self.path())
    }
}

/// Replaces an invalid path component by a valid one.
fn escaped(name: &[u8]) -> Vec<u8> {
    let is_dots = matches!(name, b"." | b"..");
    let mut escaped = Vec::new();
    for &byte in name {
        match byte {
            b'/' => escaped.extend(b"\\x2f"),
            0 => escaped.extend(b"\\x00"),
            b'.' if is_dots => escaped.extend(b"\\x2e"),
            byte => escaped.push(byte),
        }
    }
    if escaped.is_empty() {
        b"\\".to_vec()
    } else {
        escaped
    }
}

/// Sets user and group of a file, and clears its set-user-id bit.
pub(crate) fn give(
    engine: &Engine,
    id: FileId,
    uid: Option<u32>,
    gid: Option<u32>,
) -> std::result::Result<(), EngineError> {
    let is_dir = engine.attr(id)?.kind == FileKind::Directory;
    let set = SetAttr {
        uid,
        gid,
        clear_setid: !is_dir,
        ..SetAttr::default()
    };
    engine.set_attr(id, &set)
}

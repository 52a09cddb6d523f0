//! Subvolumes, at whose root paths begin, and their attributes.

mod info;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{Error as EngineError, FileId, LastName, NewInode, PathEnd};

use crate::error::{Cause, Caused, Naming, Result};
use crate::handle::Engine;

pub use info::SubvolumeInfo;

/// Permission bits of a new directory.
pub(crate) const DIR_PERMISSIONS: u32 = 0o755;
/// The bits of a mode that are permissions.
pub(crate) const PERMISSIONS: u32 = 0o7777;

/// The access that a snapshot allows.
///
/// ```
/// use std::io::ErrorKind;
/// use ubtrfs::{Access, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let data = volume.root().create_subvolume("/data")?;
/// let kept = data.snapshot("/", "/kept", Access::ReadOnly)?;
/// let work = data.snapshot("/", "/work", Access::Writable)?;
/// work.write("/file", b"content")?;
/// let refused = kept.write("/file", b"content").unwrap_err();
/// assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read-only. Only such a snapshot can be sent and compared.
    ReadOnly,
    /// Writable, like a new subvolume.
    Writable,
}

/// A subvolume: a tree of files. Its methods with paths work like the functions of [`std::fs`].
///
/// Paths begin at the root of the subvolume, with or without a leading slash, and otherwise have the same meaning as in
/// `std::fs`. The working directory is always the root, and nothing is above it. Paths may lead through nested
/// subvolumes. Cheap to clone: clones are the same subvolume, and keep their volume open.
///
/// No permission is checked: the program may do everything. New files belong to user and group 0, and no umask applies.
///
/// ```
/// use ubtrfs::{Access, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let data = volume.root().create_subvolume("/data")?;
/// data.write("/notes", b"first")?;
/// volume.root().snapshot("/data", "/before", Access::ReadOnly)?;
/// data.write("/notes", b"second")?;
/// assert_eq!(volume.root().read("/before/notes")?, b"first");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Subvolume {
    pub(crate) engine: Engine,
    pub(crate) root: FileId,
}

/// Returns the bytes of a path for the engine (PATHS-1).
pub(crate) fn bytes(path: &Path) -> Caused<&[u8]> {
    // PATHS-1
    match path.as_os_str().as_bytes() {
        b"" => Err(EngineError::NotFound.into()),
        bytes if bytes.contains(&0) => Err(EngineError::Invalid("path: it holds a NUL").into()),
        bytes => Ok(bytes),
    }
}

impl Subvolume {
    pub(crate) fn of_id(
        engine: &Engine,
        id: RootId,
    ) -> std::result::Result<Subvolume, EngineError> {
        Ok(Subvolume {
            root: engine.root_dir(id)?,
            engine: engine.clone(),
        })
    }

    /// Returns the id of the subvolume within its volume. The top level has 5.
    pub fn id(&self) -> u64 {
        self.root.root.0
    }

    /// Reads the attributes of the subvolume.
    ///
    /// # Errors
    ///
    /// It was deleted, or the volume cannot be read.
    pub fn info(&self) -> Result<SubvolumeInfo> {
        let id = self.root.root;
        let info = self.engine.subvolume_info(id);
        let info = info.and_then(|info| info.ok_or(EngineError::NoSuchSubvolume(id)));
        let found = info.map(|info| SubvolumeInfo::of(&self.engine, &info));
        found.naming_alone("examine subvolume")
    }

    /// Opens the subvolume at `path`.
    ///
    /// # Errors
    ///
    /// There is no subvolume at `path`.
    pub fn subvolume(&self, path: impl AsRef<Path>) -> Result<Subvolume> {
        let path = path.as_ref();
        let opened = self
            .subvolume_at(path)
            .and_then(|id| Ok(Subvolume::of_id(&self.engine, id)?));
        opened.naming("open subvolume", path)
    }

    /// Creates an empty subvolume, and commits.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::create_dir`] and [`Volume::sync`](crate::Volume::sync).
    pub fn create_subvolume(&self, path: impl AsRef<Path>) -> Result<Subvolume> {
        let _entered = self.engine.enter();
        let path = path.as_ref();
        let made = self.name_for_dir(path).and_then(|(dir, name)| {
            let root = NewInode::directory(DIR_PERMISSIONS);
            let id = self.engine.create_subvolume(dir, &name, &root)?;
            Ok(Subvolume::of_id(&self.engine, id)?)
        });
        made.naming("create subvolume", path)
    }

    /// Creates a snapshot at `to` of the subvolume at `of`, including all earlier writes, and commits.
    ///
    /// It costs one block, regardless of the size. Nested subvolumes are not included; the snapshot has empty
    /// directories in their place. The path `/` is this subvolume itself.
    ///
    /// # Errors
    ///
    /// There is no subvolume at `of`, `to` exists, and the errors of [`Volume::sync`](crate::Volume::sync).
    pub fn snapshot(
        &self,
        of: impl AsRef<Path>,
        to: impl AsRef<Path>,
        access: Access,
    ) -> Result<Subvolume> {
        let _entered = self.engine.enter();
        let (of, to) = (of.as_ref(), to.as_ref());
        let made = self.subvolume_at(of).and_then(|source| {
            let (dir, name) = self.name_for_dir(to)?;
            let read_only = access == Access::ReadOnly;
            let id = self.engine.snapshot(source, dir, &name, read_only)?;
            Ok(Subvolume::of_id(&self.engine, id)?)
        });
        made.naming_both("snapshot", of, to)
    }

    /// Deletes a subvolume with all its contents. It must not contain nested subvolumes. Its space is freed in the
    /// background.
    ///
    /// # Errors
    ///
    /// There is no subvolume at this path, it contains other subvolumes, or it is the default subvolume.
    pub fn delete_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        let _entered = self.engine.enter();
        let path = path.as_ref();
        let deleted = self.dir_to_remove(path).and_then(|(end, name)| {
            self.engine.delete_subvolume(end.dir, &name)?;
            Ok(())
        });
        deleted.naming("delete subvolume", path)
    }

    /// Returns whether the subvolume is read-only.
    ///
    /// # Errors
    ///
    /// It was deleted.
    pub fn is_read_only(&self) -> Result<bool> {
        let tree = self.engine.subvolume_tree(self.root.root);
        let is_read_only = tree.map(|tree| tree.is_read_only());
        is_read_only.naming_alone("examine subvolume")
    }

    /// Makes the subvolume read-only, including all earlier writes, or writable.
    ///
    /// # Errors
    ///
    /// It was deleted, the volume is read-only, or written data is lost. It shall become writable while a
    /// [`Snapshot`](crate::Snapshot) of it is open (`PermissionDenied`).
    pub fn set_read_only(&self, read_only: bool) -> Result<()> {
        let _entered = self.engine.enter();
        let set = self.engine.set_read_only(self.root.root, read_only);
        set.naming_alone("set the read-only flag of a subvolume")
    }

    /// Refuses handles of different volumes.
    pub(crate) fn check_same_volume(&self, other: &Subvolume) -> Caused<()> {
        if self.engine.is_same(&other.engine) {
            Ok(())
        } else {
            Err(Cause::OtherVolume)
        }
    }

    pub(crate) fn subvolume_at(&self, path: &Path) -> Caused<RootId> {
        let id = self.resolve(path)?;
        if self.is_root(id)? {
            Ok(id.root)
        } else {
            Err(EngineError::NotASubvolume.into())
        }
    }

    /// Returns whether a file is the root directory of its subvolume.
    fn is_root(&self, id: FileId) -> Caused<bool> {
        Ok(!id.is_empty_subvolume_dir() && self.engine.root_dir(id.root)? == id)
    }

    /// Finds the subvolume of the file at `path`: its id, and whether the file is its root directory. A link at the end
    /// of the path is not followed.
    ///
    /// Reads only the directories on the path, so that commands can name a damaged file or subvolume.
    ///
    /// # Errors
    ///
    /// `path` does not exist.
    #[doc(hidden)]
    pub fn find_subvolume(&self, path: impl AsRef<Path>) -> Result<(u64, bool)> {
        let path = path.as_ref();
        let found = self
            .resolve_link(path)
            .and_then(|id| Ok((id.root.0, self.is_root(id)?)));
        found.naming("find", path)
    }

    /// Finds the handle of the file at a path. Links are followed.
    pub(crate) fn resolve(&self, path: &Path) -> Caused<FileId> {
        Ok(self.engine.resolve_following(self.root, bytes(path)?)?)
    }

    /// Finds the handle of the file at a path. A link at the end is not followed.
    pub(crate) fn resolve_link(&self, path: &Path) -> Caused<FileId> {
        Ok(self.engine.resolve(self.root, bytes(path)?)?)
    }

    /// Finds the parent directory and the name at the end of a path. A link with that name is not followed.
    pub(crate) fn end_of(&self, path: &Path) -> Caused<PathEnd> {
        Ok(self.engine.resolve_end(self.root, bytes(path)?, false)?)
    }

    /// Finds the parent directory and the name of a new directory or subvolume.
    pub(crate) fn name_for_dir(&self, path: &Path) -> Caused<(FileId, Vec<u8>)> {
        let end = self.end_of(path)?;
        match end.last {
            LastName::Name(name) => Ok((end.dir, name)),
            _ => Err(EngineError::Exists.into()),
        }
    }

    /// Finds the end of the path of a directory to remove, and its name.
    pub(crate) fn dir_to_remove(&self, path: &Path) -> Caused<(PathEnd, Vec<u8>)> {
        let end = self.end_of(path)?;
        match &end.last {
            LastName::Name(name) => {
                let name = name.clone();
                Ok((end, name))
            }
            LastName::Current => Err(EngineError::Invalid("name").into()),
            LastName::Parent => Err(EngineError::NotEmpty(end.dir).into()),
            LastName::Root => Err(Cause::NoName(path.to_owned())),
        }
    }
}

//! Open directories: operations in them need no path, and may be checked for a caller.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubtrfs_format::ids::{InodeNr, Transid};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::rights::{Refused, Rights};
use ubtrfs_fs::{Error as EngineError, FileId, FileKind, FileTime, NewInode, ReceivedFrom};

use crate::caller::Caller;
use crate::dir_builder::DirBuilder;
use crate::error::{Caused, Naming, Result};
use crate::handle::Engine;
use crate::metadata::Metadata;
use crate::subvolume::{Access, PERMISSIONS, Subvolume, bytes};

/// An open directory. Names refer to this directory, even if it is renamed and another one gets its path.
///
/// A program that acts for others passes a [`Caller`]. Each operation then makes the permission checks of the kernel's
/// btrfs, on the same directory that it changes. Without a caller, everything is allowed.
///
/// A [`Subvolume`] that a method returns has the program's own rights, which are all rights. To act for the caller,
/// open a directory in it and pass the caller again.
///
/// ```
/// use ubtrfs::{Access, DirBuilder, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.create_dir("/home")?;
/// let home = root.open_dir("/home")?;
/// let work = home.create_subvolume("work", &DirBuilder::new().mode(0o700))?;
/// root.rename("/home", "/users")?;
/// home.snapshot(&work, "before", Access::ReadOnly)?;
/// assert!(root.subvolume("/users/before")?.is_read_only()?);
/// home.delete_subvolume("before")?;
/// assert!(!root.exists("/users/before")?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Dir {
    pub(crate) engine: Engine,
    pub(crate) id: FileId,
    /// The root of the subvolume of `open_dir`, where absolute paths of a caller begin.
    pub(crate) top: FileId,
    /// For messages.
    pub(crate) path: PathBuf,
    caller: Option<Arc<Caller>>,
}

/// The former location of a deleted subvolume. [`Dir::delete_itself`] has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubvolumePlace {
    /// The id of the subvolume that contains the directory.
    pub subvolume_id: u64,
    /// The inode number of the directory within that subvolume.
    pub ino: u64,
    /// The name in the directory.
    pub name: OsString,
}

impl Subvolume {
    /// Opens a directory. Links are followed.
    ///
    /// # Errors
    ///
    /// It does not exist, or is not a directory.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        let path = path.as_ref();
        let opened = self.resolve(path).and_then(|id| Dir::of(self, id, path));
        opened.naming("open directory", path)
    }
}

fn check_directory(engine: &Engine, id: FileId) -> Caused<()> {
    match engine.attr(id)?.kind {
        FileKind::Directory => Ok(()),
        _ => Err(EngineError::NotADirectory(id).into()),
    }
}

impl Dir {
    pub(crate) fn of(subvolume: &Subvolume, id: FileId, path: &Path) -> Caused<Dir> {
        check_directory(&subvolume.engine, id)?;
        Ok(Dir {
            engine: subvolume.engine.clone(),
            id,
            top: subvolume.root,
            path: path.to_owned(),
            caller: None,
        })
    }

    /// Creates the handle of a directory that a walk has found.
    pub(crate) fn listed(engine: &Engine, id: FileId, top: FileId, path: PathBuf) -> Dir {
        Dir {
            engine: engine.clone(),
            id,
            top,
            path,
            caller: None,
        }
    }

    /// Returns the inode number of the directory, unique within its subvolume.
    pub fn ino(&self) -> u64 {
        if self.id.is_empty_subvolume_dir() {
            InodeNr::EMPTY_SUBVOL_DIR.0
        } else {
            self.id.ino.0
        }
    }

    /// Returns the id of the subvolume that contains the directory, or whose root it is.
    pub fn subvolume_id(&self) -> u64 {
        self.id.root.0
    }

    /// Returns this directory for operations on behalf of a caller. Directories that are opened from it are for the
    /// same caller.
    #[must_use]
    pub fn with_caller(mut self, caller: &Caller) -> Dir {
        self.caller = Some(Arc::new(caller.clone()));
        self
    }

    pub(crate) fn rights(&self) -> Option<Rights<'_>> {
        Some(self.caller.as_ref()?.rights(&self.engine))
    }

    /// Reads the metadata of the directory.
    ///
    /// # Errors
    ///
    /// It was removed, or the volume cannot be read.
    pub fn metadata(&self) -> Result<Metadata> {
        let metadata = Metadata::of_engine(&self.engine, self.id);
        metadata.naming("read the attributes of", &self.path)
    }

    /// Reads an extended attribute of the directory.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::symlink_xattr`].
    pub fn xattr(&self, name: impl AsRef<OsStr>) -> Result<Option<Vec<u8>>> {
        let value = self.engine.xattr(self.id, name.as_ref().as_bytes());
        value.naming("read an attribute of", &self.path)
    }

    /// Reads the metadata of a file in the directory. A link is not followed.
    ///
    /// # Errors
    ///
    /// The name does not exist (`NotFound`), the file cannot be read, or the caller may not search the directory.
    pub fn symlink_metadata(&self, name: impl AsRef<OsStr>) -> Result<Metadata> {
        let name = name.as_ref();
        let found = self.check_search().and_then(|()| {
            let id = self.lookup(name)?.ok_or(EngineError::NotFound)?;
            Ok(Metadata::of_engine(&self.engine, id)?)
        });
        found.naming("read the attributes of", &self.path.join(name))
    }

    /// Opens a directory by its name or path relative to this one. Links are followed, within this subvolume: a path or
    /// link with a leading slash begins at its root. A caller must have the right to search each directory on the way.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::open_dir`], or the caller may not.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        let within = path.as_ref();
        let path = self.path.join(within);
        let opened = bytes(within).and_then(|within| {
            let rights = self.rights();
            let may_search = |dir| match rights {
                Some(rights) => rights.search(dir),
                None => Ok(()),
            };
            let found = self
                .engine
                .resolve_following_if(self.id, within, may_search);
            self.opened(found?, &path)
        });
        opened.naming("open directory", &path)
    }

    /// Creates the handle of a directory for the same caller.
    fn opened(&self, id: FileId, path: &Path) -> Caused<Dir> {
        check_directory(&self.engine, id)?;
        Ok(Dir {
            id,
            path: path.to_owned(),
            ..self.clone()
        })
    }

    /// Returns the subvolume whose root this directory is.
    ///
    /// # Errors
    ///
    /// It is not the root of a subvolume (`InvalidInput`).
    pub fn subvolume(&self) -> Result<Subvolume> {
        let root = self.must_be_root().map(|()| Subvolume {
            engine: self.engine.clone(),
            root: self.id,
        });
        root.naming("open subvolume", &self.path)
    }

    fn must_be_root(&self) -> Caused<()> {
        let is_empty = self.id.is_empty_subvolume_dir();
        if !is_empty && self.engine.root_dir(self.id.root)? == self.id {
            Ok(())
        } else {
            Err(EngineError::NotASubvolume.into())
        }
    }

    /// Makes the directory durable: its attributes, and the names in it.
    ///
    /// # Errors
    ///
    /// A device fails, as for [`File::sync_all`](crate::File::sync_all).
    pub fn sync_all(&self) -> Result<()> {
        let _entered = self.engine.enter();
        self.engine.fsync(self.id).naming("sync", &self.path)
    }

    fn lookup(&self, name: &OsStr) -> Caused<Option<FileId>> {
        Ok(self.engine.lookup(self.id, name.as_bytes())?)
    }

    /// Drafts a new directory, which belongs to the caller.
    fn new_inode(&self, builder: &DirBuilder) -> NewInode<'static> {
        let caller = self.caller.as_ref();
        let (uid, gid) = caller.map_or((0, 0), |caller| caller.owner());
        NewInode {
            uid,
            gid,
            umask: caller.map_or(builder.umask, |caller| caller.umask_bits()),
            ..NewInode::directory(builder.mode & PERMISSIONS)
        }
    }

    /// Checks that the caller may add a name here. Only callers that may search the directory learn whether the name
    /// exists.
    fn check_new(&self, name: &OsStr) -> Caused<()> {
        let Some(rights) = self.rights() else {
            return Ok(());
        };
        rights.search(self.id)?;
        if self.lookup(name)?.is_some() {
            return Err(EngineError::Exists.into());
        }
        Ok(rights.add_to(self.id)?)
    }

    /// Checks that the caller may look up names here.
    fn check_search(&self) -> Caused<()> {
        match self.rights() {
            Some(rights) => Ok(rights.search(self.id)?),
            None => Ok(()),
        }
    }

    /// Creates a directory in this one, with the mode of the builder. It belongs to the caller, whose umask replaces
    /// the umask of the builder.
    ///
    /// # Errors
    ///
    /// The name already exists, the volume is full or read-only, or the caller may not (`PermissionDenied`).
    pub fn create_dir(&self, name: impl AsRef<OsStr>, builder: &DirBuilder) -> Result<Dir> {
        let _entered = self.engine.enter();
        let name = name.as_ref();
        let path = self.path.join(name);
        let made = self.check_new(name).and_then(|()| {
            let new = self.new_inode(builder);
            let id = self.engine.create(self.id, name.as_bytes(), &new)?;
            self.opened(id, &path)
        });
        made.naming("create directory", &path)
    }

    /// Creates an empty subvolume in this directory, as [`Dir::create_dir`] creates a directory, and commits.
    ///
    /// # Errors
    ///
    /// As [`Dir::create_dir`] and [`Volume::sync`](crate::Volume::sync).
    pub fn create_subvolume(
        &self,
        name: impl AsRef<OsStr>,
        builder: &DirBuilder,
    ) -> Result<Subvolume> {
        let _entered = self.engine.enter();
        let name = name.as_ref();
        let made = self.check_new(name).and_then(|()| {
            let root = self.new_inode(builder);
            let made = self
                .engine
                .create_subvolume(self.id, name.as_bytes(), &root)?;
            Ok(Subvolume::of_id(&self.engine, made)?)
        });
        made.naming("create subvolume", &self.path.join(name))
    }

    /// Creates a snapshot of a subvolume in this directory, including all earlier writes, and commits. Only its owner
    /// and an administrator may.
    ///
    /// # Errors
    ///
    /// As [`Dir::create_subvolume`]; the subvolume belongs to another volume (`CrossesDevices`) or was deleted.
    pub fn snapshot(
        &self,
        source: &Subvolume,
        name: impl AsRef<OsStr>,
        access: Access,
    ) -> Result<Subvolume> {
        let _entered = self.engine.enter();
        let name = name.as_ref();
        let made = self.make_snapshot(source, name, access);
        made.naming("snapshot to", &self.path.join(name))
    }

    fn make_snapshot(&self, source: &Subvolume, name: &OsStr, access: Access) -> Caused<Subvolume> {
        if !self.engine.is_same(&source.engine) {
            return Err(crate::error::Cause::OtherVolume);
        }
        let id = source.root.root;
        if let Some(rights) = self.rights() {
            rights.own(self.engine.root_dir(id)?)?;
        }
        self.check_new(name)?;
        let is_read_only = access == Access::ReadOnly;
        let name = name.as_bytes();
        let made = self.engine.snapshot(id, self.id, name, is_read_only)?;
        Ok(Subvolume::of_id(&self.engine, made)?)
    }

    /// Deletes a subvolume in this directory with all its contents. It must not contain nested subvolumes. Its space is
    /// freed in the background.
    ///
    /// # Errors
    ///
    /// - the name does not exist (`NotFound`), or is not a subvolume (`InvalidInput`)
    /// - it contains other subvolumes (`DirectoryNotEmpty`), or is the default subvolume (`PermissionDenied`)
    /// - the caller may not ([`Caller::allow_deleting_subvolumes`], `PermissionDenied`)
    /// - the volume, or the subvolume of this directory, is read-only (`ReadOnlyFilesystem`)
    pub fn delete_subvolume(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let _entered = self.engine.enter();
        let (name, rights) = (name.as_ref(), self.rights());
        let deleted =
            self.engine
                .delete_subvolume_if(self.id, name.as_bytes(), |root| match rights {
                    Some(rights) => rights
                        .search(self.id)
                        .and_then(|()| rights.delete_subvolume(self.id, root)),
                    None => Ok::<(), Refused>(()),
                });
        let deleted = deleted.map(|_| ());
        deleted.naming("delete subvolume", &self.path.join(name))
    }

    /// Deletes the subvolume whose root this directory is, and returns its former location.
    ///
    /// ```
    /// use ubtrfs::Volume;
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let volume = Volume::in_memory(256 << 20)?;
    /// let root = volume.root();
    /// let id = root.create_subvolume("/old")?.id();
    /// let place = volume.subvolume_by_id(id)?.open_dir("/")?.delete_itself()?;
    /// assert_eq!((place.subvolume_id, place.name.to_str()), (5, Some("old")));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Dir::delete_subvolume`], with the rights to the parent directory. The directory is not the root of a
    /// subvolume (`InvalidInput`), or is the top level (`NotFound`).
    pub fn delete_itself(&self) -> Result<SubvolumePlace> {
        let _entered = self.engine.enter();
        let deleted = self.must_be_root().and_then(|()| {
            let rights = self.rights();
            let id = self.id.root;
            let place = self
                .engine
                .delete_subvolume_by_id(id, |dir, root| match rights {
                    Some(rights) => rights.delete_subvolume(dir, root),
                    None => Ok::<(), Refused>(()),
                })?;
            Ok(SubvolumePlace {
                subvolume_id: place.dir.root.0,
                ino: place.dir.ino.0,
                name: OsString::from_vec(place.name),
            })
        });
        deleted.naming("delete subvolume", &self.path)
    }

    fn owned(&self) -> Caused<()> {
        match self.rights() {
            Some(rights) => Ok(rights.own(self.id)?),
            None => Ok(()),
        }
    }

    /// Makes the subvolume whose root this directory is read-only, including all earlier writes, or writable. Only its
    /// owner and an administrator may.
    ///
    /// # Errors
    ///
    /// It is not the root of a subvolume, the volume is read-only, written data is lost, or the caller may not
    /// (`PermissionDenied`). It shall become writable while a [`Snapshot`](crate::Snapshot) of it is open
    /// (`PermissionDenied`).
    pub fn set_read_only(&self, read_only: bool) -> Result<()> {
        let _entered = self.engine.enter();
        let set = self.must_be_root().and_then(|()| {
            self.owned()?;
            Ok(self.engine.set_read_only(self.id.root, read_only)?)
        });
        set.naming("set the read-only flag of", &self.path)
    }

    /// Clears the received UUID of the subvolume whose root this directory is. Do this after changing a received
    /// subvolume, since no later difference applies to it.
    ///
    /// # Errors
    ///
    /// As [`Dir::set_read_only`]; the subvolume is read-only (`ReadOnlyFilesystem`).
    pub fn forget_received(&self) -> Result<()> {
        let _entered = self.engine.enter();
        let nothing = ReceivedFrom {
            uuid: Uuid::default(),
            transid: Transid(0),
            time: FileTime::default(),
        };
        let set = self.must_be_root().and_then(|()| {
            self.owned()?;
            self.engine.set_received(self.id.root, &nothing)?;
            Ok(())
        });
        set.naming("forget the origin of", &self.path)
    }
}

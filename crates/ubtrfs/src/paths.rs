//! The operations of `std::fs`, by path within the subvolume.
//!
//! Invariants
//! - PATHS-1: paths have the same meaning as in `std::fs`, with the root of the subvolume as root and working
//!   directory. "" is no file, a slash at the end requires a directory, and a NUL is invalid.
//!
//! Not here: attributes (`attributes`), opening and copying files (`opening`), removing whole trees (`removal`).

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::Error as EngineError;
use ubtrfs_fs::{CorruptItem, FileId, FileKind, LastName, NewInode, PathEnd, RenameMode};

use crate::dir_builder::DirBuilder;
use crate::error::{Cause, Caused, Naming, Result};
use crate::metadata::Metadata;
use crate::read_dir::ReadDir;
use crate::subvolume::{PERMISSIONS, Subvolume, bytes};
use crate::transfer::device_of_host;

/// Returns the parent directory and the name of a new file other than a directory.
fn name_for_file(end: PathEnd) -> Caused<(FileId, Vec<u8>)> {
    match end.last {
        LastName::Name(_) if end.has_slash && end.id.is_none() => Err(EngineError::NotFound.into()),
        LastName::Name(name) if !end.has_slash => Ok((end.dir, name)),
        _ => Err(EngineError::Exists.into()),
    }
}

impl Subvolume {
    /// Reads the metadata of a file. Links are followed.
    ///
    /// # Errors
    ///
    /// The file does not exist, or the volume cannot be read.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        let path = path.as_ref();
        let metadata = self.resolve(path).and_then(|id| self.metadata_of(id));
        metadata.naming("read the attributes of", path)
    }

    /// Reads the metadata of a file. A link at the end of the path is not followed.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::metadata`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        let path = path.as_ref();
        let metadata = self.resolve_link(path).and_then(|id| self.metadata_of(id));
        metadata.naming("read the attributes of", path)
    }

    fn metadata_of(&self, id: FileId) -> Caused<Metadata> {
        Ok(Metadata::of_engine(&self.engine, id)?)
    }

    /// Returns whether a file exists at a path. Links are followed, and a dangling link does not exist.
    ///
    /// # Errors
    ///
    /// The volume cannot be read.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the absolute path of the same file without links, "." and "..".
    ///
    /// # Errors
    ///
    /// As [`Subvolume::metadata`].
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        self.canonical(path).naming("canonicalize", path)
    }

    fn canonical(&self, path: &Path) -> Caused<PathBuf> {
        let end = self.engine.resolve_end(self.root, bytes(path)?, true)?;
        if let (LastName::Name(name), Some(_), false) = (&end.last, end.id, end.has_slash) {
            let dir = self.path_of_dir(end.dir)?;
            return Ok(dir.join(OsStr::from_bytes(name)));
        }
        let id = self.resolve(path)?;
        match id.empty_subvolume_dir_parent() {
            Some(parent) => {
                let dir = self.path_of_dir(parent)?;
                let name = path.file_name().unwrap_or_default();
                Ok(dir.join(name))
            }
            None => self.path_of_dir(id),
        }
    }

    fn path_of_dir(&self, dir: FileId) -> Caused<PathBuf> {
        let mut names = Vec::new();
        let mut seen = HashSet::new();
        let mut at = dir;
        while at != self.root {
            let (parent, name) = match self.engine.subvolume_place(at.root)? {
                Some(place) if self.engine.root_dir(at.root)? == at => (place.dir, place.name),
                _ => self.engine.directory_name(at)?,
            };
            // A damaged volume may contain a loop of directories.
            if !seen.insert(at) {
                return Err(EngineError::Corrupt {
                    tree: at.root,
                    key: Key::new(at.ino.0, KeyType::INODE_ITEM, 0),
                    what: CorruptItem::Loop,
                }
                .into());
            }
            names.push(name);
            at = parent;
        }
        let mut path = PathBuf::from("/");
        path.extend(names.iter().rev().map(|name| OsStr::from_bytes(name)));
        Ok(path)
    }

    /// Creates a directory.
    ///
    /// # Errors
    ///
    /// A file already exists there, the parent directory does not exist, or the volume is full or read-only.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_dir_with(path, &DirBuilder::new())
    }

    /// Creates a directory and its missing parents.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::create_dir`], except that an existing directory is not an error.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_dir_with(path, &DirBuilder::new().recursive(true))
    }

    /// Creates a directory with the options of a builder.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::create_dir`] or [`Subvolume::create_dir_all`].
    pub fn create_dir_with(&self, path: impl AsRef<Path>, builder: &DirBuilder) -> Result<()> {
        let path = path.as_ref();
        if builder.recursive {
            self.mkdir_with_parents(path, builder)
        } else {
            self.mkdir(path, builder)
        }
    }

    fn mkdir(&self, path: &Path, builder: &DirBuilder) -> Result<()> {
        let _entered = self.engine.enter();
        let made = self.name_for_dir(path).and_then(|(dir, name)| {
            let new = NewInode {
                umask: builder.umask,
                ..NewInode::directory(builder.mode & PERMISSIONS)
            };
            self.engine.create(dir, &name, &new)?;
            Ok(())
        });
        made.naming("create directory", path)
    }

    fn mkdir_with_parents(&self, path: &Path, builder: &DirBuilder) -> Result<()> {
        let named = |dir: &&Path| !dir.as_os_str().is_empty();
        let dirs: Vec<&Path> = path.ancestors().take_while(named).collect();
        // Goes up to the first one that exists or can be created, and down from there.
        let mut made = 0;
        for (above, dir) in dirs.iter().enumerate() {
            match self.mkdir_unless_exists(dir, builder) {
                Err(error) if error.kind() == ErrorKind::NotFound && above + 1 < dirs.len() => {}
                outcome => {
                    outcome?;
                    made = above;
                    break;
                }
            }
        }
        let mut missing = dirs[..made].iter().rev();
        missing.try_for_each(|dir| self.mkdir_unless_exists(dir, builder))
    }

    fn mkdir_unless_exists(&self, dir: &Path, builder: &DirBuilder) -> Result<()> {
        match self.mkdir(dir, builder) {
            Err(_) if self.is_dir(dir) => Ok(()),
            made => made,
        }
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.metadata(path).is_ok_and(|metadata| metadata.is_dir())
    }

    /// Lists a directory.
    ///
    /// # Errors
    ///
    /// It is not a directory, does not exist, or cannot be read.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let listed = self
            .resolve(path)
            .and_then(|id| Ok(ReadDir::new(&self.engine, id, path)?));
        listed.naming("list", path)
    }

    /// Removes the name of a file other than a directory. Links are not followed.
    ///
    /// # Errors
    ///
    /// It does not exist, or is a directory, or an immutable or append-only file.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let _entered = self.engine.enter();
        let path = path.as_ref();
        self.unlink(path).naming("remove", path)
    }

    fn unlink(&self, path: &Path) -> Caused<()> {
        let end = self.end_of(path)?;
        let LastName::Name(name) = end.last else {
            return Err(EngineError::IsADirectory(end.dir).into());
        };
        if end.has_slash {
            let id = end.id.ok_or(EngineError::NotFound)?;
            return Err(match self.engine.attr(id)?.kind {
                FileKind::Directory => EngineError::IsADirectory(id).into(),
                _ => EngineError::NotADirectory(id).into(),
            });
        }
        Ok(self.engine.unlink(end.dir, &name)?)
    }

    /// Removes an empty directory. An empty subvolume is deleted with it.
    ///
    /// # Errors
    ///
    /// It is not empty, is not a directory, or does not exist.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let _entered = self.engine.enter();
        let path = path.as_ref();
        let removed = self.dir_to_remove(path).and_then(|(end, name)| {
            self.engine.rmdir(end.dir, &name)?;
            Ok(())
        });
        removed.naming("remove directory", path)
    }

    /// Renames a file, directory or subvolume. An existing file at `to` is replaced, and so is an empty directory by
    /// another directory.
    ///
    /// # Errors
    ///
    /// - `from` does not exist, or `to` cannot be replaced
    /// - a directory would move into itself
    /// - the directories belong to different subvolumes, and `from` is not a subvolume (`CrossesDevices`)
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from.as_ref(), to.as_ref(), RenameMode::Replace)
    }

    /// Renames without replacing an existing file.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::rename`]; `to` exists (`AlreadyExists`).
    pub fn rename_no_replace(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from.as_ref(), to.as_ref(), RenameMode::NoReplace)
    }

    /// Exchanges the files of two names atomically.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::rename`]; `to` does not exist.
    pub fn rename_exchange(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from.as_ref(), to.as_ref(), RenameMode::Exchange)
    }

    fn rename_with(&self, from: &Path, to: &Path, mode: RenameMode) -> Result<()> {
        let _entered = self.engine.enter();
        let moved = self.rename_paths(from, to, mode);
        moved.naming_both("rename", from, to)
    }

    fn rename_paths(&self, from: &Path, to: &Path, mode: RenameMode) -> Caused<()> {
        let (old, new) = (self.end_of(from)?, self.end_of(to)?);
        let LastName::Name(name) = &old.last else {
            return Err(Cause::NoName(from.to_owned()));
        };
        let LastName::Name(new_name) = &new.last else {
            return Err(match mode {
                RenameMode::NoReplace => EngineError::Exists.into(),
                _ => Cause::NoName(to.to_owned()),
            });
        };
        let id = old.id.ok_or(EngineError::NotFound)?;
        let must_be_dir = old.has_slash || mode != RenameMode::Exchange && new.has_slash;
        if must_be_dir && self.engine.attr(id)?.kind != FileKind::Directory {
            return Err(EngineError::NotADirectory(id).into());
        }
        let to = (new.dir, &**new_name);
        Ok(self.engine.rename(old.dir, name, to, mode)?)
    }

    /// Creates a hard link to a file. Symbolic links are not followed.
    ///
    /// # Errors
    ///
    /// `link` exists, or `original` does not exist, is a directory, in another subvolume, immutable or append-only.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let _entered = self.engine.enter();
        let (original, link) = (original.as_ref(), link.as_ref());
        let linked = self.resolve_link(original).and_then(|id| {
            let (dir, name) = name_for_file(self.end_of(link)?)?;
            Ok(self.engine.link(id, dir, &name)?)
        });
        linked.naming_both("link", original, link)
    }

    /// Creates a symbolic link, whose target need not exist. An absolute target begins at the root of the subvolume.
    ///
    /// # Errors
    ///
    /// `link` exists, or the target is empty or too long.
    pub fn symlink(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let _entered = self.engine.enter();
        let (original, link) = (original.as_ref(), link.as_ref());
        let made = bytes(original).and_then(|target| {
            let (dir, name) = name_for_file(self.end_of(link)?)?;
            self.engine.create(dir, &name, &NewInode::symlink(target))?;
            Ok(())
        });
        made.naming("create link", link)
    }

    /// Reads the target of a symbolic link.
    ///
    /// # Errors
    ///
    /// It is not a link, or does not exist.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let id = self.resolve_link(path);
        let target = id.and_then(|id| Ok(self.engine.readlink(id)?));
        let target = target.naming("read the link", path)?;
        Ok(OsString::from_vec(target).into())
    }

    /// Creates a FIFO, a socket or a device file, like mknod(2): `mode` has the file type and the permissions. `rdev`
    /// is the number of a device.
    ///
    /// # Errors
    ///
    /// `path` exists, or `mode` has another file type.
    pub fn create_node(&self, path: impl AsRef<Path>, mode: u32, rdev: u64) -> Result<()> {
        let _entered = self.engine.enter();
        let path = path.as_ref();
        let made = self.end_of(path).and_then(|end| {
            let (dir, name) = name_for_file(end)?;
            match FileKind::from_mode(mode) {
                None | Some(FileKind::Directory | FileKind::Symlink) => {
                    return Err(EngineError::Invalid("mode").into());
                }
                Some(_) => {}
            }
            let new = NewInode {
                rdev: device_of_host(rdev).to_inode(),
                ..NewInode::with_mode(mode)
            };
            self.engine.create(dir, &name, &new)?;
            Ok(())
        });
        made.naming("create node", path)
    }
}

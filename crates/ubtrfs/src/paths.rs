//! The operations of `std::fs`, by paths within the subvolume.
//!
//! Invariants
//! - PATHS-1: a path means what it means to `std::fs`, with the root of the subvolume as root and working directory. ""
//!   names nothing, a slash at the end asks for a directory, a NUL is invalid.
//!
//! Not here: attributes (`attributes`), opening and copying files (`opening`), directories with all below (`removal`).

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ubtrfs_engine::Error as EngineError;
use ubtrfs_engine::{CorruptItem, FileId, FileKind, LastName, NewInode, PathEnd, RenameMode};
use ubtrfs_format::key::{Key, KeyType};

use crate::dir_builder::DirBuilder;
use crate::error::{Cause, Caused, Naming, Result};
use crate::metadata::Metadata;
use crate::read_dir::ReadDir;
use crate::subvolume::{PERMISSIONS, Subvolume, bytes};
use crate::transfer::DeviceNumber;

/// Returns the directory and the name where something other than a directory is made.
fn name_for_file(end: PathEnd) -> Caused<(FileId, Vec<u8>)> {
    match end.last {
        LastName::Name(_) if end.has_slash && end.id.is_none() => Err(EngineError::NotFound.into()),
        LastName::Name(name) if !end.has_slash => Ok((end.dir, name)),
        _ => Err(EngineError::Exists.into()),
    }
}

impl Subvolume {
    /// Reads what is known of a file. Links are followed.
    ///
    /// # Errors
    ///
    /// Nothing is there, or the volume cannot be read.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        let path = path.as_ref();
        let metadata = self.resolve(path).and_then(|id| self.metadata_of(id));
        metadata.naming("read the attributes of", path)
    }

    /// Reads what is known of a file. A link at the end of the path is not followed.
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

    /// Tells whether a path leads to a file through links. A link that leads nowhere does not.
    ///
    /// # Errors
    ///
    /// Whether there is one cannot be told.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Finds the path without links, "." and ".." that leads to the same file. It begins with a slash.
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
            // A damaged volume may have directories in a loop.
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

    /// Makes a directory.
    ///
    /// # Errors
    ///
    /// Something is there already, the directory above is missing, or the volume is full or read-only.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_dir_with(path, &DirBuilder::new())
    }

    /// Makes a directory and those above it as far as they are missing.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::create_dir`], but for a directory that is there.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_dir_with(path, &DirBuilder::new().recursive(true))
    }

    /// Makes a directory as the builder says.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::create_dir`] or [`Subvolume::create_dir_all`].
    pub fn create_dir_with(&self, path: impl AsRef<Path>, builder: &DirBuilder) -> Result<()> {
        let path = path.as_ref();
        match builder.recursive {
            true => self.make_missing_dirs(path, builder),
            false => self.make_dir(path, builder),
        }
    }

    fn make_dir(&self, path: &Path, builder: &DirBuilder) -> Result<()> {
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

    fn make_missing_dirs(&self, path: &Path, builder: &DirBuilder) -> Result<()> {
        let named = |dir: &&Path| !dir.as_os_str().is_empty();
        let dirs: Vec<&Path> = path.ancestors().take_while(named).collect();
        // Up to the first that is there or can be made, and from there down.
        let mut made = 0;
        for (above, dir) in dirs.iter().enumerate() {
            match self.make_or_find_dir(dir, builder) {
                Err(error) if error.kind() == ErrorKind::NotFound && above + 1 < dirs.len() => {}
                outcome => {
                    outcome?;
                    made = above;
                    break;
                }
            }
        }
        let mut missing = dirs[..made].iter().rev();
        missing.try_for_each(|dir| self.make_or_find_dir(dir, builder))
    }

    fn make_or_find_dir(&self, dir: &Path, builder: &DirBuilder) -> Result<()> {
        match self.make_dir(dir, builder) {
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
    /// It is no directory, is missing, or cannot be read.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let listed = self
            .resolve(path)
            .and_then(|id| Ok(ReadDir::new(&self.engine, id, path)?));
        listed.naming("list", path)
    }

    /// Removes the name of a file that is no directory; of a link itself.
    ///
    /// # Errors
    ///
    /// Nothing is there, or a directory, or an immutable or append-only file.
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
    /// It is not empty, is no directory, or is missing.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let _entered = self.engine.enter();
        let path = path.as_ref();
        let removed = self.dir_to_remove(path).and_then(|(end, name)| {
            self.engine.rmdir(end.dir, &name)?;
            Ok(())
        });
        removed.naming("remove directory", path)
    }

    /// Moves. A file of the new name is replaced, and so is an empty directory by another. Subvolumes move as well.
    ///
    /// # Errors
    ///
    /// - nothing is at `from`, or what is at `to` cannot be replaced
    /// - a directory would move into itself
    /// - the directories are of different subvolumes, and no subvolume moves (`CrossesDevices`)
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from.as_ref(), to.as_ref(), RenameMode::Replace)
    }

    /// Moves, and replaces nothing.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::rename`]; something is at `to` (`AlreadyExists`).
    pub fn rename_no_replace(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from.as_ref(), to.as_ref(), RenameMode::NoReplace)
    }

    /// Exchanges two names: each means afterwards what the other meant.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::rename`]; nothing is at `to`.
    pub fn rename_exchange(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from.as_ref(), to.as_ref(), RenameMode::Exchange)
    }

    fn rename_with(&self, from: &Path, to: &Path, mode: RenameMode) -> Result<()> {
        let _entered = self.engine.enter();
        let moved = self.move_name(from, to, mode);
        moved.naming_both("rename", from, to)
    }

    fn move_name(&self, from: &Path, to: &Path, mode: RenameMode) -> Caused<()> {
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

    /// Gives a file a further name; a link itself.
    ///
    /// # Errors
    ///
    /// Something is at `link`, or `original` is missing, a directory, in another subvolume, immutable or append-only.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let _entered = self.engine.enter();
        let (original, link) = (original.as_ref(), link.as_ref());
        let linked = self.resolve_link(original).and_then(|id| {
            let (dir, name) = name_for_file(self.end_of(link)?)?;
            Ok(self.engine.link(id, dir, &name)?)
        });
        linked.naming_both("link", original, link)
    }

    /// Makes a symbolic link, which need not lead anywhere. A target that begins with a slash begins at the root of the
    /// subvolume.
    ///
    /// # Errors
    ///
    /// Something is at `link`, or the target is empty or too long.
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

    /// Reads where a symbolic link leads.
    ///
    /// # Errors
    ///
    /// It is no link, or is missing.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let id = self.resolve_link(path);
        let target = id.and_then(|id| Ok(self.engine.readlink(id)?));
        let target = target.naming("read the link", path)?;
        Ok(OsString::from_vec(target).into())
    }

    /// Makes a FIFO, a socket or a device, as mknod(2): `mode` has the bits of the kind and the permissions. `rdev` is
    /// the number of a device.
    ///
    /// # Errors
    ///
    /// Something is at `path`, or `mode` is of no such kind.
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
                rdev: DeviceNumber::of(rdev).to_inode(),
                ..NewInode::with_mode(mode)
            };
            self.engine.create(dir, &name, &new)?;
            Ok(())
        });
        made.naming("create node", path)
    }
}

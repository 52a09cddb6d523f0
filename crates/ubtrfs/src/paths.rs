//! The operations of `std::fs`, by paths within the volume.
//!
//! Invariants
//! - PATHS-1: a path means what it means to `std::fs`, with the root of the view as root and working directory. ""
//!   names nothing, a slash at the end asks for a directory, a NUL is invalid.

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ubtrfs_engine::Error as EngineError;
use ubtrfs_engine::{
    Attr, DirEntry, FileId, FileKind, LastName, NewInode, PathEnd, RenameMode, SetAttr,
};
use ubtrfs_format::item::InodeFlags;

use crate::error::{Error, Naming, Result};
use crate::file::File;
use crate::open::Volume;

/// Permission bits of a new file and of a new directory.
const FILE_PERMISSIONS: u32 = 0o644;
const DIR_PERMISSIONS: u32 = 0o755;
/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

const FIND: &str = "find";

/// A file that was opened to be written, and the name it was given if it is new.
struct Opened {
    id: FileId,
    made: Option<(FileId, Vec<u8>)>,
}

/// The bytes of a path, which the walk may go through.
fn bytes(path: &Path) -> Result<&[u8]> {
    // PATHS-1
    match path.as_os_str().as_bytes() {
        b"" => Err(EngineError::NotFound.into()),
        bytes if bytes.contains(&0) => Err(EngineError::Invalid("path: it holds a NUL").into()),
        bytes => Ok(bytes),
    }
}

/// The directory and the name where something other than a directory is made.
fn name_for_file(end: PathEnd) -> Result<(FileId, Vec<u8>)> {
    match end.last {
        LastName::Name(_) if end.has_slash && end.id.is_none() => Err(EngineError::NotFound.into()),
        LastName::Name(name) if !end.has_slash => Ok((end.dir, name)),
        _ => Err(EngineError::Exists.into()),
    }
}

impl Volume {
    pub(crate) fn resolve(&self, path: &Path) -> Result<FileId> {
        Ok(self.engine.resolve_following(self.root, bytes(path)?)?)
    }

    fn resolve_link(&self, path: &Path) -> Result<FileId> {
        Ok(self.engine.resolve(self.root, bytes(path)?)?)
    }

    /// The directory and the name that a path ends with; a link of that name is not followed.
    pub(crate) fn end_of(&self, path: &Path) -> Result<PathEnd> {
        Ok(self.engine.resolve_end(self.root, bytes(path)?, false)?)
    }

    /// The directory and the name of a directory or subvolume that is to be made.
    pub(crate) fn name_for_dir(&self, path: &Path) -> Result<(FileId, Vec<u8>)> {
        let end = self.end_of(path)?;
        match end.last {
            LastName::Name(name) => Ok((end.dir, name)),
            _ => Err(EngineError::Exists.into()),
        }
    }

    /// The handle of the file that a path leads to, links followed.
    pub fn find(&self, path: impl AsRef<Path>) -> Result<FileId> {
        self.resolve(path.as_ref()).naming(FIND, path.as_ref())
    }

    /// The handle of the file that a path leads to; a link at the end is not followed.
    pub fn find_link(&self, path: impl AsRef<Path>) -> Result<FileId> {
        self.resolve_link(path.as_ref()).naming(FIND, path.as_ref())
    }

    /// Attributes, links followed.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Attr> {
        let path = path.as_ref();
        let attr = self.resolve(path).and_then(|id| Ok(self.engine.attr(id)?));
        attr.naming("read the attributes of", path)
    }

    /// Attributes of a link itself.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Attr> {
        let path = path.as_ref();
        let id = self.resolve_link(path);
        let attr = id.and_then(|id| Ok(self.engine.attr(id)?));
        attr.naming("read the attributes of", path)
    }

    /// Whether a path leads anywhere. Errors other than that it does not are reported.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.find(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Changes mode, owner, times or size.
    pub fn set_attr(&self, path: impl AsRef<Path>, set: &SetAttr) -> Result<()> {
        let path = path.as_ref();
        let id = self.resolve(path);
        let changed = id.and_then(|id| Ok(self.engine.set_attr(id, set)?));
        changed.naming("change the attributes of", path)
    }

    /// Reads the whole of a file.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let content = self.resolve(path).and_then(|id| self.read_all(id));
        content.naming("read", path)
    }

    fn read_all(&self, id: FileId) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        let mut part = vec![0; READ_BYTES];
        loop {
            let len = self.engine.read(id, content.len() as u64, &mut part)?;
            if len == 0 {
                return Ok(content);
            }
            content.extend_from_slice(&part[..len]);
        }
    }

    /// Makes a file of this content, or replaces the content of one that exists, through links.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let written = self.open_emptied(path).and_then(|file| {
            self.engine.write(file, 0, content.as_ref())?;
            Ok(())
        });
        written.naming("write", path)
    }

    /// Opens a file.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let id = self.resolve(path);
        let file = id.and_then(|id| File::open(&self.engine, id, path));
        file.naming("open", path)
    }

    /// Opens a file emptied; it is made if there is none, at the end of a link that leads nowhere as well.
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let id = self.open_emptied(path);
        let file = id.and_then(|id| File::open(&self.engine, id, path));
        file.naming("create", path)
    }

    fn open_emptied(&self, path: &Path) -> Result<FileId> {
        let opened = self.open_or_make(path)?;
        if opened.made.is_none() {
            self.engine.truncate(opened.id, 0)?;
        }
        Ok(opened.id)
    }

    /// The file of a path, made if there is none, as open(2) makes it: through links, and never a directory.
    fn open_or_make(&self, path: &Path) -> Result<Opened> {
        let path = bytes(path)?;
        loop {
            let end = self.engine.resolve_end(self.root, path, true)?;
            let LastName::Name(name) = end.last else {
                return Err(EngineError::IsADirectory(end.dir).into());
            };
            if end.has_slash {
                return Err(EngineError::IsADirectory(end.id.unwrap_or(end.dir)).into());
            }
            if let Some(id) = end.id {
                return match self.engine.attr(id)?.kind {
                    FileKind::Directory => Err(EngineError::IsADirectory(id).into()),
                    _ => Ok(Opened { id, made: None }),
                };
            }
            let new = NewInode::file(FILE_PERMISSIONS);
            match self.engine.create(end.dir, &name, &new) {
                Ok(id) => {
                    let made = Some((end.dir, name));
                    return Ok(Opened { id, made });
                }
                // Somebody was faster: the file is there now.
                Err(EngineError::Exists) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let made = self.name_for_dir(path).and_then(|(dir, name)| {
            let new = NewInode::directory(DIR_PERMISSIONS);
            self.engine.create(dir, &name, &new)?;
            Ok(())
        });
        made.naming("create directory", path)
    }

    /// Makes a directory and those above it as far as they are missing.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        match self.create_dir(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            made => return self.or_directory(path, made),
        }
        if let Some(parent) = path.parent() {
            self.create_dir_all(parent)?;
        }
        self.or_directory(path, self.create_dir(path))
    }

    /// A directory that could not be made is one all the same if it is there.
    fn or_directory(&self, path: &Path, made: Result<()>) -> Result<()> {
        let is_dir = || {
            self.metadata(path)
                .is_ok_and(|attr| attr.kind == FileKind::Directory)
        };
        match made {
            Err(_) if is_dir() => Ok(()),
            made => made,
        }
    }

    /// The entries of a directory, in the order in which they were made.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirEntry>> {
        let path = path.as_ref();
        let listed = self.resolve(path).and_then(|id| {
            let mut entries = Vec::new();
            self.engine.readdir(id, 0, &mut |entry| {
                entries.push(entry);
                ControlFlow::Continue(())
            })?;
            Ok(entries)
        });
        listed.naming("list", path)
    }

    /// Removes a file that is no directory; a link itself.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.unlink(path).naming("remove", path)
    }

    fn unlink(&self, path: &Path) -> Result<()> {
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
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let removed = self.dir_to_remove(path).and_then(|(end, name)| {
            self.engine.rmdir(end.dir, &name)?;
            Ok(())
        });
        removed.naming("remove directory", path)
    }

    /// The end of the path of a directory that may be removed, and its name.
    pub(crate) fn dir_to_remove(&self, path: &Path) -> Result<(PathEnd, Vec<u8>)> {
        let end = self.end_of(path)?;
        match &end.last {
            LastName::Name(name) => {
                let name = name.clone();
                Ok((end, name))
            }
            LastName::Current => Err(EngineError::Invalid("name").into()),
            LastName::Parent => Err(EngineError::NotEmpty(end.dir).into()),
            LastName::Root => Err(Error::NoName(path.to_owned())),
        }
    }

    /// Moves. A file of the new name is replaced, and so is an empty directory by another.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// Moves, with `mode` saying what becomes of the new name if there is one: replaced, an error, or exchanged with the
    /// old one.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let moved = self.move_name(from, to, mode);
        moved.naming_both("rename", from, to)
    }

    fn move_name(&self, from: &Path, to: &Path, mode: RenameMode) -> Result<()> {
        let (old, new) = (self.end_of(from)?, self.end_of(to)?);
        let LastName::Name(name) = &old.last else {
            return Err(Error::NoName(from.to_owned()));
        };
        let LastName::Name(new_name) = &new.last else {
            return Err(match mode {
                RenameMode::NoReplace => EngineError::Exists.into(),
                _ => Error::NoName(to.to_owned()),
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
    pub fn hard_link(&self, file: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (file, link) = (file.as_ref(), link.as_ref());
        let linked = self.resolve_link(file).and_then(|id| {
            let (dir, name) = name_for_file(self.end_of(link)?)?;
            Ok(self.engine.link(id, dir, &name)?)
        });
        linked.naming_both("link", file, link)
    }

    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (target, link) = (target.as_ref(), link.as_ref());
        let made = bytes(target).and_then(|target| {
            let (dir, name) = name_for_file(self.end_of(link)?)?;
            self.engine.create(dir, &name, &NewInode::symlink(target))?;
            Ok(())
        });
        made.naming("create link", link)
    }

    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let id = self.resolve_link(path);
        let target = id.and_then(|id| Ok(self.engine.readlink(id)?));
        target.naming("read the link", path)
    }

    /// Has `to` share the content of `from` from now on, as `cp --reflink` does: no data is copied. Links are followed.
    ///
    /// Errors: both are one file; one has checksums and the other has not. `to` then keeps its content, and is not made.
    pub fn reflink(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        self.share(from, to).naming_both("reflink", from, to)
    }

    fn share(&self, from: &Path, to: &Path) -> Result<()> {
        let from = self.resolve(from)?;
        let attr = self.engine.attr(from)?;
        match attr.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(EngineError::IsADirectory(from).into()),
            _ => return Err(EngineError::NotAFile(from).into()),
        }
        let to = self.open_or_make(to)?;
        if to.id == from {
            return Err(Error::SameFile);
        }
        let shared = self.share_with(from, attr.flags, &to);
        if let (Err(_), Some((dir, name))) = (&shared, &to.made) {
            // The first error is the one to be told.
            let _ = self.engine.unlink(*dir, name);
        }
        shared
    }

    /// A destination that cannot share is refused before it is emptied.
    fn share_with(&self, from: FileId, flags: InodeFlags, to: &Opened) -> Result<()> {
        if to.made.is_none() {
            let target = self.engine.attr(to.id)?.flags;
            if (target ^ flags).contains(InodeFlags::NODATASUM) {
                return Err(EngineError::CsumsDiffer.into());
            }
            self.engine.truncate(to.id, 0)?;
        }
        self.engine.clone_range(from, 0, 0, to.id, 0)?;
        Ok(())
    }
}

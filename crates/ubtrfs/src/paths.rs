//! What `std::fs` does, by paths within the volume.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ubtrfs_engine::{Attr, DirEntry, FileId, FileKind, NewInode, RenameMode, SetAttr};

use crate::error::{Error, Result};
use crate::file::File;
use crate::open::Volume;

/// Permission bits of what is made without saying which.
const FILE_PERMISSIONS: u32 = 0o644;
const DIR_PERMISSIONS: u32 = 0o755;

pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

impl Volume {
    /// The handle of what a path leads to, links followed.
    pub fn find(&self, path: impl AsRef<Path>) -> Result<FileId> {
        Ok(self
            .engine
            .resolve_following(self.root, bytes(path.as_ref()))?)
    }

    /// The same, but a link at the end is not followed.
    pub fn find_link(&self, path: impl AsRef<Path>) -> Result<FileId> {
        Ok(self.engine.resolve(self.root, bytes(path.as_ref()))?)
    }

    /// The directory and the name that a path consists of; the name need not exist.
    pub(crate) fn place<'p>(&self, path: &'p Path) -> Result<(FileId, &'p [u8])> {
        let name = path
            .file_name()
            .ok_or_else(|| Error::NoName(path.to_owned()))?;
        let dir = path.parent().unwrap_or(Path::new("/"));
        Ok((self.find(dir)?, name.as_bytes()))
    }

    /// Attributes, links followed.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Attr> {
        Ok(self.engine.attr(self.find(path)?)?)
    }

    /// Attributes of a link itself.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Attr> {
        Ok(self.engine.attr(self.find_link(path)?)?)
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
        Ok(self.engine.set_attr(self.find(path)?, set)?)
    }

    /// The whole of a file.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let id = self.find(path)?;
        let mut content = Vec::new();
        let mut part = vec![0; 1 << 20];
        loop {
            let len = self.engine.read(id, content.len() as u64, &mut part)?;
            if len == 0 {
                return Ok(content);
            }
            content.extend_from_slice(&part[..len]);
        }
    }

    /// Makes a file of this content, or replaces the content of one that exists.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        let file = self.create_file(path)?;
        Ok(self.engine.write(file.id(), 0, content.as_ref())?)
    }

    /// Opens a file.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        File::open(&self.engine, self.find(path)?)
    }

    /// Opens a file emptied, made if there is none.
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        match self.find(path) {
            Ok(id) => {
                self.engine.truncate(id, 0)?;
                File::open(&self.engine, id)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let (dir, name) = self.place(path)?;
                let new = NewInode::file(FILE_PERMISSIONS);
                File::open(&self.engine, self.engine.create(dir, name, &new)?)
            }
            Err(error) => Err(error),
        }
    }

    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.place(path.as_ref())?;
        self.engine
            .create(dir, name, &NewInode::directory(DIR_PERMISSIONS))?;
        Ok(())
    }

    /// Makes a directory and those above it as far as they are missing.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if self.exists(path)? {
            return match self.metadata(path)?.kind {
                FileKind::Directory => Ok(()),
                _ => Err(ubtrfs_engine::Error::Exists.into()),
            };
        }
        if let Some(parent) = path.parent() {
            self.create_dir_all(parent)?;
        }
        self.create_dir(path)
    }

    /// The entries of a directory, in the order in which they were made.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        self.engine.readdir(self.find(path)?, 0, &mut |entry| {
            entries.push(entry);
            ControlFlow::Continue(())
        })?;
        Ok(entries)
    }

    /// Removes what is no directory.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.place(path.as_ref())?;
        Ok(self.engine.unlink(dir, name)?)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.place(path.as_ref())?;
        Ok(self.engine.rmdir(dir, name)?)
    }

    /// Removes a directory with all that is in it. Subvolumes below are not entered: they are an error.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        for entry in self.read_dir(path)? {
            let below = path.join(OsStr::from_bytes(&entry.name));
            match entry.kind {
                FileKind::Directory => self.remove_dir_all(below)?,
                _ => self.remove_file(below)?,
            }
        }
        self.remove_dir(path)
    }

    /// Moves; what has the new name is replaced.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.place(from.as_ref())?;
        let to = self.place(to.as_ref())?;
        Ok(self.engine.rename(dir, name, to, RenameMode::Replace)?)
    }

    pub fn hard_link(&self, file: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let file = self.find_link(file)?;
        let (dir, name) = self.place(link.as_ref())?;
        Ok(self.engine.link(file, dir, name)?)
    }

    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.place(link.as_ref())?;
        let new = NewInode::symlink(bytes(target.as_ref()));
        self.engine.create(dir, name, &new)?;
        Ok(())
    }

    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        Ok(self.engine.readlink(self.find_link(path)?)?)
    }

    /// Has `to` share the content of `from` from now on, as `cp --reflink` does: no data is copied.
    pub fn reflink(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let from = self.find(from)?;
        let to = self.create_file(to)?;
        let len = self.engine.attr(from)?.size;
        self.engine.clone_range(from, 0, len, to.id(), 0)?;
        Ok(())
    }
}

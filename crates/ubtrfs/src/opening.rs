//! Opening files by path, and reading, writing and copying whole files.

use std::io::{self, ErrorKind};
use std::path::Path;

use ubtrfs_format::item::InodeFlags;
use ubtrfs_fs::Error as EngineError;
use ubtrfs_fs::{FileId, FileKind, LastName, NewInode, OpenFile, SetAttr};

use crate::error::{Cause, Caused, Naming, Result};
use crate::file::{File, OpenOptions, reserve};
use crate::subvolume::{PERMISSIONS, Subvolume, bytes};

/// The size of reads.
const READ_BYTES: usize = 1 << 20;
/// The size of copy steps.
const COPY_BYTES: u64 = 64 << 20;

/// An open file, and its name if it is new.
struct Opened {
    hold: OpenFile,
    made: Option<(FileId, Vec<u8>)>,
}

impl Subvolume {
    /// Opens a file, or a directory, for reading.
    ///
    /// # Errors
    ///
    /// The file does not exist.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        let options = OpenOptions::new().read(true);
        self.open_as("open", path.as_ref(), &options)
    }

    /// Opens a file for writing, truncated. Creates it if it does not exist, also at the target of a dangling link.
    ///
    /// # Errors
    ///
    /// A directory or an unchangeable file exists there, or the parent directory does not exist.
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        self.open_as("create", path.as_ref(), &options)
    }

    /// Opens a file with options.
    ///
    /// # Errors
    ///
    /// - the errors of [`Subvolume::open_file`] and [`Subvolume::create_file`]
    /// - options that contradict each other (`InvalidInput`)
    /// - the file must not exist, but does (`AlreadyExists`)
    pub fn open_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        self.open_as("open", path.as_ref(), options)
    }

    fn open_as(&self, operation: &'static str, path: &Path, options: &OpenOptions) -> Result<File> {
        let _entered = options.writes().then(|| self.engine.enter());
        let opened = self.open_at(path, options);
        let file = opened.map(|opened| File::new(&self.engine, opened.hold, path, options));
        file.naming(operation, path)
    }

    /// Opens the file, and truncates it if requested.
    fn open_at(&self, path: &Path, options: &OpenOptions) -> Caused<Opened> {
        options.check()?;
        let opened = if options.create || options.create_new {
            self.open_or_make(path, options)?
        } else {
            let id = if options.no_follow {
                self.resolve_link(path)?
            } else {
                self.resolve(path)?
            };
            self.open_existing(id, options)?
        };
        if options.truncate && opened.made.is_none() {
            self.engine.truncate_open(&opened.hold, 0)?;
        }
        Ok(opened)
    }

    fn open_existing(&self, id: FileId, options: &OpenOptions) -> Caused<Opened> {
        let hold = match (self.engine.attr(id)?.kind, options.writes()) {
            (FileKind::Symlink, _) => return Err(EngineError::TooManySymlinks.into()),
            (FileKind::Directory, true) => return Err(EngineError::IsADirectory(id).into()),
            (_, true) => {
                let appends = options.append && !options.truncate;
                self.engine.open_file_for_writing(id, appends)?
            }
            (_, false) => self.engine.open_file(id)?,
        };
        Ok(Opened { hold, made: None })
    }

    /// Opens the file at a path, and creates it if missing, like open(2): through links, and never a directory.
    fn open_or_make(&self, path: &Path, options: &OpenOptions) -> Caused<Opened> {
        let path = bytes(path)?;
        let follows = !options.create_new && !options.no_follow;
        loop {
            let end = self.engine.resolve_end(self.root, path, follows)?;
            let LastName::Name(name) = end.last else {
                return Err(if options.create_new {
                    EngineError::Exists.into()
                } else {
                    EngineError::IsADirectory(end.dir).into()
                });
            };
            if end.has_slash {
                return Err(EngineError::IsADirectory(end.id.unwrap_or(end.dir)).into());
            }
            match end.id {
                Some(_) if options.create_new => return Err(EngineError::Exists.into()),
                Some(id) => return self.open_existing(id, options),
                None => {}
            }
            let new = NewInode {
                umask: options.umask,
                ..NewInode::file(options.mode & PERMISSIONS)
            };
            match self.engine.create_and_hold(end.dir, &name, &new) {
                Ok((hold, _)) => {
                    let made = Some((end.dir, name));
                    return Ok(Opened { hold, made });
                }
                // Another thread has created the file in between.
                Err(EngineError::Exists) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads the whole of a file.
    ///
    /// # Errors
    ///
    /// It does not exist or is a directory, its data is damaged on all mirrors (`InvalidData`), or it does not fit into
    /// memory (`OutOfMemory`).
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let content = self.resolve(path).and_then(|id| self.read_all(id));
        content.naming("read", path)
    }

    /// Reads the whole of a UTF-8 file.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::read`]; it is not UTF-8 (`InvalidData`).
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        let text = self.resolve(path).and_then(|id| {
            let invalid = |error| io::Error::new(ErrorKind::InvalidData, error);
            Ok(String::from_utf8(self.read_all(id)?).map_err(invalid)?)
        });
        text.naming("read", path)
    }

    fn read_all(&self, id: FileId) -> Caused<Vec<u8>> {
        let mut content = Vec::new();
        reserve(&mut content, self.engine.attr(id)?.size)?;
        let mut part = vec![0; READ_BYTES];
        loop {
            let len = self.engine.read(id, content.len() as u64, &mut part)?;
            if len == 0 {
                return Ok(content);
            }
            content.try_reserve(len).map_err(io::Error::from)?;
            content.extend_from_slice(&part[..len]);
        }
    }

    /// Creates a file with this content, or replaces the content of an existing one. Links are followed.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::create_file`]; the volume is full.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        let _entered = self.engine.enter();
        let path = path.as_ref();
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        let file = self.open_as("write", path, &options)?;
        file.write_to(content.as_ref(), 0).map(drop)
    }

    /// Copies the content and the permission bits of a file. Links are followed. Returns the length. Data is shared if
    /// possible.
    ///
    /// # Errors
    ///
    /// - `from` does not exist, or is not a regular file (`InvalidInput`)
    /// - both are the same file (`InvalidInput`)
    /// - the errors of [`Subvolume::create_file`] for `to`; the volume is full
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let _entered = self.engine.enter();
        let (from, to) = (from.as_ref(), to.as_ref());
        self.copy_file(from, to).naming_both("copy", from, to)
    }

    fn copy_file(&self, from: &Path, to: &Path) -> Caused<u64> {
        let from = self.engine.open_file(self.resolve(from)?)?;
        let attr = self.engine.attr(from.id())?;
        if attr.kind != FileKind::Regular {
            return Err(EngineError::NotAFile(from.id()).into());
        }
        let mode = attr.mode & PERMISSIONS;
        let options = OpenOptions::new().write(true).create(true).mode(mode);
        let to = self.open_at(to, &options)?;
        if to.hold.id() == from.id() {
            return Err(Cause::SameFile);
        }
        self.engine.truncate_open(&to.hold, 0)?;
        let to = to.hold.id();
        let mut copied = 0;
        loop {
            let len = self
                .engine
                .copy_range(from.id(), copied, COPY_BYTES, to, copied)?;
            copied += len;
            if len == 0 {
                break;
            }
        }
        let set = SetAttr {
            mode: Some(mode),
            ..SetAttr::default()
        };
        self.engine.set_attr(to, &set)?;
        Ok(copied)
    }

    /// Makes `to` share the content of `from`, like `cp --reflink`, without copying data. Links are followed.
    ///
    /// # Errors
    ///
    /// Both are the same file, or only one of them has checksums. `to` then keeps its content, and is not created.
    pub fn reflink(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let _entered = self.engine.enter();
        let (from, to) = (from.as_ref(), to.as_ref());
        self.share(from, to).naming_both("reflink", from, to)
    }

    fn share(&self, from: &Path, to: &Path) -> Caused<()> {
        let from = self.resolve(from)?;
        let attr = self.engine.attr(from)?;
        match attr.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(EngineError::IsADirectory(from).into()),
            _ => return Err(EngineError::NotAFile(from).into()),
        }
        let options = OpenOptions::new().write(true).create(true);
        let to = self.open_at(to, &options)?;
        if to.hold.id() == from {
            return Err(Cause::SameFile);
        }
        let shared = self.share_with(from, attr.flags, &to);
        if let (Err(_), Some((dir, name))) = (&shared, &to.made) {
            // The first error is the one to return.
            let _ = self.engine.unlink(*dir, name);
        }
        shared
    }

    /// Shares the data of `from` with `to`. A destination that cannot share is refused before it is truncated.
    fn share_with(&self, from: FileId, flags: InodeFlags, to: &Opened) -> Caused<()> {
        let id = to.hold.id();
        if to.made.is_none() {
            let target = self.engine.attr(id)?.flags;
            if (target ^ flags).contains(InodeFlags::NODATASUM) {
                return Err(EngineError::CsumsDiffer.into());
            }
            self.engine.truncate_open(&to.hold, 0)?;
        }
        self.engine.clone_range(from, 0, 0, id, 0)?;
        Ok(())
    }
}

//! Copying files and trees by path: within a volume, between volumes, from and to the host.
//!
//! Not here: the copier (`transfer::copy`), archives (`trees`).

use std::collections::HashSet;
use std::fs::File as HostFile;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use ubtrfs_device::progress::Progress;
use ubtrfs_fs::{Error as EngineError, FileId, FileKind};

use crate::error::{Cause, Caused, Naming, Result};
use crate::named_option::named_options;
use crate::subvolume::Subvolume;
use crate::transfer::copy::{
    Copier, CopyError, CopyOptions as CopierOptions, Destination, FromHost, FromVolume,
    HostFile as CopiedFile, Made, Reflink, Source, Sparse, ToHost, ToVolume, Top, open_directory,
};

/// Options for [`Subvolume::copy_tree`] and the other copies.
///
/// ```
/// use ubtrfs::{CopyOptions, Problems, Reflink, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.create_dir("/dir")?;
/// root.write("/dir/file", b"content")?;
/// root.symlink("dir", "/link")?;
/// let mut problems = Problems::default();
/// let options = CopyOptions::new().follow(true).preserve(false).reflink(Reflink::Never);
/// root.copy_tree("/link", root, "/copy", &options, &mut problems)?;
/// assert_eq!(root.read("/copy/file")?, b"content");
///
/// let other = Volume::in_memory(256 << 20)?;
/// let options = CopyOptions::new().contents(true);
/// root.copy_tree("/copy", other.root(), "/", &options, &mut problems)?;
/// assert_eq!(other.root().read("/file")?, b"content");
/// assert!(problems.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CopyOptions {
    copier: CopierOptions,
    follow: bool,
    contents: bool,
    shown_as: Option<PathBuf>,
}

impl Default for CopyOptions {
    fn default() -> CopyOptions {
        let copier = CopierOptions {
            preserve: true,
            ..CopierOptions::default()
        };
        CopyOptions {
            copier,
            follow: false,
            contents: false,
            shown_as: None,
        }
    }
}

impl CopyOptions {
    /// Creates the options of [`Subvolume::copy_tree`]: attributes and holes are preserved, data is shared if possible,
    /// and no link is followed.
    pub fn new() -> CopyOptions {
        CopyOptions::default()
    }

    /// Sets the path of the destination in the message of an error that ends the copy. The default is the path of the
    /// call.
    #[must_use]
    pub fn shown_as(mut self, path: impl Into<PathBuf>) -> CopyOptions {
        self.shown_as = Some(path.into());
        self
    }

    /// Returns the start directory of the copy, for messages.
    fn shown_top(&self, to: &Path) -> Vec<u8> {
        let to = self.shown_as.as_deref().unwrap_or(to);
        let top = if self.contents {
            to
        } else {
            to.parent().unwrap_or(Path::new("/"))
        };
        top.as_os_str().as_bytes().to_vec()
    }
}

named_options! {
    /// The options of copies, which [`CopyOptions::set`] sets by their names.
    ///
    /// ```
    /// use ubtrfs::{COPY_OPTIONS, CopyOptions};
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let mut options = CopyOptions::new();
    /// for (name, value) in [("reflink", "never"), ("umask", "022")] {
    ///     options = options.set(name, value)?;
    /// }
    /// for option in COPY_OPTIONS {
    ///     println!("{}={}: {}", option.name(), option.syntax(), option.help());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    COPY_OPTIONS of CopyOptions:

    /// Preserves owners, modes, times, extended attributes and hard links, and replaces existing files. This is the
    /// default.
    ///
    /// With false, copies have the permissions of their originals less the umask. In a volume they belong to user and
    /// group 0. An existing file there is overwritten, and keeps its owner and mode.
    preserve: bool => copier.preserve = preserve;

    /// Reports each attribute that the destination cannot have as a problem. By default such attributes are left out,
    /// and a warning is logged with their names and numbers.
    strict_attributes: bool => copier.strict_attributes = strict_attributes;

    /// Sets when copies share the data of their originals. By default they do where possible.
    reflink: Reflink => copier.reflink = reflink;

    /// Sets the treatment of holes. By default they are kept. "always" also turns blocks of zeros into holes, and
    /// "never" fills holes.
    sparse: Sparse => copier.sparse = sparse;

    /// Copies the target of a symbolic link if the source path is one. Symbolic links below it are always copied as
    /// links.
    follow: bool => follow = follow;

    /// Copies the contents of a directory into an existing directory, which gets the attributes of the original.
    ///
    /// The copy fails if either is not a directory, or the destination does not exist.
    contents: bool => contents = contents;

    /// Sets the permission bits to clear in new files of a volume if modes are not preserved, like umask(2). The
    /// default is 0. Copies on the host use the umask of the process, which is not changed.
    umask: u32 => copier.umask = umask;
}

impl Subvolume {
    /// Copies a file, or a directory with all its contents, to a path in this or another subvolume, which may belong to
    /// another volume. Owners, modes, times, extended attributes, hard links and holes are preserved. Data is shared
    /// within one volume.
    ///
    /// A file that cannot be copied is a [`Problem`](crate::Problem) for `progress`, and the copy continues:
    /// [`Problems`](crate::Problems) collects them.
    ///
    /// # Errors
    ///
    /// - the file at `to` cannot be replaced or merged with, the volume is full, or `from` does not exist
    /// - `to` is `from` or below it (`InvalidInput`)
    /// - with [`CopyOptions::contents`]: `to` does not exist (`NotFound`), or one is not a directory (`NotADirectory`)
    /// - `progress` cancelled it (`Interrupted`)
    ///
    /// Files that were already copied are kept.
    pub fn copy_tree(
        &self,
        from: impl AsRef<Path>,
        destination: &Subvolume,
        to: impl AsRef<Path>,
        options: &CopyOptions,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let copied = self.original(from, options).and_then(|file| {
            if self.engine.is_same(&destination.engine) {
                destination.refuse_copy_into_itself(file, to, options)?;
            }
            let source = FromVolume {
                volume: &self.engine,
            };
            let place = destination.place_of_copy(to, options)?;
            destination.copy_in(&source, &file, (from, to), place, options, progress)
        });
        copied.naming_both("copy", from, to)
    }

    fn named(&self, from: &Path, options: &CopyOptions) -> Caused<FileId> {
        if options.follow {
            self.resolve(from)
        } else {
            self.resolve_link(from)
        }
    }

    /// Finds the file or directory to copy.
    fn original(&self, from: &Path, options: &CopyOptions) -> Caused<FileId> {
        let file = self.named(from, options)?;
        if options.contents && self.engine.attr(file)?.kind != FileKind::Directory {
            Err(EngineError::NotADirectory(file).into())
        } else {
            Ok(file)
        }
    }

    /// Refuses a copy into its own source, which would never end.
    fn refuse_copy_into_itself(
        &self,
        file: FileId,
        to: &Path,
        options: &CopyOptions,
    ) -> Caused<()> {
        let (id, mut at) = if options.contents {
            (None, self.directory(to)?)
        } else {
            let end = self.end_of(to)?;
            (end.id, end.dir)
        };
        let mut seen = HashSet::new();
        // A damaged volume may contain a loop of directories.
        while at != file && seen.insert(at) {
            at = self.engine.parent(at)?;
        }
        if at == file {
            Err(Cause::IntoItself)
        } else if id == Some(file) {
            Err(CopyError::SameFile.into())
        } else {
            Ok(())
        }
    }

    /// Copies a file of the host, or a directory with all its contents, into the volume, as [`Subvolume::copy_tree`].
    /// Links are copied as links.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::copy_tree`].
    pub fn copy_from_host(
        &self,
        host: impl AsRef<Path>,
        to: impl AsRef<Path>,
        options: &CopyOptions,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let (host, to) = (host.as_ref(), to.as_ref());
        let copied = CopiedFile::open(host, options.follow)
            .map_err(Cause::from)
            .and_then(|file| {
                if options.contents && !file.is_dir() {
                    return Err(std::io::Error::from(Errno::NOTDIR).into());
                }
                let images = self.engine.images();
                let source = FromHost { images };
                let place = self.place_of_copy(to, options)?;
                self.copy_in(&source, &file, (host, to), place, options, progress)
            });
        copied.naming_both("copy", host, to)
    }

    /// Finds the directory and the name of the copy. Contents have no name, and go into the directory.
    fn place_of_copy(&self, to: &Path, options: &CopyOptions) -> Caused<(FileId, Option<Vec<u8>>)> {
        if options.contents {
            return Ok((self.directory(to)?, None));
        }
        let (dir, name) = self.name_for_dir(to)?;
        Ok((dir, Some(name)))
    }

    fn copy_in<S: Source>(
        &self,
        source: &S,
        file: &S::File,
        (from, to): (&Path, &Path),
        (dir, name): (FileId, Option<Vec<u8>>),
        options: &CopyOptions,
        progress: &mut dyn Progress,
    ) -> Caused<()> {
        let _entered = self.engine.enter();
        let destination = ToVolume::new(&self.engine, options.copier);
        let top = Top {
            dir,
            shown: options.shown_top(to),
        };
        let copy = Copy {
            source,
            destination,
            options,
            progress,
        };
        copy.run(file, from, top, name.as_deref())
    }

    /// Copies a file, or a directory with all its contents, to the host, as [`Subvolume::copy_tree`]. Attributes are
    /// preserved as far as the program may set them. Nothing outside `host` is touched.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::copy_tree`].
    pub fn copy_to_host(
        &self,
        from: impl AsRef<Path>,
        host: impl AsRef<Path>,
        options: &CopyOptions,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let (from, host) = (from.as_ref(), host.as_ref());
        let copied = self.original(from, options).and_then(|file| {
            let (dir, name) = host_place(host, options)?;
            let top = Top {
                dir: open_directory(dir)?,
                shown: options.shown_top(host),
            };
            let copy = Copy {
                source: &FromVolume {
                    volume: &self.engine,
                },
                destination: ToHost::new(options.copier, self.engine.images()),
                options,
                progress,
            };
            copy.run(&file, from, top, name)
        });
        copied.naming_both("copy", from, host)
    }

    /// Copies the data of a regular file into an open file of the host, from its beginning. Holes are written as zeros
    /// to a pipe or a terminal. Attributes are not copied.
    ///
    /// ```
    /// use ubtrfs::{CopyOptions, Problems, Volume};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("copy");
    /// let volume = Volume::in_memory(256 << 20)?;
    /// volume.root().write("/file", b"content")?;
    /// let mut problems = Problems::default();
    /// let copy = std::fs::File::create(&path)?;
    /// volume.root().copy_to_file("/file", copy, &CopyOptions::new(), &mut problems)?;
    /// assert_eq!(std::fs::read(&path)?, b"content");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `from` does not exist or is not a regular file. A failure to write `file` is a [`Problem`](crate::Problem) instead.
    pub fn copy_to_file(
        &self,
        from: impl AsRef<Path>,
        file: HostFile,
        options: &CopyOptions,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let from = from.as_ref();
        let copied = self.named(from, options).and_then(|original| {
            match self.engine.attr(original)?.kind {
                FileKind::Regular => {}
                FileKind::Directory => return Err(EngineError::IsADirectory(original).into()),
                _ => return Err(EngineError::NotAFile(original).into()),
            }
            let made = Made::of_open(file)?;
            let source = FromVolume {
                volume: &self.engine,
            };
            let destination = ToHost::new(CopierOptions::default(), Vec::new());
            let mut copier = Copier::new(&source, destination, options.copier, progress);
            Ok(copier.copy_into(&original, &made, from.as_os_str().as_bytes())?)
        });
        copied.naming("copy", from)
    }
}

/// A copy of a file or of contents.
struct Copy<'a, S, D> {
    source: &'a S,
    destination: D,
    options: &'a CopyOptions,
    progress: &'a mut dyn Progress,
}

impl<S: Source, D: Destination> Copy<'_, S, D> {
    fn run(self, file: &S::File, from: &Path, top: Top<D::Dir>, name: Option<&[u8]>) -> Caused<()> {
        let options = self.options.copier;
        let mut copier = Copier::new(self.source, self.destination, options, self.progress);
        let from = from.as_os_str().as_bytes();
        match name {
            Some(name) => copier.copy_as(file, top, name, from)?,
            None => copier.copy_contents(file, top, from)?,
        }
        Ok(())
    }
}

/// Returns the directory and the name of a copy on the host. Contents have no name.
fn host_place<'a>(host: &'a Path, options: &CopyOptions) -> Caused<(&'a Path, Option<&'a [u8]>)> {
    if options.contents {
        return Ok((host, None));
    }
    let name = host.file_name();
    let name = name.ok_or_else(|| Cause::NoName(host.to_owned()))?;
    let parent = host.parent().filter(|dir| !dir.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")), Some(name.as_bytes())))
}

//! Archiving and unpacking whole trees by path, and the problems of a transfer.
//!
//! Not here: copies (`copies`).

use std::ffi::OsStr;
use std::io::{BufWriter, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ubtrfs_device::progress::{Event, Problem, Progress};
use ubtrfs_fs::{Error as EngineError, FileId, FileKind};
use ubtrfs_mkfs::archive::Members;

use crate::error::{Caused, Naming, Result};
use crate::subvolume::Subvolume;
use crate::transfer::tar::{Archiver, TarError};
use crate::transfer::unpack::{UnpackError, Unpacker};

/// The maximum number of listed problems.
const MAX_LISTED: usize = 1000;
/// The size of writes to an archive.
const BUFFER_BYTES: usize = 256 << 10;

/// The problems of an operation on a tree, which continues after files that fail.
///
/// ```
/// use ubtrfs::{CopyOptions, Problems, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// # let host = tempfile::tempdir().expect("there is room");
/// # std::fs::write(host.path().join("notes"), "first").expect("there is room");
/// let volume = Volume::in_memory(256 << 20)?;
/// let mut problems = Problems::default();
/// volume.root().copy_from_host(host.path(), "/home", &CopyOptions::new(), &mut problems)?;
/// assert!(problems.is_empty(), "{problems:?}");
/// assert_eq!(volume.root().read("/home/notes")?, b"first");
///
/// let mut archive = Vec::new();
/// volume.root().export_tar("/home", &mut archive, &mut problems)?;
/// assert!(archive.len() > 512);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Problems {
    listed: Vec<Problem>,
    count: u64,
}

impl Problems {
    /// Returns whether everything was transferred.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of problems.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the first 1000 problems.
    pub fn listed(&self) -> &[Problem] {
        &self.listed
    }
}

/// Collects the problems, and ignores other events.
impl Progress for Problems {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        if let Event::Problem(problem) = event {
            self.count += 1;
            if self.listed.len() < MAX_LISTED {
                self.listed.push(Problem::clone(problem));
            }
        }
        ControlFlow::Continue(())
    }
}

/// Options for [`Subvolume::import_tar`].
///
/// ```
/// use ubtrfs::{ImportOptions, Problems, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// volume.root().write("/file", b"content")?;
/// let mut problems = Problems::default();
/// let mut archive = Vec::new();
/// volume.root().export_tar("/file", &mut archive, &mut problems)?;
///
/// let options = ImportOptions::new().umask(0o022).shown_as("backup");
/// let backup = Volume::in_memory(256 << 20)?;
/// backup.root().import_tar(&archive[..], "/", &options, &mut problems)?;
/// assert_eq!(backup.root().read("/file")?, b"content");
/// assert!(problems.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    umask: u32,
    shown_as: Option<PathBuf>,
}

impl ImportOptions {
    /// Creates the options of [`Subvolume::import_tar`].
    pub fn new() -> ImportOptions {
        ImportOptions::default()
    }

    /// Sets the permission bits to clear in directories that an archive implies but does not contain, like umask(2).
    /// The default is 0.
    #[must_use]
    pub fn umask(mut self, umask: u32) -> ImportOptions {
        self.umask = umask;
        self
    }

    /// Sets the path of the directory in the message of an error that ends the unpacking. The default is the path of
    /// the call. Events have the paths of the members in the archive.
    #[must_use]
    pub fn shown_as(mut self, path: impl Into<PathBuf>) -> ImportOptions {
        self.shown_as = Some(path.into());
        self
    }
}

impl Subvolume {
    /// Writes a file, or a directory with all its contents, as a tar archive: POSIX pax, with extended attributes,
    /// ACLs, times in nanoseconds and holes. Names begin with the last component of the path, or with ".".
    ///
    /// A file that cannot be archived is a [`Problem`] for `progress`, and the archive continues.
    ///
    /// # Errors
    ///
    /// - `out` fails ([`Error::is_of_stream`](crate::Error::is_of_stream)), or `path` does not exist
    /// - `progress` cancelled it (`Interrupted`)
    pub fn export_tar(
        &self,
        path: impl AsRef<Path>,
        out: impl Write,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let path = path.as_ref();
        let written = self.write_tar(path, out, progress);
        written.naming("export", path)
    }

    fn write_tar(&self, path: &Path, out: impl Write, progress: &mut dyn Progress) -> Caused<()> {
        let file = self.resolve_link(path)?;
        let name = path.file_name().map_or(&b"."[..], OsStr::as_bytes);
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
        let mut archiver = Archiver::new(&self.engine, &mut out, progress);
        archiver.tree(file, name)?;
        archiver.finish()?;
        Ok(out.flush().map_err(TarError::from)?)
    }

    /// Unpacks a tar archive into a directory. The archive is a file, a pipe or any other reader, read from its current
    /// position to its end. It may be in the format of GNU tar, POSIX (pax, ustar) or older, and compressed by gzip,
    /// zstd, xz or bzip2.
    ///
    /// Owners by id, modes, times, extended attributes, ACLs, hard links, devices and holes are preserved. Existing
    /// files are replaced. Nothing outside the directory is touched, even by a malicious archive.
    ///
    /// A file that cannot be unpacked is a [`Problem`] for `progress`, and the unpacking continues.
    ///
    /// # Errors
    ///
    /// - the archive cannot be read further (`InvalidData`, `UnexpectedEof`)
    /// - the volume is full, or `dir` is not a directory
    /// - `progress` cancelled it (`Interrupted`)
    ///
    /// Files that were already unpacked are kept.
    pub fn import_tar(
        &self,
        archive: impl Read,
        dir: impl AsRef<Path>,
        options: &ImportOptions,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let _entered = self.engine.enter();
        let dir = dir.as_ref();
        let shown = options.shown_as.as_deref().unwrap_or(dir);
        let unpacked = self.directory(dir).and_then(|top| {
            let mut members = Members::of(archive).map_err(UnpackError::from)?;
            let top = (top, shown.as_os_str().as_bytes());
            let mut unpacker = Unpacker::new(&self.engine, top, options.umask, progress);
            Ok(unpacker.all(&mut members)?)
        });
        unpacked.naming("import to", dir)
    }

    pub(crate) fn directory(&self, path: &Path) -> Caused<FileId> {
        let id = self.resolve(path)?;
        match self.engine.attr(id)?.kind {
            FileKind::Directory => Ok(id),
            _ => Err(EngineError::NotADirectory(id).into()),
        }
    }
}

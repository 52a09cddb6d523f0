//! The error of the library: the operation, its paths, and the `std::io` kind of the cause.
//!
//! Not here: causes, their kinds and numbers (`cause`), and the errors that they wrap (`wrapped`).

mod cause;
mod wrapped;

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use ubtrfs_device::Holder;
use ubtrfs_fs::Error as EngineError;
use ubtrfs_mkfs::FeatureListError;

use crate::escaped::Escaped;

pub(crate) use cause::{Cause, Caused};

#[cfg(test)]
mod tests;

/// The outcome of an operation of this library.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of an operation on a volume.
///
/// Programs should match on [`Error::kind`]. The message has the operation, its paths and the cause. It is made for
/// people, and may change in any release.
///
/// ```
/// use std::io::ErrorKind;
/// use std::path::Path;
/// use ubtrfs::Volume;
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let error = volume.root().read("/missing").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::NotFound);
/// assert_eq!(error.operation(), "read");
/// assert_eq!(error.path(), Some(Path::new("/missing")));
/// assert!(error.to_string().starts_with("cannot read '/missing': "));
/// # Ok(())
/// # }
/// ```
pub struct Error(Box<Failure>);

/// A failed operation.
#[derive(Debug)]
struct Failure {
    operation: &'static str,
    path: Option<PathBuf>,
    to: Option<PathBuf>,
    cause: Cause,
}

impl Error {
    pub(crate) fn new(operation: &'static str, path: &Path, cause: Cause) -> Error {
        named(operation, Some(path), None, cause)
    }

    /// Returns the kind that `std::fs` reports for the same failure, or the nearest one.
    ///
    /// | kind | failure |
    /// |---|---|
    /// | `NotFound`, `AlreadyExists`, `NotADirectory`, `IsADirectory`, `DirectoryNotEmpty` | as in `std::fs` |
    /// | `StorageFull` | the volume or device is full |
    /// | `QuotaExceeded` | a [group](crate::Volume::group) contains an operation that needs a commit |
    /// | `FileTooLarge` | the file or volume would exceed the maximum size |
    /// | `TooManyLinks` | the file has the maximum number of names |
    /// | `ReadOnlyFilesystem` | the volume, the subvolume or the device is read-only, the volume is closed ([`Error::is_closed`]), or a commit failed |
    /// | `PermissionDenied` | an immutable or append-only file, or a subvolume of the wrong kind; a [`Caller`](crate::Caller) lacks the right ([`Error::is_refusal`]) |
    /// | `CrossesDevices` | different subvolumes or volumes, or a subvolume instead of a directory |
    /// | `ResourceBusy` | the volume is open elsewhere, or the path is the root of a subvolume |
    /// | `InvalidData` | the volume is damaged, or is not btrfs |
    /// | `UnexpectedEof` | a stream or an archive ends early |
    /// | `InvalidInput`, `InvalidFilename` | an invalid argument |
    /// | `Unsupported` | an unknown feature |
    /// | `Interrupted` | an observer cancelled the operation |
    /// | `OutOfMemory` | a whole file does not fit into memory |
    /// | as `std::fs` for `ELOOP` and `EBADF` | too many links on a path; a file that is not open for this operation ([`Error::errno`]) |
    /// | `Other` | a device that cannot be read (`EIO`), or a failure within the library, such as an earlier loss of data |
    /// | others | errors of the devices, of streams and of files of the host |
    pub fn kind(&self) -> io::ErrorKind {
        self.0.cause.kind()
    }

    /// Returns the errno that Linux has for the same failure. A failure without an errno in Linux is `EIO`.
    ///
    /// ```
    /// use ubtrfs::Volume;
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let volume = Volume::in_memory(256 << 20)?;
    /// let error = volume.root().read("/missing").unwrap_err();
    /// assert_eq!(error.errno(), 2); // ENOENT
    /// # Ok(())
    /// # }
    /// ```
    pub fn errno(&self) -> i32 {
        self.0.cause.errno().raw_os_error()
    }

    /// Returns the failed operation as a verb, such as "read".
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// Returns the path of the operation, or the first one if it takes two. It is `None` for operations without a path.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Returns the second path of an operation that takes two, such as a rename.
    pub fn to(&self) -> Option<&Path> {
        self.0.to.as_deref()
    }

    /// Returns the cause alone, for programs with their own words for the operation and the file.
    ///
    /// ```
    /// use ubtrfs::Volume;
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let volume = Volume::in_memory(256 << 20)?;
    /// let error = volume.root().read("/missing").unwrap_err();
    /// assert_eq!(error.to_string(), format!("cannot read '/missing': {}", error.reason()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn reason(&self) -> impl fmt::Display + '_ {
        Shown(&self.0)
    }

    /// Returns whether any change of the volume would fail for the same reason: the volume is full, read-only or
    /// closed, or a commit failed.
    ///
    /// ```
    /// use ubtrfs::Volume;
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let volume = Volume::in_memory(256 << 20)?;
    /// assert!(!volume.root().remove_file("/missing").unwrap_err().is_of_volume());
    /// let root = volume.root().clone();
    /// volume.close()?;
    /// assert!(root.write("/file", b"content").unwrap_err().is_of_volume());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_of_volume(&self) -> bool {
        self.0.cause.is_of_volume()
    }

    /// Returns whether the volume was closed before the call or during it ([`Volume::close`](crate::Volume::close)).
    /// The kind is the same as of a read-only volume.
    ///
    /// ```
    /// use ubtrfs::Volume;
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let volume = Volume::in_memory(256 << 20)?;
    /// let root = volume.root().clone();
    /// volume.close()?;
    /// assert!(root.write("/file", b"content").unwrap_err().is_closed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_closed(&self) -> bool {
        matches!(self.0.cause.engine_error(), Some(EngineError::Closed))
    }

    /// Returns whether the stream of a send or receive is the cause, and not the volume: it cannot be written or read,
    /// or is damaged. Also true for an archive that cannot be written.
    ///
    /// ```
    /// use ubtrfs::{ReceiveOptions, Volume};
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let volume = Volume::in_memory(256 << 20)?;
    /// let options = ReceiveOptions::new();
    /// let refused = volume.root().receive("/", &b"no stream"[..], &options, &mut ()).unwrap_err();
    /// assert!(refused.is_of_stream());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_of_stream(&self) -> bool {
        self.0.cause.is_of_stream()
    }

    /// Returns the offset in the stream, in bytes, of the command that could not be received. It is `None` for other
    /// errors.
    ///
    /// ```
    /// use ubtrfs::{Access, ReceiveOptions, SendOptions, Snapshot, Volume};
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let volume = Volume::in_memory(256 << 20)?;
    /// let data = volume.root().snapshot("/", "/data", Access::ReadOnly)?;
    /// let mut stream = Vec::new();
    /// Snapshot::open(&data)?.send(&SendOptions::new(), &mut stream, &mut ())?;
    /// let end = stream.len() - 10;
    ///
    /// let backup = Volume::in_memory(256 << 20)?;
    /// let options = ReceiveOptions::new();
    /// let cut = backup.root().receive("/", &stream[..end], &options, &mut ()).unwrap_err();
    /// assert_eq!(cut.stream_offset(), Some(end as u64));
    /// assert_eq!(cut.unfinished(), Some(std::path::Path::new("data")));
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream_offset(&self) -> Option<u64> {
        self.0.cause.stream_offset()
    }

    /// Returns the name of a subvolume that was begun but not finished, and is left writable. It is `None` for other
    /// errors.
    pub fn unfinished(&self) -> Option<&Path> {
        self.0.cause.unfinished()
    }

    /// Returns the device in use, and its user, if a volume could not be opened for that reason. [`Holder`] has an
    /// example.
    pub fn holder(&self) -> Option<(&Path, &Holder)> {
        self.0.cause.holder()
    }

    /// Returns whether a [`Caller`](crate::Caller) lacks the right: by modes or ACLs (`EACCES`), or because it is
    /// neither the owner nor an administrator (`EPERM`). [`Caller`](crate::Caller) has an example.
    pub fn is_refusal(&self) -> bool {
        self.0.cause.is_refusal()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.kind())
            .field("operation", &self.0.operation)
            .field("path", &self.0.path)
            .field("to", &self.0.to)
            .field("cause", &self.0.cause)
            .finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.0.operation)?;
        if let Some(path) = &self.0.path {
            write!(f, " '{}'", Escaped::of(path))?;
        }
        if let Some(to) = &self.0.to {
            write!(f, " to '{}'", Escaped::of(to))?;
        }
        write!(f, ": {}", Shown(&self.0))
    }
}

/// The cause of a failure in a message. It may have paths of devices, of files of the host and of a volume, which are
/// any bytes.
struct Shown<'a>(&'a Failure);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { path, cause, .. } = self.0;
        let beside_path = path.as_ref().and_then(|_| cause.text_beside_path());
        match beside_path {
            Some(text) => f.write_str(text),
            None => Escaped(cause.to_string().as_bytes()).fmt(f),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // Our message already contains the text of the cause.
        self.0.cause.source()
    }
}

impl From<FeatureListError> for Error {
    fn from(error: FeatureListError) -> Error {
        named("set the features", None, None, error.into())
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

/// Adds the operation and the path to a cause.
pub(crate) trait Naming<T> {
    fn naming(self, operation: &'static str, path: &Path) -> Result<T>;
    fn naming_both(self, operation: &'static str, path: &Path, to: &Path) -> Result<T>;
    /// Attaches an operation on the volume as a whole to a cause.
    fn naming_alone(self, operation: &'static str) -> Result<T>;
}

impl<T, E: Into<Cause>> Naming<T> for std::result::Result<T, E> {
    fn naming(self, operation: &'static str, path: &Path) -> Result<T> {
        self.map_err(|cause| named(operation, Some(path), None, cause.into()))
    }

    fn naming_both(self, operation: &'static str, path: &Path, to: &Path) -> Result<T> {
        self.map_err(|cause| named(operation, Some(path), Some(to), cause.into()))
    }

    fn naming_alone(self, operation: &'static str) -> Result<T> {
        self.map_err(|cause| named(operation, None, None, cause.into()))
    }
}

fn named(operation: &'static str, path: Option<&Path>, to: Option<&Path>, cause: Cause) -> Error {
    match cause {
        Cause::Named(error) => error,
        cause => Error(Box::new(Failure {
            operation,
            path: path.map(Path::to_owned),
            to: to.map(Path::to_owned),
            cause,
        })),
    }
}

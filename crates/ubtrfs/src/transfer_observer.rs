//! Progress and problems of a transfer of a tree, for programs.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::Cause;
use crate::transfer::Observer;
use crate::transfer::copy::{CopyError, CopyProblem};
use crate::transfer::tar::TarProblem;
use crate::transfer::unpack::UnpackError;

/// An observer of a transfer of a tree. The transfer continues after files that it cannot transfer.
///
/// ```
/// use std::path::{Path, PathBuf};
/// use ubtrfs::{TransferObserver, TransferProblem, Volume};
///
/// #[derive(Default)]
/// struct Progress {
///     bytes: u64,
///     left_out: Vec<PathBuf>,
/// }
///
/// impl TransferObserver for Progress {
///     fn transferred(&mut self, len_bytes: u64) {
///         self.bytes += len_bytes;
///     }
///     fn failed(&mut self, path: &Path, _: TransferProblem) {
///         self.left_out.push(path.to_owned());
///     }
/// }
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// volume.root().write("/file", vec![7; 1 << 20])?;
/// let mut progress = Progress::default();
/// volume.root().export_tar_with("/file", std::io::sink(), &mut progress)?;
/// assert_eq!(progress.bytes, 1 << 20);
/// assert!(progress.left_out.is_empty());
/// # Ok(())
/// # }
/// ```
///
/// A group waits for the transfer, and changes by other threads wait for the group. An observer must not wait for
/// either.
pub trait TransferObserver {
    /// Receives each file before its transfer.
    fn begin(&mut self, path: &Path) {
        let _ = path;
    }

    /// Receives the length of each transferred part of data.
    fn transferred(&mut self, len_bytes: u64) {
        let _ = len_bytes;
    }

    /// Returns whether to cancel the transfer now. Called before each file and each part of its data, so it should be
    /// fast. The transfer then returns an error of kind `Interrupted`.
    ///
    /// Files that were already transferred are kept. The last file may be short or lack attributes, and so may its
    /// parent directories.
    fn is_cancelled(&mut self) -> bool {
        false
    }

    /// Receives a problem with the file at `path`.
    fn failed(&mut self, path: &Path, problem: TransferProblem);
}

/// A problem of a transfer, with a message for display. [`TransferObserver`] has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferProblem {
    message: String,
    kind: io::ErrorKind,
    is_of_kind: bool,
    is_partial: bool,
}

impl TransferProblem {
    /// Returns the kind of the failure, like [`Error::kind`](crate::Error::kind).
    pub fn kind(&self) -> io::ErrorKind {
        self.kind
    }

    /// Returns whether the file was transferred incompletely: without an attribute, or with zeros for a range that
    /// cannot be read.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Returns whether the destination does not support this kind of file, as an archive does not support sockets.
    pub fn is_of_kind(&self) -> bool {
        self.is_of_kind
    }
}

impl fmt::Display for TransferProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Forwards to an observer of the program.
pub(crate) struct Forwarded<'a>(pub(crate) &'a mut dyn TransferObserver);

impl Forwarded<'_> {
    fn begin(&mut self, path: &[u8]) {
        self.0.begin(Path::new(OsStr::from_bytes(path)));
    }

    fn failed(&mut self, path: &[u8], problem: TransferProblem) {
        self.0.failed(Path::new(OsStr::from_bytes(path)), problem);
    }
}

impl Observer<CopyProblem> for Forwarded<'_> {
    fn begin(&mut self, path: &[u8]) {
        self.begin(path);
    }

    fn transferred(&mut self, len_bytes: u64) {
        self.0.transferred(len_bytes);
    }

    fn is_cancelled(&mut self) -> bool {
        self.0.is_cancelled()
    }

    fn failed(&mut self, path: &[u8], problem: CopyProblem) {
        self.failed(path, problem.into());
    }
}

impl Observer<TarProblem> for Forwarded<'_> {
    fn begin(&mut self, path: &[u8]) {
        self.begin(path);
    }

    fn transferred(&mut self, len_bytes: u64) {
        self.0.transferred(len_bytes);
    }

    fn is_cancelled(&mut self) -> bool {
        self.0.is_cancelled()
    }

    fn failed(&mut self, path: &[u8], problem: TarProblem) {
        self.failed(path, problem.into());
    }
}

impl Observer<UnpackError> for Forwarded<'_> {
    fn begin(&mut self, path: &[u8]) {
        self.begin(path);
    }

    fn transferred(&mut self, len_bytes: u64) {
        self.0.transferred(len_bytes);
    }

    fn is_cancelled(&mut self) -> bool {
        self.0.is_cancelled()
    }

    fn failed(&mut self, path: &[u8], problem: UnpackError) {
        self.failed(path, problem.into());
    }
}

impl From<CopyProblem> for TransferProblem {
    fn from(problem: CopyProblem) -> TransferProblem {
        let message = problem.to_string();
        let is_partial = !matches!(problem, CopyProblem::NotCopied(_));
        let cause = match problem {
            CopyProblem::NotCopied(error) | CopyProblem::NotKept(error) => Cause::Copy(error),
            CopyProblem::Damaged(damage) => Cause::Engine(damage.error),
        };
        TransferProblem {
            message,
            kind: cause.kind(),
            is_of_kind: false,
            is_partial,
        }
    }
}

impl From<TarProblem> for TransferProblem {
    fn from(problem: TarProblem) -> TransferProblem {
        let message = problem.to_string();
        let is_of_kind = matches!(problem, TarProblem::Socket);
        let is_partial = matches!(problem, TarProblem::Damaged(_));
        let kind = match problem {
            TarProblem::Name | TarProblem::Limit(_) => io::ErrorKind::InvalidData,
            TarProblem::TooManyHoles | TarProblem::Socket => io::ErrorKind::Unsupported,
            TarProblem::Damaged(damage) => Cause::Engine(damage.error).kind(),
            TarProblem::Enter(refused) => Cause::from(refused).kind(),
            TarProblem::Engine(error) => Cause::Engine(error).kind(),
        };
        TransferProblem {
            message,
            kind,
            is_of_kind,
            is_partial,
        }
    }
}

impl From<UnpackError> for TransferProblem {
    fn from(error: UnpackError) -> TransferProblem {
        let is_partial = matches!(
            error,
            UnpackError::Acl
                | UnpackError::Times { .. }
                | UnpackError::Copy(CopyError::Keep { .. })
        );
        TransferProblem {
            message: error.to_string(),
            kind: Cause::Unpack(error).kind(),
            is_of_kind: false,
            is_partial,
        }
    }
}

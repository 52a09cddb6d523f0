//! Progress and problems of a transfer of a tree, as programs hear of them.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::transfer::Observer;
use crate::transfer::tar::TarProblem;
use crate::transfer::unpack::UnpackError;

/// A listener to a transfer of a tree while it goes on. The transfer goes on past files that it cannot transfer.
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
pub trait TransferObserver {
    /// Hears that the file at `path` is next.
    fn begin(&mut self, path: &Path) {
        let _ = path;
    }

    /// Hears that so many bytes of data were transferred.
    fn transferred(&mut self, len_bytes: u64) {
        let _ = len_bytes;
    }

    /// Hears what could not be transferred of the file at `path`.
    fn failed(&mut self, path: &Path, problem: TransferProblem);
}

/// Something that a transfer could not do, in words for people. [`TransferObserver`] has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferProblem {
    message: String,
    is_of_kind: bool,
}

impl TransferProblem {
    /// Tells whether the destination has no files of this kind, as an archive has no sockets.
    pub fn is_of_kind(&self) -> bool {
        self.is_of_kind
    }
}

impl fmt::Display for TransferProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Passes on to a listener of a program.
pub(crate) struct Told<'a>(pub(crate) &'a mut dyn TransferObserver);

impl Told<'_> {
    fn tell(&mut self, path: &[u8], problem: &dyn fmt::Display, is_of_kind: bool) {
        let problem = TransferProblem {
            message: problem.to_string(),
            is_of_kind,
        };
        self.0.failed(Path::new(OsStr::from_bytes(path)), problem);
    }
}

impl Observer<TarProblem> for Told<'_> {
    fn begin(&mut self, path: &[u8]) {
        self.0.begin(Path::new(OsStr::from_bytes(path)));
    }

    fn transferred(&mut self, len_bytes: u64) {
        self.0.transferred(len_bytes);
    }

    fn failed(&mut self, path: &[u8], problem: TarProblem) {
        let is_of_kind = matches!(problem, TarProblem::Socket);
        self.tell(path, &problem, is_of_kind);
    }
}

impl Observer<UnpackError> for Told<'_> {
    fn begin(&mut self, path: &[u8]) {
        self.0.begin(Path::new(OsStr::from_bytes(path)));
    }

    fn transferred(&mut self, len_bytes: u64) {
        self.0.transferred(len_bytes);
    }

    fn failed(&mut self, path: &[u8], problem: UnpackError) {
        self.tell(path, &problem, false);
    }
}

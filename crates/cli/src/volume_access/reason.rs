//! Errors of the library without their operation and file, which commands describe in their own words.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use ubtrfs::Holder;
use ubtrfs_fuse::caller::Refused;

/// The cause of an error of the library, and its sources.
#[derive(Debug)]
pub(crate) struct Reason(ubtrfs::Error);

impl Reason {
    /// Returns the reason of an `std::io` error from a file of a volume.
    pub(crate) fn of_io(error: io::Error) -> anyhow::Error {
        match error.downcast() {
            Ok(error) => Reason(error).into(),
            Err(error) => error.into(),
        }
    }

    /// Returns whether further changes would fail for the same reason.
    pub(crate) fn is_of_volume(&self) -> bool {
        self.0.is_of_volume()
    }

    /// Returns whether a path does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        self.errno() == Errno::NOENT
    }

    /// Returns the device that is in use and its holder, if that is why a volume could not be opened.
    pub(crate) fn holder(&self) -> Option<(&Path, &Holder)> {
        self.0.holder()
    }

    pub(crate) fn errno(&self) -> Errno {
        Errno::from_raw_os_error(self.0.errno())
    }
}

/// Returns whether a cause of an error is a missing permission.
pub(crate) fn is_refusal(cause: &(dyn StdError + 'static)) -> bool {
    let by_library = cause.downcast_ref::<Reason>();
    let refused = cause.downcast_ref::<Refused>();
    by_library.is_some_and(|Reason(error)| error.is_refusal())
        || matches!(refused, Some(Refused::Access | Refused::Permission))
}

impl From<ubtrfs::Error> for Reason {
    fn from(error: ubtrfs::Error) -> Reason {
        Reason(error)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.reason())
    }
}

impl StdError for Reason {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}

/// Results of the library.
pub(crate) trait Reasoned<T> {
    /// Reduces an error to its cause.
    fn reason(self) -> Result<T, Reason>;
}

impl<T> Reasoned<T> for ubtrfs::Result<T> {
    fn reason(self) -> Result<T, Reason> {
        self.map_err(Reason)
    }
}

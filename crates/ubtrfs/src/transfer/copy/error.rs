//! Errors of copies: fatal ones, and problems with single files.

use rustix::io::Errno;
use ubtrfs_device::errno_of;
use ubtrfs_device::progress::{Cancelled, Effect, Problem};
use ubtrfs_format::limits::LimitError;
use ubtrfs_fs::Error;

use super::dest::DestError;
use super::metadata::MetadataError;
use crate::damage::{kind_of_engine_error, kind_of_error};
#[cfg(doc)]
use crate::escaped::Escaped;
use crate::transfer::file_data::Damage;
use crate::transfer::is_final_error;
use crate::transfer::walk::Refused;

/// An error of a copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CopyError {
    /// An error in the source volume.
    #[error(transparent)]
    Engine(#[from] Error),
    /// An error in the destination volume.
    #[error(transparent)]
    Make(Error),
    /// An attribute that cannot be set on a file in the destination volume.
    #[error("cannot keep {what}: {source}")]
    Keep { what: String, source: Box<Error> },
    /// An error in a destination directory of the host.
    #[error(transparent)]
    Dest(#[from] DestError),
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error(transparent)]
    Walk(#[from] Refused),
    /// Writing a file of the host.
    #[error("cannot write: {0}")]
    Write(#[source] std::io::Error),
    /// Reading a file of the host.
    #[error("cannot {call}: {source}")]
    Host {
        call: &'static str,
        source: std::io::Error,
    },
    /// A final error, with the path in the destination: the file that cannot be made or written, [`Escaped`].
    #[error("cannot write '{path}': {source}")]
    At {
        path: String,
        source: Box<CopyError>,
    },
    /// No sector of the file's data can be read, and its copy is empty.
    #[error("nothing of it can be read, the copy is empty: {0}")]
    NothingRead(Error),
    #[error("gave up at byte {0}: nothing more of it can be read")]
    GaveUp(u64),
    /// A size that exceeds the maximum of a file.
    #[error("it claims {0}")]
    Limit(#[from] LimitError),
    #[error("it cannot share the data of its original")]
    CannotShare,
    #[error("it would be copied onto itself")]
    SameFile,
    #[error("it is the image that is written")]
    Image,
    #[error("its file type is unknown")]
    UnknownKind,
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl CopyError {
    /// Returns the errno that Linux has for the same failure.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            CopyError::Engine(error) | CopyError::Make(error) | CopyError::NothingRead(error) => {
                error.errno()
            }
            CopyError::Keep { source, .. } => source.errno(),
            CopyError::At { source, .. } => source.errno(),
            CopyError::Write(error) | CopyError::Host { source: error, .. } => errno_of(error),
            CopyError::Dest(error) => error.errno(),
            CopyError::Metadata(error) => error.errno(),
            CopyError::Walk(_) | CopyError::GaveUp(_) => Errno::UCLEAN,
            CopyError::CannotShare | CopyError::UnknownKind => Errno::OPNOTSUPP,
            CopyError::SameFile | CopyError::Image => Errno::INVAL,
            CopyError::Limit(limit) => limit.errno(),
            CopyError::Cancelled(_) => Errno::INTR,
        }
    }

    /// Returns whether the copy ends: it was cancelled, or all further files would fail for the same reason.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, CopyError::Cancelled(_)) || self.is_of_volume()
    }

    /// Returns whether any change of the destination volume would fail for the same reason.
    pub(crate) fn is_of_volume(&self) -> bool {
        match self {
            CopyError::Make(error) => is_final_error(error),
            CopyError::Keep { source, .. } => is_final_error(source),
            CopyError::At { source, .. } => source.is_of_volume(),
            _ => false,
        }
    }
}

/// A problem with one file while the others are copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CopyProblem {
    /// The file was not copied, or not completely.
    #[error("{0}")]
    NotCopied(CopyError),
    /// An attribute of the copy could not be preserved.
    #[error("{0}")]
    NotKept(CopyError),
    /// The copy has zeros for a range that cannot be read.
    #[error("bytes {} to {} copied as zeros: {}", .0.range.start, .0.range.end, .0.error)]
    Damaged(Damage),
}

impl CopyProblem {
    /// Returns the problem of the file at `path`, for programs.
    pub(crate) fn at(&self, path: &[u8]) -> Problem {
        let (errno, kind) = match self {
            CopyProblem::NotCopied(error) | CopyProblem::NotKept(error) => {
                (error.errno(), kind_of_error(error, error.errno()))
            }
            CopyProblem::Damaged(Damage { error, .. }) => {
                (error.errno(), kind_of_engine_error(error))
            }
        };
        let effect = match self {
            CopyProblem::NotCopied(_) => Effect::Failed,
            CopyProblem::NotKept(_) | CopyProblem::Damaged(_) => Effect::Incomplete,
        };
        let problem = Problem::new(path, self, errno);
        problem.with_kind(kind).with_effect(effect)
    }
}

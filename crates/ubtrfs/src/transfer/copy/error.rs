//! Errors of copies: those that end one, and problems with single files.

use ubtrfs_engine::Error;
use ubtrfs_format::limits::LimitError;

use super::dest::DestError;
use super::metadata::MetadataError;
#[cfg(doc)]
use crate::escaped::Escaped;
use crate::transfer::file_data::Damage;
use crate::transfer::is_final_error;
use crate::transfer::walk::Refused;

/// An error of a copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CopyError {
    /// In the volume that is copied from.
    #[error(transparent)]
    Engine(#[from] Error),
    /// In the volume that is copied to.
    #[error(transparent)]
    Make(Error),
    /// In the volume that is copied to, for a file that was made.
    #[error("cannot keep {what}: {source}")]
    Keep { what: String, source: Box<Error> },
    /// In a directory of this machine that is copied to.
    #[error(transparent)]
    Dest(#[from] DestError),
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error(transparent)]
    Walk(#[from] Refused),
    /// Writing a file of this machine.
    #[error("cannot write: {0}")]
    Write(#[source] std::io::Error),
    /// Reading a file of this machine.
    #[error("cannot {call}: {source}")]
    Host {
        call: &'static str,
        source: std::io::Error,
    },
    /// A final error, with the path in the destination: what could not be made or written there, [`Escaped`].
    #[error("cannot write '{path}'")]
    At {
        path: String,
        source: Box<CopyError>,
    },
    /// No sector of the file's data can be read, and its copy is empty.
    #[error("nothing of it can be read, the copy is empty: {0}")]
    NothingRead(Error),
    #[error("gave up at byte {0}: nothing more of it can be read")]
    GaveUp(u64),
    /// A size that no file can have.
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
    /// The observer ended the copy.
    #[error("cancelled")]
    Cancelled,
}

impl CopyError {
    /// Tells whether nothing else is copied: the copy was cancelled, or all would fail for the same reason.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, CopyError::Cancelled) || self.is_of_volume()
    }

    /// Tells whether any change of the volume that is copied to would fail for the same reason.
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
    /// There is no copy of it, or not of all of it.
    #[error("{0}")]
    NotCopied(CopyError),
    /// The copy does not have all that it was to keep.
    #[error("{0}")]
    NotKept(CopyError),
    /// The copy has zeros for a range that cannot be read.
    #[error("bytes {} to {} copied as zeros: {}", .0.range.start, .0.range.end, .0.error)]
    Damaged(Damage),
}

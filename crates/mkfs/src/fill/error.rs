//! Errors of filling a volume.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use ubtrfs_device::errno_of;
use ubtrfs_format::compress::CodecError;
use ubtrfs_format::limits::LimitError;

use crate::archive::ArchiveError;
use crate::error::MkfsError;

#[derive(Debug, thiserror::Error)]
pub enum FillError {
    #[error(transparent)]
    Mkfs(#[from] MkfsError),
    #[error("cannot {doing} {}: {source}", path.display())]
    Read {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} has {found} bytes, {expected} when it was opened: it changed while it was read", path.display())]
    Shrank {
        path: PathBuf,
        expected: u64,
        found: u64,
    },
    #[error("{} was replaced while it was read", path.display())]
    Replaced { path: PathBuf },
    #[error("{} is the image that is being made", path.display())]
    IsTarget { path: PathBuf },
    #[error("{} is not a directory", path.display())]
    NotADirectory { path: PathBuf },
    #[error("not enough space: the files need {needed} bytes, there are {available}")]
    NoSpace { needed: u64, available: u64 },
    #[error("{} has {limit}", path.display())]
    Limit { path: PathBuf, limit: LimitError },
    #[error("attributes of {} collide in more bytes than a node holds", path.display())]
    XattrsCollide { path: PathBuf },
    #[error(
        "inode {ino} has more than 65,535 names, or too many names in one directory, without the feature extref"
    )]
    TooManyLinks { ino: u64 },
    #[error("{profile} block groups cannot be filled, only used afterwards")]
    Parity { profile: &'static str },
    #[error("not found: {}", path.display())]
    NotFound { path: PathBuf },
    #[error("compression: {0}")]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

impl FillError {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(&self) -> Errno {
        match self {
            FillError::Mkfs(error) => error.errno(),
            FillError::Read { source, .. } => errno_of(source),
            FillError::Shrank { .. } | FillError::Replaced { .. } => Errno::BUSY,
            FillError::NotADirectory { .. } => Errno::NOTDIR,
            FillError::NotFound { .. } => Errno::NOENT,
            FillError::NoSpace { .. } => Errno::NOSPC,
            FillError::Limit { limit, .. } => limit.errno(),
            FillError::TooManyLinks { .. } => Errno::MLINK,
            FillError::IsTarget { .. }
            | FillError::XattrsCollide { .. }
            | FillError::Parity { .. } => Errno::INVAL,
            FillError::Codec(_) => Errno::IO,
            FillError::Archive(error) => error.errno(),
        }
    }
}

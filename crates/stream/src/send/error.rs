//! The reasons why a subvolume cannot be sent.

use std::io;

use rustix::io::Errno;
use ubtrfs_device::errno_of;
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_tree::TreeError;

use crate::format::WriteError;

#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error(transparent)]
    Engine(#[from] ubtrfs_fs::Error),
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The top level, or a subvolume that is being deleted.
    #[error("subvolume {0} has no name")]
    Nameless(RootId),
    #[error("cannot keep inode numbers in a temporary file")]
    Spill(#[source] io::Error),
    /// The thread panicked.
    #[error("the thread that compares the snapshots ended early")]
    Thread,
    #[error("compressed data needs stream version 2")]
    CompressedNeedsVersion2,
    #[error("subvolumes {0} and {1} are not of the same volume")]
    OtherVolume(RootId, RootId),
    #[error("subvolume {root}: inode {ino} {what}", root = .root, ino = .ino)]
    Corrupt {
        root: RootId,
        ino: InodeNr,
        what: CorruptFile,
    },
}

impl SendError {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(&self) -> Errno {
        match self {
            SendError::Engine(error) => error.errno(),
            SendError::Write(error) => error.errno(),
            SendError::Spill(error) => errno_of(error),
            SendError::Thread => Errno::IO,
            SendError::Nameless(_) | SendError::CompressedNeedsVersion2 => Errno::INVAL,
            SendError::OtherVolume(..) => Errno::XDEV,
            SendError::Corrupt { .. } => Errno::UCLEAN,
        }
    }

    pub(super) fn is_long_path(&self) -> bool {
        let what = CorruptFile::PathTooLong;
        matches!(self, SendError::Corrupt { what: found, .. } if *found == what)
    }
}

/// All IO errors here are from temporary files.
impl From<io::Error> for SendError {
    fn from(error: io::Error) -> SendError {
        SendError::Spill(error)
    }
}

impl From<TreeError> for SendError {
    fn from(error: TreeError) -> SendError {
        SendError::Engine(error.into())
    }
}

/// The defect of an inode that cannot be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CorruptFile {
    #[error("has an item that cannot be decoded")]
    Undecodable,
    #[error("has no name")]
    NoName,
    #[error("has a name that no path may have")]
    Name,
    #[error("has too many names")]
    TooManyNames,
    #[error("holds others, and is no directory")]
    NotDirectory,
    #[error("is its own ancestor, or too deep")]
    Loop,
    #[error("has a path that is too long")]
    PathTooLong,
    #[error("has no type in its mode")]
    Mode,
    #[error("has extents beyond the file offsets")]
    ExtentRange,
    #[error("is shorter than the length in its item")]
    ShortRead,
}

pub(super) type Result<T> = std::result::Result<T, SendError>;

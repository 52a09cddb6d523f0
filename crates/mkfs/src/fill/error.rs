//! Why a volume could not be filled.

use std::io;
use std::path::PathBuf;

use ubtrfs_format::compress::CodecError;

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
    #[error("{} has a name of {len} bytes (max 255)", path.display())]
    NameTooLong { path: PathBuf, len: usize },
    #[error("{} links to a path of {len} bytes (max {max})", path.display())]
    TargetTooLong {
        path: PathBuf,
        len: usize,
        max: usize,
    },
    #[error("attribute {name} of {} takes {len} bytes (max {max})", path.display())]
    XattrTooLarge {
        path: PathBuf,
        name: String,
        len: usize,
        max: usize,
    },
    #[error("attributes of {} collide in more bytes than a node holds", path.display())]
    XattrsCollide { path: PathBuf },
    #[error("inode {ino} has too many names in one directory, without the feature extref")]
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

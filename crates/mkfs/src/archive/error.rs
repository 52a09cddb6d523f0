//! Errors of archives.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use ubtrfs_device::errno_of;

/// Offsets refer to the last header read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("archive at byte {offset}: {source}")]
    Read { offset: u64, source: io::Error },
    #[error("archive ends inside the member at byte {offset}")]
    Truncated { offset: u64 },
    #[error("not a tar archive: no header at byte {offset}")]
    NoHeader { offset: u64 },
    #[error("archive at byte {offset}: {field} is not a valid number")]
    Number { offset: u64, field: &'static str },
    #[error("archive at byte {offset}: extended header is not well formed")]
    Pax { offset: u64 },
    #[error("archive at byte {offset}: map of a sparse file is not well formed")]
    SparseMap { offset: u64 },
    #[error("archive at byte {offset}: sparse file has more than {max} parts")]
    TooManyParts { offset: u64, max: usize },
    #[error("archive at byte {offset}: name or header of {len} bytes is too long")]
    TooLong { offset: u64, len: u64 },
    #[error("archive at byte {offset}: the file continues in another volume of the archive")]
    MultiVolume { offset: u64 },
    #[error("{}: leads out of the archive", path.display())]
    Outside { path: PathBuf },
    #[error("{}: a name is longer than 255 bytes or holds a NUL", path.display())]
    Name { path: PathBuf },
    #[error("{}: part of the way is not a directory", path.display())]
    NotADirectory { path: PathBuf },
    #[error("{}: something else takes the place of a directory that is not empty", path.display())]
    ReplacesDirectory { path: PathBuf },
    #[error("{} is a hard link to {}, which is not in the archive", path.display(), target.display())]
    LinkTarget { path: PathBuf, target: PathBuf },
    #[error("archive has more than {max} members")]
    TooMany { max: u32 },
}

impl ArchiveError {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(&self) -> Errno {
        match self {
            ArchiveError::Read { source, .. } => errno_of(source),
            ArchiveError::MultiVolume { .. } => Errno::OPNOTSUPP,
            ArchiveError::Truncated { .. }
            | ArchiveError::NoHeader { .. }
            | ArchiveError::Number { .. }
            | ArchiveError::Pax { .. }
            | ArchiveError::SparseMap { .. }
            | ArchiveError::TooManyParts { .. }
            | ArchiveError::TooLong { .. }
            | ArchiveError::Outside { .. }
            | ArchiveError::Name { .. }
            | ArchiveError::NotADirectory { .. }
            | ArchiveError::ReplacesDirectory { .. }
            | ArchiveError::LinkTarget { .. }
            | ArchiveError::TooMany { .. } => Errno::UCLEAN,
        }
    }

    /// Returns whether the archive ends early.
    pub fn is_truncated(&self) -> bool {
        match self {
            ArchiveError::Truncated { .. } => true,
            ArchiveError::Read { source, .. } => source.kind() == io::ErrorKind::UnexpectedEof,
            _ => false,
        }
    }
}

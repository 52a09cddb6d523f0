//! What the library reports, and what of it the traits of `std::io` say.

use std::io;
use std::path::PathBuf;

use ubtrfs_engine::mkfs::MkfsError;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Engine(#[from] ubtrfs_engine::Error),
    #[error(transparent)]
    Mkfs(#[from] MkfsError),
    #[error("{}: {source}", path.display())]
    Image { path: PathBuf, source: io::Error },
    /// A path that names no entry of a directory, such as "/".
    #[error("{} names no entry", .0.display())]
    NoName(PathBuf),
}

impl Error {
    /// The kind that `std::fs` would report.
    pub fn kind(&self) -> io::ErrorKind {
        use ubtrfs_engine::Error as Engine;
        match self {
            Error::Image { source, .. } => source.kind(),
            Error::NoName(_) | Error::Mkfs(_) => io::ErrorKind::InvalidInput,
            Error::Engine(error) => match error {
                Engine::NotFound
                | Engine::NoSuchInode(_)
                | Engine::NoSuchSubvolume(_)
                | Engine::NoXattr => io::ErrorKind::NotFound,
                Engine::Exists => io::ErrorKind::AlreadyExists,
                Engine::NotEmpty(_) => io::ErrorKind::DirectoryNotEmpty,
                Engine::NotADirectory(_) => io::ErrorKind::NotADirectory,
                Engine::IsADirectory(_) => io::ErrorKind::IsADirectory,
                Engine::NoSpace | Engine::Space(_) => io::ErrorKind::StorageFull,
                Engine::ReadOnly
                | Engine::ReadOnlySubvolume(_)
                | Engine::Aborted(_)
                | Engine::Closed => io::ErrorKind::ReadOnlyFilesystem,
                Engine::NotPermitted(_) => io::ErrorKind::PermissionDenied,
                Engine::CrossSubvolume => io::ErrorKind::CrossesDevices,
                Engine::NameTooLong => io::ErrorKind::InvalidFilename,
                Engine::TooManyLinks => io::ErrorKind::TooManyLinks,
                Engine::Invalid(_) => io::ErrorKind::InvalidInput,
                Engine::Corrupt { .. } | Engine::Tree(_) => io::ErrorKind::InvalidData,
                _ => io::ErrorKind::Other,
            },
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

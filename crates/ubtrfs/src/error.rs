//! Errors of the library: the operation, its paths, and the kind that `std::io` has for the cause.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use ubtrfs_device::{AttemptProblem, DeviceError, ReadFailure};
use ubtrfs_engine::Error as EngineError;
use ubtrfs_engine::{SpaceError, TreeError};
use ubtrfs_mkfs::MkfsError;

#[cfg(test)]
mod tests;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation on a path, or from one path to another, and what was wrong.
    #[error("cannot {operation} '{}'{}: {cause}", path.display(), To(to.as_deref()))]
    Operation {
        operation: &'static str,
        path: PathBuf,
        to: Option<PathBuf>,
        cause: Box<Error>,
    },
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Mkfs(#[from] MkfsError),
    /// A file of the host.
    #[error("{}: {source}", path.display())]
    Image { path: PathBuf, source: io::Error },
    /// A path that names no entry of a directory, such as "/".
    #[error("{} names no entry", .0.display())]
    NoName(PathBuf),
    /// Source and destination are one file.
    #[error("they are the same file")]
    SameFile,
    /// A subvolume, which only `Volume::delete_subvolume` removes with its contents.
    #[error("'{}' is a subvolume", .0.display())]
    Subvolume(PathBuf),
}

impl Error {
    /// The kind that `std::fs` reports for the same failure, or the nearest where `std::fs` knows none.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Error::Operation { cause, .. } => cause.kind(),
            Error::Image { source, .. } => source.kind(),
            Error::NoName(_) => io::ErrorKind::ResourceBusy,
            Error::SameFile => io::ErrorKind::InvalidInput,
            Error::Subvolume(_) => io::ErrorKind::CrossesDevices,
            Error::Mkfs(error) => mkfs_kind(error),
            Error::Engine(error) => engine_kind(error),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

/// The second path of an operation that has two.
struct To<'a>(Option<&'a Path>);

impl fmt::Display for To<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(path) => write!(f, " to '{}'", path.display()),
            None => Ok(()),
        }
    }
}

/// Names the operation and the path with an error.
pub(crate) trait Naming<T> {
    fn naming(self, operation: &'static str, path: &Path) -> Result<T>;
    fn naming_both(self, operation: &'static str, path: &Path, to: &Path) -> Result<T>;
}

impl<T, E: Into<Error>> Naming<T> for std::result::Result<T, E> {
    fn naming(self, operation: &'static str, path: &Path) -> Result<T> {
        self.map_err(|error| named(operation, path, None, error.into()))
    }

    fn naming_both(self, operation: &'static str, path: &Path, to: &Path) -> Result<T> {
        self.map_err(|error| named(operation, path, Some(to), error.into()))
    }
}

/// An error of an operation below keeps its own names, which are nearer to the cause.
fn named(operation: &'static str, path: &Path, to: Option<&Path>, cause: Error) -> Error {
    match cause {
        named @ Error::Operation { .. } => named,
        cause => Error::Operation {
            operation,
            path: path.to_owned(),
            to: to.map(Path::to_owned),
            cause: Box::new(cause),
        },
    }
}

// No arm for all others in the matches below: a new error gets a kind that somebody chose.

fn engine_kind(error: &EngineError) -> io::ErrorKind {
    use io::ErrorKind as Kind;
    match error {
        EngineError::WouldBlock(_) => Kind::WouldBlock,
        EngineError::Device(error) => device_kind(error),
        EngineError::Tree(error) => tree_kind(error),
        EngineError::Space(error) => space_kind(error),
        EngineError::Thread(source) => source.kind(),
        EngineError::DataRead { source, .. } => read_kind(source),
        EngineError::LogRead(source) | EngineError::LogItem { source, .. } => engine_kind(source),
        EngineError::NotFound
        | EngineError::NoSuchInode(_)
        | EngineError::NoSuchSubvolume(_)
        | EngineError::NoXattr => Kind::NotFound,
        EngineError::Exists => Kind::AlreadyExists,
        EngineError::NotEmpty(_) => Kind::DirectoryNotEmpty,
        EngineError::NotADirectory(_) => Kind::NotADirectory,
        EngineError::IsADirectory(_) => Kind::IsADirectory,
        EngineError::NoSpace | EngineError::XattrTooBig => Kind::StorageFull,
        EngineError::FileTooBig => Kind::FileTooLarge,
        EngineError::ReadOnly
        | EngineError::ReadOnlySubvolume(_)
        | EngineError::Aborted(_)
        | EngineError::Closed
        | EngineError::Unwritable(_)
        | EngineError::Seed => Kind::ReadOnlyFilesystem,
        EngineError::NotPermitted(_)
        | EngineError::DefaultSubvolume(_)
        | EngineError::WritableSubvolume(_) => Kind::PermissionDenied,
        EngineError::CrossSubvolume => Kind::CrossesDevices,
        EngineError::NameTooLong | EngineError::NameHashFull => Kind::InvalidFilename,
        EngineError::TooManyLinks => Kind::TooManyLinks,
        EngineError::TooManySymlinks => symlink_loop(),
        EngineError::Invalid(_)
        | EngineError::Unaligned
        | EngineError::CsumsDiffer
        | EngineError::NotASymlink(_)
        | EngineError::NotAFile(_)
        | EngineError::NotASubvolume => Kind::InvalidInput,
        EngineError::XattrNamespace | EngineError::NoDiscard => Kind::Unsupported,
        EngineError::Ref(_)
        | EngineError::NoSuchTree(_)
        | EngineError::Corrupt { .. }
        | EngineError::CsumMissing { .. }
        | EngineError::Decompress { .. } => Kind::InvalidData,
        EngineError::Build(_)
        | EngineError::DataLost { .. }
        | EngineError::NoConvergence(_)
        | EngineError::CommitPanicked(_) => Kind::Other,
    }
}

/// `std` has a kind for ELOOP that cannot be named yet.
fn symlink_loop() -> io::ErrorKind {
    io::Error::from(rustix::io::Errno::LOOP).kind()
}

fn device_kind(error: &DeviceError) -> io::ErrorKind {
    use io::ErrorKind as Kind;
    match error {
        DeviceError::WouldBlock(_) => Kind::WouldBlock,
        DeviceError::Open { source, .. }
        | DeviceError::ReadRaw { source, .. }
        | DeviceError::WriteRaw { source, .. }
        | DeviceError::Discard { source, .. }
        | DeviceError::Flush { source, .. }
        | DeviceError::Read { source, .. } => source.kind(),
        DeviceError::InUse { .. } | DeviceError::Changed { .. } => Kind::ResourceBusy,
        DeviceError::Missing { .. } => Kind::NotFound,
        DeviceError::NoDevice
        | DeviceError::Kind { .. }
        | DeviceError::OtherVolume { .. }
        | DeviceError::Ambiguous { .. }
        | DeviceError::DuplicateDevice { .. } => Kind::InvalidInput,
        DeviceError::NotBtrfs { .. }
        | DeviceError::Incomplete { .. }
        | DeviceError::Superblock { .. }
        | DeviceError::FirstSuperblock { .. }
        | DeviceError::Truncated { .. }
        | DeviceError::Chunk { .. }
        | DeviceError::NoChunk { .. }
        | DeviceError::NoMirror { .. }
        | DeviceError::Rebuild { .. } => Kind::InvalidData,
        DeviceError::Unsupported { .. } => Kind::Unsupported,
        DeviceError::Unwritable { .. }
        | DeviceError::Foreign { .. }
        | DeviceError::TotalBytes { .. }
        | DeviceError::ParityWrite { .. }
        | DeviceError::NoCopy { .. } => Kind::ReadOnlyFilesystem,
    }
}

fn tree_kind(error: &TreeError) -> io::ErrorKind {
    match error {
        TreeError::WouldBlock(_) => io::ErrorKind::WouldBlock,
        TreeError::Read { source, .. } => read_kind(source),
        TreeError::Corrupt { .. }
        | TreeError::Unexpected { .. }
        | TreeError::KeyBound { .. }
        | TreeError::Misaligned { .. }
        | TreeError::Level { .. } => io::ErrorKind::InvalidData,
        TreeError::Unwritable { .. } => io::ErrorKind::Other,
    }
}

/// The kind of a mirror that could not be read, rather than of one that was read and was damaged.
fn read_kind(failure: &ReadFailure) -> io::ErrorKind {
    let kinds = failure.attempts.iter().map(|attempt| &attempt.problem);
    let mut kinds = kinds.filter_map(|problem| match problem {
        AttemptProblem::Device(error) => Some(device_kind(error)),
        AttemptProblem::Content => None,
    });
    kinds.next().unwrap_or(io::ErrorKind::InvalidData)
}

fn space_kind(error: &SpaceError) -> io::ErrorKind {
    match error {
        SpaceError::NoSpace { .. }
        | SpaceError::ReadOnlyProfile { .. }
        | SpaceError::SystemChunkArray => io::ErrorKind::StorageFull,
        SpaceError::NoBlockGroup { .. } => io::ErrorKind::InvalidInput,
        SpaceError::InUse { .. } => io::ErrorKind::ResourceBusy,
        SpaceError::Device(error) => device_kind(error),
    }
}

fn mkfs_kind(error: &MkfsError) -> io::ErrorKind {
    match error {
        MkfsError::Write { source, .. }
        | MkfsError::Read { source, .. }
        | MkfsError::Flush { source, .. }
        | MkfsError::Resize { source, .. }
        | MkfsError::Scratch(source) => source.kind(),
        MkfsError::TooLarge => io::ErrorKind::FileTooLarge,
        MkfsError::DeviceTooSmall { .. }
        | MkfsError::NoRoomForChunk { .. }
        | MkfsError::NoRoomForBlock { .. } => io::ErrorKind::StorageFull,
        MkfsError::NotSettled { .. } | MkfsError::Chunk(_) | MkfsError::Build(_) => {
            io::ErrorKind::Other
        }
        MkfsError::LabelTooLong { .. }
        | MkfsError::LabelNul
        | MkfsError::SectorsizeRange(_)
        | MkfsError::SectorsizePower(_)
        | MkfsError::NodesizeSmall { .. }
        | MkfsError::NodesizeLarge(_)
        | MkfsError::NodesizeUnaligned { .. }
        | MkfsError::NodesizePower(_)
        | MkfsError::NodesizeMixed { .. }
        | MkfsError::MixedProfiles
        | MkfsError::BlockGroupTreeNeeds
        | MkfsError::TooFewDevices { .. }
        | MkfsError::DeviceUuids { .. }
        | MkfsError::DeviceCount { .. }
        | MkfsError::DeviceShrank { .. } => io::ErrorKind::InvalidInput,
    }
}

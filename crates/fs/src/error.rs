//! Errors of the engine.
//!
//! Variants name the failed operation and the fault on disk.

use rustix::io::Errno;
use ubtrfs_device::nonblocking::WouldBlock;
use ubtrfs_device::progress::Cancelled;
use ubtrfs_device::{DeviceError, ReadFailure, errno_of};
use ubtrfs_format::compress::CodecError;
use ubtrfs_format::ids::{InodeNr, Logical, RootId};
use ubtrfs_format::key::Key;
use ubtrfs_format::limits::LimitError;
use ubtrfs_format::maker::Marks;
use ubtrfs_storage::FileId;
use ubtrfs_tree::{BuildError, TreeError};

pub use ubtrfs_storage::{DeviceSetError, ExtentShape, RefError, RefKey, SpaceError};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    WouldBlock(#[from] WouldBlock),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Ref(#[from] RefError),
    #[error(transparent)]
    Space(#[from] SpaceError),
    #[error(transparent)]
    DeviceSet(#[from] DeviceSetError),
    #[error("no such file or directory")]
    NotFound,
    #[error("the volume is open for reading only")]
    ReadOnly,
    #[error("the volume is read-only since a transaction failed: {0}")]
    Aborted(String),
    #[error("the volume is closed")]
    Closed,
    /// This process is a fork of the one that opened the volume.
    #[error("the volume was opened by the parent process, before a fork")]
    Forked,
    #[error("the volume cannot be written: {0}")]
    Unwritable(String),
    /// The system of a NAS maker has written to the volume, and stores data there that only this system maintains.
    #[error("the volume is only read, because it has marks of {0}")]
    Marked(Marks),
    /// The volume has an fsync log that cannot be read. The last commit can be used without it.
    #[error("the fsync log cannot be read: {0}")]
    LogRead(#[source] Box<Error>),
    /// An item of the fsync log cannot be replayed. The last commit can be used without the log.
    #[error(
        "the fsync log of subvolume {subvolume} cannot be replayed: block {block}, item {key}: {source}"
    )]
    LogItem {
        subvolume: RootId,
        block: Logical,
        key: Key,
        #[source]
        source: Box<Error>,
    },
    #[error("the volume is a seed, which is only read")]
    Seed,
    #[error("no device of the volume takes discards")]
    NoDiscard,
    #[error("no space left on device")]
    NoSpace,
    #[error("the file would be too large")]
    FileTooBig,
    #[error("the range is not whole sectors")]
    Unaligned,
    #[error("one of the files has checksums, the other has not")]
    CsumsDiffer,
    #[error("written data of subvolume {} inode {} is lost: {reason}", .file.root, .file.ino)]
    DataLost { file: FileId, reason: String },
    /// A group of operations is committed at its end, as a whole.
    #[error(
        "a group of operations needs a commit before its end: it is too large, or contains a sync"
    )]
    CommitInGroup,
    #[error("trees still change after {0} rounds of a commit")]
    NoConvergence(usize),
    #[error("a commit panicked: {0}")]
    CommitPanicked(String),
    #[error("cannot start the thread that commits: {0}")]
    Thread(#[source] std::io::Error),
    #[error("not a directory")]
    NotADirectory(FileId),
    #[error("is a directory")]
    IsADirectory(FileId),
    #[error("not a symbolic link")]
    NotASymlink(FileId),
    #[error("not a regular file")]
    NotAFile(FileId),
    #[error("file exists")]
    Exists,
    #[error("directory {} of subvolume {} is not empty", .0.ino, .0.root)]
    NotEmpty(FileId),
    #[error("name too long")]
    NameTooLong,
    #[error("too many names have the hash of this one")]
    NameHashFull,
    #[error("too many subvolumes were received from one source")]
    UuidItemFull,
    #[error("too many links")]
    TooManyLinks,
    #[error("not in the same subvolume")]
    CrossSubvolume,
    #[error("not a subvolume")]
    NotASubvolume,
    #[error("subvolume {0} is read-only")]
    ReadOnlySubvolume(RootId),
    /// The subvolume must be read-only, and is not or has not always been.
    #[error("subvolume {0} is not read-only")]
    WritableSubvolume(RootId),
    /// The subvolume is being sent or compared, and must not change.
    #[error("subvolume {0} is in use as a snapshot and stays read-only")]
    HeldSubvolume(RootId),
    #[error("subvolume {0} is the default subvolume")]
    DefaultSubvolume(RootId),
    /// The inode is immutable or append-only, or its file type does not allow the change.
    #[error("the flags or the kind of inode {} of subvolume {} forbid the change", .0.ino, .0.root)]
    NotPermitted(FileId),
    #[error("invalid {0}")]
    Invalid(&'static str),
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    #[error("no such attribute")]
    NoXattr,
    #[error("attributes with this prefix are not supported")]
    XattrNamespace,
    #[error("no space for the attribute in addition to others")]
    XattrTooBig,
    #[error("too many levels of symbolic links")]
    TooManySymlinks,
    #[error("tree {0} does not exist")]
    NoSuchTree(RootId),
    #[error("subvolume {0} does not exist")]
    NoSuchSubvolume(RootId),
    #[error("inode {} does not exist in subvolume {}", .0.ino, .0.root)]
    NoSuchInode(FileId),
    #[error("tree {tree}, item {key}: {what}")]
    Corrupt {
        tree: RootId,
        key: Key,
        what: CorruptItem,
    },
    #[error("subvolume {} inode {} offset {offset}: {source}", .file.root, .file.ino)]
    DataRead {
        file: FileId,
        offset: u64,
        #[source]
        source: ReadFailure,
    },
    #[error("subvolume {} inode {} offset {offset}: data at {logical} has no checksum", .file.root, .file.ino)]
    CsumMissing {
        file: FileId,
        offset: u64,
        logical: Logical,
    },
    #[error("subvolume {} inode {} offset {offset}: {source}", .file.root, .file.ino)]
    Decompress {
        file: FileId,
        offset: u64,
        #[source]
        source: CodecError,
    },
}

impl Error {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(&self) -> Errno {
        match self {
            Error::WouldBlock(_) => Errno::AGAIN,
            Error::Device(error) => error.errno(),
            Error::Tree(error) => error.errno(),
            Error::Space(error) => error.errno(),
            Error::DeviceSet(error) => error.errno(),
            Error::Thread(source) => errno_of(source),
            Error::DataRead { source, .. } => source.errno(),
            Error::LogRead(source) | Error::LogItem { source, .. } => source.errno(),
            Error::NotFound => Errno::NOENT,
            // The kernel holds a node whose file, or whose subvolume, is gone.
            Error::NoSuchInode(_) | Error::NoSuchSubvolume(_) => Errno::STALE,
            Error::NoXattr => Errno::NODATA,
            Error::Exists => Errno::EXIST,
            Error::NotEmpty(_) => Errno::NOTEMPTY,
            Error::NotADirectory(_) => Errno::NOTDIR,
            Error::IsADirectory(_) => Errno::ISDIR,
            Error::NoSpace | Error::XattrTooBig => Errno::NOSPC,
            Error::Forked => Errno::BUSY,
            Error::FileTooBig => Errno::FBIG,
            Error::CommitInGroup => Errno::DQUOT,
            Error::NameHashFull | Error::UuidItemFull => Errno::OVERFLOW,
            Error::ReadOnly
            | Error::ReadOnlySubvolume(_)
            | Error::Aborted(_)
            | Error::Closed
            | Error::Unwritable(_)
            | Error::Marked(_)
            | Error::Seed => Errno::ROFS,
            Error::NotPermitted(_)
            | Error::DefaultSubvolume(_)
            | Error::HeldSubvolume(_)
            | Error::WritableSubvolume(_) => Errno::PERM,
            Error::Cancelled(_) => Errno::INTR,
            Error::CrossSubvolume => Errno::XDEV,
            Error::NameTooLong => Errno::NAMETOOLONG,
            Error::TooManyLinks => Errno::MLINK,
            Error::TooManySymlinks => Errno::LOOP,
            Error::Invalid(_)
            | Error::Unaligned
            | Error::CsumsDiffer
            | Error::NotASymlink(_)
            | Error::NotAFile(_)
            | Error::NotASubvolume => Errno::INVAL,
            Error::XattrNamespace | Error::NoDiscard => Errno::OPNOTSUPP,
            Error::Ref(_) | Error::NoSuchTree(_) | Error::Corrupt { .. } => Errno::UCLEAN,
            Error::Build(_)
            | Error::NoConvergence(_)
            | Error::CommitPanicked(_)
            | Error::DataLost { .. }
            | Error::CsumMissing { .. }
            | Error::Decompress { .. } => Errno::IO,
        }
    }

    /// Returns whether the operation only failed because the thread must not wait
    /// (`ubtrfs_device::nonblocking`). Nothing is wrong and nothing was changed.
    pub fn is_would_block(&self) -> bool {
        match self {
            Error::WouldBlock(_) | Error::Tree(TreeError::WouldBlock(_)) => true,
            Error::Device(source) | Error::Space(SpaceError::Device(source)) => {
                source.is_would_block()
            }
            Error::DataRead { source, .. } => source.is_would_block(),
            _ => false,
        }
    }

    /// Returns whether the volume or its storage is write-protected. The kernel's btrfs fails in the same
    /// cases, except for marks, and mount(8) then retries read-only.
    pub fn is_write_protected(&self) -> bool {
        let Error::Device(DeviceError::Open { source, .. }) = self else {
            return matches!(self, Error::Seed | Error::Marked(_));
        };
        matches!(
            source.kind(),
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem
        )
    }

    /// Returns whether the volume can only be opened for reading.
    pub fn is_unwritable(&self) -> bool {
        match self {
            Error::Unwritable(_) | Error::Marked(_) | Error::Seed => true,
            Error::Device(source) => matches!(
                source,
                DeviceError::Foreign { .. }
                    | DeviceError::TotalBytes { .. }
                    | DeviceError::DeviceFsid { .. }
            ),
            _ => false,
        }
    }

    /// Returns whether the fsync log cannot be replayed.
    pub fn is_of_log(&self) -> bool {
        matches!(self, Error::LogRead(_) | Error::LogItem { .. })
    }

    /// Returns whether the volume is full.
    pub fn is_no_space(&self) -> bool {
        matches!(
            self,
            Error::NoSpace | Error::Space(SpaceError::NoSpace { .. })
        )
    }
}

/// A fault of an item that the check of its block does not find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CorruptItem {
    /// A fault of an item of the space or transaction layer.
    #[error(transparent)]
    Stored(ubtrfs_storage::CorruptItem),
    #[error("item cannot be decoded")]
    Undecodable,
    #[error("mode {0:#o} has no file type")]
    Mode(u32),
    #[error("directory entry points to {0}, neither an inode nor a subvolume")]
    Location(Key),
    #[error("unknown compression {0}")]
    Compression(u8),
    #[error("file extent is encrypted in an unknown way")]
    Encryption,
    #[error(
        "compressed extent of {disk_bytes} bytes on disk, {ram_bytes} in memory is out of range"
    )]
    CompressedSize { disk_bytes: u64, ram_bytes: u64 },
    #[error("file extent reaches beyond the file offsets or its extent")]
    ExtentRange,
    #[error("file extent at {logical} is in no chunk, or reaches beyond it")]
    ExtentUnmapped { logical: Logical },
    #[error("file extents overlap")]
    ExtentOverlap,
    #[error("{0} is not a valid inode number")]
    InodeNumber(InodeNr),
    #[error("inode {0} has no name")]
    NoName(InodeNr),
    #[error("the directory of a back reference lacks its name")]
    NotListed,
    #[error("directories or subvolumes form a loop")]
    Loop,
    #[error("it belongs to inode {0}, which does not exist")]
    LogNoInode(InodeNr),
    #[error("it needs an inode of another kind")]
    LogKind,
    #[error("it would change the entry of a subvolume")]
    LogSubvolumeEntry,
    #[error("index {0} of the directory is another entry's")]
    LogIndexTaken(u64),
    #[error("a directory would have {0} names")]
    LogDirectoryNames(u32),
    #[error("the extent at {0} is in space that is in use or is not for data")]
    LogExtentInUse(Logical),
}

impl From<LimitError> for Error {
    fn from(limit: LimitError) -> Error {
        match limit {
            LimitError::NameTooLong { .. }
            | LimitError::XattrNameTooLong { .. }
            | LimitError::TargetTooLong { .. } => Error::NameTooLong,
            LimitError::Name => Error::Invalid("name"),
            LimitError::XattrName => Error::Invalid("name of an attribute"),
            LimitError::XattrTooLarge { .. } => Error::XattrTooBig,
            // As for an empty path.
            LimitError::TargetEmpty => Error::NotFound,
            LimitError::Target => Error::Invalid("target of a symbolic link"),
            LimitError::FileTooLarge { .. } => Error::FileTooBig,
            LimitError::TooManyLinks { .. } => Error::TooManyLinks,
            LimitError::Device { .. } => Error::Invalid("number of a device"),
        }
    }
}

impl From<ubtrfs_storage::CorruptItem> for CorruptItem {
    fn from(what: ubtrfs_storage::CorruptItem) -> CorruptItem {
        use ubtrfs_storage::CorruptItem as Stored;
        match what {
            Stored::Undecodable => CorruptItem::Undecodable,
            Stored::InodeNumber(number) => CorruptItem::InodeNumber(number),
            Stored::ExtentUnmapped { logical } => CorruptItem::ExtentUnmapped { logical },
            what => CorruptItem::Stored(what),
        }
    }
}

/// One to one, so that each error has a single variant for callers. An error of this crate that passed
/// through a lower layer is unwrapped.
impl From<ubtrfs_storage::Error> for Error {
    fn from(error: ubtrfs_storage::Error) -> Error {
        use ubtrfs_storage::Error as Below;
        match error {
            Below::WouldBlock(source) => Error::WouldBlock(source),
            Below::Device(source) => Error::Device(source),
            Below::Tree(source) => Error::Tree(source),
            Below::Build(source) => Error::Build(source),
            Below::Ref(source) => Error::Ref(source),
            Below::Space(source) => Error::Space(source),
            Below::DeviceSet(source) => Error::DeviceSet(source),
            Below::Aborted(reason) => Error::Aborted(reason),
            Below::Closed => Error::Closed,
            Below::Forked => Error::Forked,
            Below::Unwritable(reason) => Error::Unwritable(reason),
            Below::Marked(marks) => Error::Marked(marks),
            Below::Seed => Error::Seed,
            Below::NoSpace => Error::NoSpace,
            Below::CommitInGroup => Error::CommitInGroup,
            Below::NoConvergence(rounds) => Error::NoConvergence(rounds),
            Below::CommitPanicked(reason) => Error::CommitPanicked(reason),
            Below::NoSuchTree(tree) => Error::NoSuchTree(tree),
            Below::NoSuchSubvolume(root) => Error::NoSuchSubvolume(root),
            Below::ReadOnlySubvolume(root) => Error::ReadOnlySubvolume(root),
            Below::HeldSubvolume(root) => Error::HeldSubvolume(root),
            Below::Cancelled(source) => Error::Cancelled(source),
            Below::Corrupt { tree, key, what } => Error::Corrupt {
                tree,
                key,
                what: what.into(),
            },
            Below::Reclaim(source) => match source.downcast() {
                Ok(error) => *error,
                Err(other) => Error::Aborted(other.to_string()),
            },
        }
    }
}

impl From<Error> for ubtrfs_storage::Error {
    fn from(error: Error) -> ubtrfs_storage::Error {
        ubtrfs_storage::Error::Reclaim(Box::new(error))
    }
}

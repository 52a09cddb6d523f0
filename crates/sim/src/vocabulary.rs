//! The operations of scripts, their results, and their errors.
//!
//! Operations refer to files by path or by a slot that was filled by `Open`. Paths are relative to the volume's root,
//! cross into subvolumes and follow no symlinks. All operations are executed as root.

use std::fmt;

use rustix::io::Errno;

use crate::fill;
use crate::manifest::{Kind, Time};
use crate::rng::Rng;

/// Names separated by `/`, empty for the root. Debug prints the expression that creates it.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FsPath(Vec<u8>);

/// Creates an `FsPath`; a short form of `FsPath::new` for scripts in tests.
pub fn path(bytes: impl AsRef<[u8]>) -> FsPath {
    FsPath(bytes.as_ref().to_vec())
}

impl FsPath {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
    }

    /// Returns the folder and the name in it, or None for the root.
    pub fn split(&self) -> Option<(FsPath, &[u8])> {
        if self.is_root() {
            return None;
        }
        Some(match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (FsPath(self.0[..at].to_vec()), &self.0[at + 1..]),
            None => (FsPath::default(), &self.0),
        })
    }

    pub fn join(&self, name: &[u8]) -> FsPath {
        let mut path = self.0.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        FsPath(path)
    }
}

impl fmt::Debug for FsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "path(b\"{}\")", self.0.escape_ascii())
    }
}

/// A target of a symlink or a name of an xattr. Debug prints the expression that creates it.
#[derive(Clone, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

/// Creates `Bytes`, in short form for scripts in tests.
pub fn bytes(bytes: impl AsRef<[u8]>) -> Bytes {
    Bytes(bytes.as_ref().to_vec())
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes(b\"{}\")", self.0.escape_ascii())
    }
}

/// The number of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u8);

/// A file by its path or by a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    Path(FsPath),
    Slot(Slot),
}

/// The data of a write, in a form that is short to print.
#[derive(Clone, PartialEq, Eq)]
pub enum Data {
    Bytes(Vec<u8>),
    Made {
        kind: fill::Kind,
        len_bytes: usize,
        seed: u64,
    },
}

impl Data {
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Data::Bytes(bytes) => bytes.clone(),
            Data::Made {
                kind,
                len_bytes,
                seed,
            } => fill::bytes(*kind, *len_bytes, &mut Rng::new(*seed)),
        }
    }

    pub fn len_bytes(&self) -> usize {
        match self {
            Data::Bytes(bytes) => bytes.len(),
            Data::Made { len_bytes, .. } => *len_bytes,
        }
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Data::Bytes(bytes) => write!(f, "Data::Bytes(b\"{}\".to_vec())", bytes.escape_ascii()),
            Data::Made {
                kind,
                len_bytes,
                seed,
            } => write!(
                f,
                "Data::Made {{ kind: Kind::{kind:?}, len_bytes: {len_bytes}, seed: {seed} }}"
            ),
        }
    }
}

/// The kind of node for `Mknod`. The numbers of a device are major and minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    Fifo,
    Socket,
    CharDevice(u32, u32),
    BlockDevice(u32, u32),
}

impl Node {
    pub fn kind(self) -> Kind {
        match self {
            Node::Fifo => Kind::Fifo,
            Node::Socket => Kind::Socket,
            Node::CharDevice(..) => Kind::CharDevice,
            Node::BlockDevice(..) => Kind::BlockDevice,
        }
    }

    pub fn rdev(self) -> (u32, u32) {
        match self {
            Node::Fifo | Node::Socket => (0, 0),
            Node::CharDevice(major, minor) | Node::BlockDevice(major, minor) => (major, minor),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameHow {
    Replace,
    NoReplace,
    Exchange,
    /// Leaves a character device 0:0 with mode 0 at the old name.
    Whiteout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Preallocates, and extends the file if the range ends past its end.
    Extend,
    KeepSize,
    Punch,
    Zero,
    ZeroKeepSize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrHow {
    Any,
    Create,
    Replace,
}

/// Inode flags of `chattr`: some affect operations, others are only stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub immutable: bool,
    pub append: bool,
    /// Only accepted for empty files and directories; a new file inherits it.
    pub nocow: bool,
    pub nodump: bool,
    pub noatime: bool,
    /// Linked to the property `btrfs.compression`. New entries of a directory inherit it.
    pub compress: bool,
    /// Inherited like `compress`.
    pub nocompress: bool,
    pub sync: bool,
    /// Stored for directories, ignored for files.
    pub dirsync: bool,
}

/// The origin of a received subvolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub uuid: [u8; 16],
    pub transid: u64,
    pub time: Time,
}

impl Received {
    /// The value of a subvolume that was not received.
    pub const NOTHING: Received = Received {
        uuid: [0; 16],
        transid: 0,
        time: Time {
            seconds: 0,
            nanoseconds: 0,
        },
    };

    /// Returns the origin with this number. 0 is `NOTHING`.
    pub fn of_number(number: u64) -> Received {
        if number == 0 {
            return Received::NOTHING;
        }
        let mut rng = Rng::new(number);
        let mut uuid = [0; 16];
        rng.fill(&mut uuid);
        Received {
            uuid,
            transid: rng.below(1 << 40),
            time: Time {
                seconds: rng.below(1 << 40) as i64,
                nanoseconds: rng.below(1_000_000_000) as u32,
            },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fails if the name exists, like all operations that create a name.
    Create {
        path: FsPath,
        mode: u32,
    },
    Mkdir {
        path: FsPath,
        mode: u32,
    },
    Symlink {
        path: FsPath,
        target: Bytes,
    },
    Mknod {
        path: FsPath,
        node: Node,
        mode: u32,
    },
    Link {
        from: FsPath,
        to: FsPath,
    },
    Unlink {
        path: FsPath,
    },
    /// Also removes an empty subvolume.
    Rmdir {
        path: FsPath,
    },
    Rename {
        from: FsPath,
        to: FsPath,
        how: RenameHow,
    },

    /// Opens a file for reading and writing. A slot in use is closed first.
    Open {
        path: FsPath,
        slot: Slot,
    },
    Close {
        slot: Slot,
    },
    /// Creates a file without a name, opened as by `Open`.
    Tmpfile {
        dir: FsPath,
        mode: u32,
        slot: Slot,
    },
    /// Adds a name to an open file, which may be the first one after `Tmpfile`.
    LinkOpen {
        slot: Slot,
        to: FsPath,
    },
    Write {
        at: At,
        offset: u64,
        data: Data,
    },
    Append {
        at: At,
        data: Data,
    },
    Truncate {
        at: At,
        size: u64,
    },
    Fallocate {
        at: At,
        how: Allocate,
        offset: u64,
        len_bytes: u64,
    },
    /// Shares extents, like FICLONERANGE.
    Clone {
        from: At,
        from_offset: u64,
        len_bytes: u64,
        to: At,
        to_offset: u64,
    },
    /// Copies like copy_file_range, until all is copied or the source ends.
    CopyRange {
        from: At,
        from_offset: u64,
        len_bytes: u64,
        to: At,
        to_offset: u64,
    },
    /// Shares the extents of equal ranges, like FIDEDUPERANGE.
    Dedupe {
        from: At,
        from_offset: u64,
        len_bytes: u64,
        to: At,
        to_offset: u64,
    },

    /// `btrfs.compression` is a property, which changes flags.
    SetXattr {
        path: FsPath,
        name: Bytes,
        value: Data,
        how: XattrHow,
    },
    RemoveXattr {
        path: FsPath,
        name: Bytes,
    },
    Chmod {
        path: FsPath,
        mode: u32,
    },
    Chown {
        path: FsPath,
        uid: u32,
        gid: u32,
    },
    SetTimes {
        path: FsPath,
        atime: Time,
        mtime: Time,
    },
    /// Sets all flags.
    SetFlags {
        path: FsPath,
        flags: Flags,
    },

    CreateSubvolume {
        path: FsPath,
    },
    Snapshot {
        from: FsPath,
        to: FsPath,
        read_only: bool,
    },
    DeleteSubvolume {
        path: FsPath,
    },
    SetReadOnly {
        path: FsPath,
        read_only: bool,
    },
    /// Makes it the default subvolume.
    SetDefault {
        path: FsPath,
    },
    /// `Received::of_number` gives the other values.
    SetReceived {
        path: FsPath,
        number: u64,
    },
    GetReceived {
        path: FsPath,
    },

    Read {
        at: At,
        offset: u64,
        len_bytes: usize,
    },
    List {
        path: FsPath,
    },
    Stat {
        path: FsPath,
    },
    GetXattr {
        path: FsPath,
        name: Bytes,
    },
    GetFlags {
        path: FsPath,
    },

    /// Makes everything durable.
    Sync,
    Fsync {
        at: At,
    },
    /// Ends the running transaction; makes the same promise as Sync.
    Commit,
    /// Closes all slots, unmounts and mounts.
    Remount,
    /// Makes later reads access the device.
    DropCaches,
}

/// The durability promise of a completed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    Nothing,
    /// One inode and its names.
    Inode,
    Everything,
}

impl Op {
    /// Returns the file whose bytes or size the operation changes.
    pub(crate) fn changed_file(&self) -> Option<&At> {
        match self {
            Op::Write { at, .. } | Op::Append { at, .. } => Some(at),
            Op::Truncate { at, .. } | Op::Fallocate { at, .. } => Some(at),
            Op::Clone { to, .. } | Op::CopyRange { to, .. } => Some(to),
            _ => None,
        }
    }

    pub fn durability(&self) -> Durability {
        match self {
            Op::Sync | Op::Commit | Op::Remount => Durability::Everything,
            Op::Fsync { .. } => Durability::Inode,
            _ => Durability::Nothing,
        }
    }
}

/// The attributes returned by `Stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u64,
    pub rdev: (u32, u32),
    /// For a directory, twice the total length of its names.
    pub size: u64,
}

/// The result of an operation.
#[derive(Clone, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The length of a partial write; a complete one returns `Done`.
    Written(usize),
    Bytes(Vec<u8>),
    /// In the order of their creation, which is the order of their indexes.
    Names(Vec<(Vec<u8>, Kind)>),
    Attr(Attr),
    Flags(Flags),
    /// Number of copied bytes.
    Copied(u64),
    /// Whether the ranges were equal and are shared now.
    Shared(bool),
    Received(Received),
}

const SHOWN: usize = 64;

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Done => f.write_str("Done"),
            Outcome::Written(bytes) => write!(f, "Written({bytes})"),
            Outcome::Bytes(bytes) => {
                let start = &bytes[..bytes.len().min(SHOWN)];
                write!(f, "{} bytes: {}", bytes.len(), start.escape_ascii())
            }
            Outcome::Names(names) => {
                let shown = names
                    .iter()
                    .map(|(name, kind)| format!("{} {kind:?}", name.escape_ascii()));
                f.debug_list().entries(shown).finish()
            }
            Outcome::Attr(attr) => write!(f, "{attr:?}"),
            Outcome::Flags(flags) => write!(f, "{flags:?}"),
            Outcome::Copied(bytes) => write!(f, "Copied({bytes})"),
            Outcome::Shared(are_equal) => write!(f, "Shared({are_equal})"),
            Outcome::Received(received) => write!(f, "{received:?}"),
        }
    }
}

macro_rules! op_errors {
    ($($(#[$meta:meta])* $name:ident = $errno:ident: $text:literal,)+) => {
        /// An error of an operation. Two errors with the same errno are equal in comparisons.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
        pub enum OpError {
            $($(#[$meta])* #[error($text)] $name,)+
            #[error("errno {0}")]
            Other(i32),
            /// The operation is meaningless here, or its effect is undefined: it is skipped. Only the model returns
            /// this.
            #[error("out of scope")]
            OutOfScope,
        }

        impl OpError {
            /// Returns the errno, or None for a skipped operation.
            pub fn errno(self) -> Option<i32> {
                Some(match self {
                    $(OpError::$name => Errno::$errno.raw_os_error(),)+
                    OpError::Other(errno) => errno,
                    OpError::OutOfScope => return None,
                })
            }

            /// Returns the first error with this errno.
            pub fn from_errno(errno: i32) -> OpError {
                $(if errno == Errno::$errno.raw_os_error() {
                    return OpError::$name;
                })+
                OpError::Other(errno)
            }
        }
    };
}

op_errors! {
    Exists = EXIST: "exists",
    NotFound = NOENT: "not found",
    NotEmpty = NOTEMPTY: "not empty",
    NotADirectory = NOTDIR: "not a directory",
    IsADirectory = ISDIR: "is a directory",
    TooManyLinks = MLINK: "too many links",
    NameTooLong = NAMETOOLONG: "name too long",
    /// The subvolume is read-only.
    ReadOnly = ROFS: "read-only",
    /// A link, or a rename of anything but a subvolume, to another subvolume.
    CrossSubvolume = XDEV: "another subvolume",
    InvalidArgument = INVAL: "invalid argument",
    /// A directory moved into itself.
    Loop = INVAL: "into itself",
    /// No xattr of that name.
    NoData = NODATA: "no such xattr",
    /// The inode is immutable or append-only, a directory would be linked, or this kind of inode does not support the
    /// xattr.
    NotPermitted = PERM: "not permitted",
    NoSpace = NOSPC: "no space",
    Quota = DQUOT: "over quota",
    FileTooBig = FBIG: "file too big",
    /// An xattr name that is empty or too long.
    XattrName = RANGE: "bad xattr name",
    XattrTooBig = TOOBIG: "xattr too big",
    Unsupported = OPNOTSUPP: "not supported",
    Busy = BUSY: "busy",
    Io = IO: "input/output error",
}

impl From<std::io::Error> for OpError {
    fn from(error: std::io::Error) -> OpError {
        OpError::from_errno(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()))
    }
}

impl From<Errno> for OpError {
    fn from(error: Errno) -> OpError {
        OpError::from_errno(error.raw_os_error())
    }
}

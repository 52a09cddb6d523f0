//! Parts of requests and of their answers.
//!
//! Not here: byte layouts of the FUSE protocol, which belong to a transport.

use std::time::Duration;

use super::Errno;

/// The kernel's id of a file, from the lookup that returned it until it is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the mount, which the kernel knows without a lookup.
    pub const ROOT: Self = Self(1);
}

/// The handle that `open` returned; only the file system knows its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// The caller of a request.
///
/// On a connection with idmapped mounts, only requests that create an inode have user and group, as ids of the new
/// inode. All other requests have [`Context::NOBODY`] in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

impl Context {
    /// The user and the group of a request without ids.
    pub const NOBODY: u32 = u32::MAX;
}

/// Seconds and nanoseconds since 1970; seconds may be negative, nanoseconds are below 10^9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Time {
    pub secs: i64,
    pub nanos: u32,
}

/// The number of a device node's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DeviceNr {
    pub major: u32,
    pub minor: u32,
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    Regular,
    Directory,
    CharDevice,
    BlockDevice,
    Fifo,
    Socket,
    Symlink,
}

/// The attributes of `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// `st_ino`
    pub ino: u64,
    pub kind: FileKind,
    /// Permission, set-id and sticky bits, without the kind.
    pub permissions: u16,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: DeviceNr,
    pub size_bytes: u64,
    /// `st_blocks`: in units of 512 bytes.
    pub blocks: u64,
    /// `st_blksize`
    pub block_bytes: u32,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    /// Birth time; used if the transport has `statx`.
    pub btime: Time,
}

/// Attributes, and how long the kernel may cache them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub attr: Attr,
    pub ttl: Duration,
}

/// A name that was found. Returning it counts as one lookup of `node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub node: NodeId,
    /// Distinguishes two files that had the same node number one after the other.
    pub generation: u64,
    pub attributes: Attributes,
    /// How long the kernel may cache the name.
    pub ttl: Duration,
}

/// The answer to `open` and `opendir`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// No open file of this mount needs a handle, and cached contents stay valid from one open to the next. A transport
    /// may stop the kernel from sending opens and releases.
    Elided,
    /// The kernel must send the handle with each request on the open file.
    Handle {
        handle: Handle,
        /// Contents that were cached before stay valid.
        keep_cache: bool,
        /// Reads and writes bypass the kernel's cache, several at a time.
        direct: bool,
    },
}

/// A directory entry without attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    pub ino: u64,
    pub kind: FileKind,
    pub name: &'a [u8],
    /// The offset from which to continue after this entry.
    pub next_offset: u64,
}

/// Whether a sink took an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Taken,
    /// There was no room: the entry is not part of the answer.
    Full,
}

/// The sink of `readdir`. Entries are encoded in place.
pub trait DirSink {
    fn push(&mut self, entry: &DirEntry<'_>) -> Room;
}

/// The sink of `readdirplus`.
pub trait DirPlusSink {
    /// Adds an entry if there is room. `found` is `None` for `.` and `..`, which count as no lookup. With a value, an
    /// entry that was taken counts as one lookup of its node.
    fn push(&mut self, entry: &DirEntry<'_>, found: Option<&Entry>) -> Room;
}

/// The room for an answer that the file system writes itself.
pub trait AnswerBuffer: DirSink + DirPlusSink {
    /// Returns the whole room, as long as the request wants it. Not for directory entries, which are pushed.
    fn bytes(&mut self) -> &mut [u8];
}

/// The values of `statfs`; sizes in units of `block_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    pub block_bytes: u32,
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub name_max: u32,
}

/// The target of `lseek`, from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekFor {
    Data,
    Hole,
}

/// The connection flags that a file system wants, negotiated before the first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionFlags {
    /// The kernel checks permissions, with POSIX ACLs read through `getxattr`.
    pub posix_acl: bool,
    /// The file system can be written to; otherwise no verb that changes anything is ever useful.
    pub writable: bool,
    /// The kernel caches written pages and their times, and writes them back later.
    pub writeback_cache: bool,
    /// The file system may be mounted with mapped users and groups. The kernel must check permissions then.
    pub idmapped: bool,
}

/// The answer of an ioctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoctlAnswer {
    /// The length of the output.
    pub len_bytes: usize,
    /// The call fails with this error, and still returns its output.
    pub error: Option<Errno>,
}

impl IoctlAnswer {
    #[inline]
    pub fn of(len_bytes: usize) -> Self {
        Self {
            len_bytes,
            error: None,
        }
    }
}

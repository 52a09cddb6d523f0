//! Parts of requests and of their answers.
//!
//! Not here: byte layouts of the FUSE protocol; those belong to a transport.

use std::time::Duration;

use super::Errno;

/// Names a file to the kernel from the lookup that gave it until it is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the mount; the kernel knows it without a lookup.
    pub const ROOT: Self = Self(1);
}

/// The handle that `open` gave; only the file system knows its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// The caller of a request.
///
/// On a connection with idmapped mounts, user and group are those of a new inode, in requests that make one.
/// All other requests have [`Context::NOBODY`] in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

impl Context {
    /// The user and the group of a request that names none.
    pub const NOBODY: u32 = u32::MAX;
}

/// Seconds and nanoseconds since 1970; seconds may be negative, nanoseconds are below 10^9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Time {
    pub secs: i64,
    pub nanos: u32,
}

/// The device that a device node stands for.
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

/// The attributes that `stat` shows.
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
    /// Birth time; shown where the transport has `statx`.
    pub btime: Time,
}

/// Attributes and how long the kernel may believe them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub attr: Attr,
    pub ttl: Duration,
}

/// A name that was found. The receiver holds one lookup of `node` more than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub node: NodeId,
    /// Tells apart two files that had the same node number one after the other.
    pub generation: u64,
    pub attributes: Attributes,
    /// How long the kernel may believe that the name means this node.
    pub ttl: Duration,
}

/// The answer to `lookup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    Found(Entry),
    /// There is no such name, and the kernel may remember that.
    Absent {
        ttl: Duration,
    },
}

/// The answer to `open` and `opendir`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// No open file of this mount needs a handle, and cached contents stay good from one open to the
    /// next. A transport may tell the kernel not to send opens and releases any more.
    Elided,
    /// The kernel is to send the handle with each request on the open file.
    Handle {
        handle: Handle,
        /// Contents cached before stay good.
        keep_cache: bool,
        /// Reads and writes go past the kernel's cache, several at a time.
        direct: bool,
    },
}

/// A directory entry without attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    pub ino: u64,
    pub kind: FileKind,
    pub name: &'a [u8],
    /// Where reading goes on after this entry.
    pub next_offset: u64,
}

/// Whether a sink took an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Taken,
    /// There was no room: the entry is not part of the answer.
    Full,
}

/// Where a transport takes the entries of `readdir`; it encodes them in place.
pub trait DirSink {
    fn push(&mut self, entry: &DirEntry<'_>) -> Room;
}

/// Where a transport takes the entries of `readdirplus`.
pub trait DirPlusSink {
    /// Adds an entry if there is room. `found` is none for `.` and `..`, which count as no lookup. With a value, an
    /// entry that was taken counts as one lookup of its node.
    fn push(&mut self, entry: &DirEntry<'_>, found: Option<&Entry>) -> Room;
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

/// The flags that a file system wants of the connection, negotiated before the first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionFlags {
    /// The kernel checks permissions, with POSIX ACLs read through `getxattr`.
    pub posix_acl: bool,
    /// Something can be written; else no verb that changes anything is ever useful.
    pub writable: bool,
    /// The kernel keeps written pages and the times they imply, and writes them when it likes.
    pub writeback_cache: bool,
    /// The file system may be mounted with mapped users and groups. The kernel has to check permissions then.
    pub idmapped: bool,
}

/// The answer of an ioctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoctlAnswer {
    /// The length of the output.
    pub len_bytes: usize,
    /// The call fails with it, and gives its output all the same.
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

//! The requests that a mounted file system answers: one trait, whatever carries them.
//!
//! A transport reads requests from the kernel, calls these verbs from as many threads as it likes, and
//! encodes the answers. The trait holds nothing of one transport's making, so that the adapter over
//! fuser, readers of `/dev/fuse` of our own and io_uring queues can drive the same file system.
//!
//! Contract
//! - REQ-1: contents (`read`, `readlink`, xattrs) go straight into a buffer that the transport gives,
//!   which may be the reply buffer that the kernel takes. Bytes past the returned length are
//!   unspecified, and so is the whole buffer after an error.
//! - REQ-2: an entry given to the kernel counts as one lookup of its node. The file system keeps what it
//!   needs to answer for a node until as many lookups were forgotten.
//! - REQ-3: names, values and handles come from the kernel; node numbers may be stale (`ESTALE`).
//! - REQ-4: once a sink took an entry, the request succeeds with what was taken; what went wrong after
//!   it is the answer to the next request.
//! - REQ-5: a failed request is an errno and nothing more; the cause is logged by who knew it.
//!
//! Verbs that change something, and the way back for invalidations, join when a volume can be written.

mod errno;
mod reply;

pub use errno::{Errno, Result};
pub use reply::{
    Attr, Attributes, Context, DeviceNr, DirEntry, DirPlusSink, DirSink, Entry, FileKind, Handle,
    Lookup, NodeId, Opened, Room, SeekFor, StatFs, Time, Wishes,
};

/// A file system as a FUSE connection sees it.
pub trait FileSystem: Send + Sync + 'static {
    /// What the connection should be set up for.
    fn wishes(&self) -> Wishes;

    /// The file called `name` in `dir`.
    fn lookup(&self, context: &Context, dir: NodeId, name: &[u8]) -> Result<Lookup>;

    /// The kernel dropped this many lookups of `node`.
    fn forget(&self, node: NodeId, lookups: u64);

    fn getattr(&self, context: &Context, node: NodeId) -> Result<Attributes>;

    /// Fills the target of a symbolic link in and returns its length.
    fn readlink(&self, context: &Context, node: NodeId, out: &mut [u8]) -> Result<usize>;

    fn open(&self, context: &Context, node: NodeId) -> Result<Opened>;

    /// Fills `out` from `offset` bytes on; short only at the end of the file.
    fn read(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize>;

    fn release(&self, context: &Context, node: NodeId, handle: Handle) -> Result<()>;

    fn opendir(&self, context: &Context, node: NodeId) -> Result<Opened>;

    /// Gives entries from `offset` on (0, or a `next_offset` of an entry) until the sink is full.
    fn readdir(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        sink: &mut dyn DirSink,
    ) -> Result<()>;

    /// As `readdir`, with what a lookup of each name would say.
    fn readdirplus(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        sink: &mut dyn DirPlusSink,
    ) -> Result<()>;

    fn releasedir(&self, context: &Context, node: NodeId, handle: Handle) -> Result<()>;

    /// Fills the value in and returns its length. An empty `out` asks for the length only; one that is
    /// too small is `ERANGE`.
    fn getxattr(
        &self,
        context: &Context,
        node: NodeId,
        name: &[u8],
        out: &mut [u8],
    ) -> Result<usize>;

    /// Names, each followed by a zero byte; lengths as in `getxattr`.
    fn listxattr(&self, context: &Context, node: NodeId, out: &mut [u8]) -> Result<usize>;

    fn statfs(&self, context: &Context, node: NodeId) -> Result<StatFs>;

    /// Asked only when the kernel does not check permissions itself. `mask` is that of access(2);
    /// `ENOSYS` grants this one and all that follow.
    fn access(&self, context: &Context, node: NodeId, mask: u32) -> Result<()>;

    /// The first offset at or after `offset` that is data or hole; `ENXIO` when there is none.
    fn lseek(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        what: SeekFor,
    ) -> Result<u64>;

    /// A restricted ioctl: sizes are those in the command's number. Returns the length of the output.
    fn ioctl(
        &self,
        context: &Context,
        node: NodeId,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<usize>;
}

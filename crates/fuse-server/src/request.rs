//! The requests that a mounted file system answers: one trait, independent of the transport.
//!
//! A transport reads requests from the kernel, calls these verbs from any number of threads, and encodes the answers.
//! The trait contains nothing specific to a transport, so that readers of `/dev/fuse` and io_uring queues can drive the
//! same file system.
//!
//! Contract
//! - REQ-1: contents (`read`, `readlink`, xattrs) are written straight into the transport's buffer, which may be the
//!   reply buffer of the kernel. Bytes past the returned length are unspecified, and so is the whole buffer after an
//!   error.
//! - REQ-2: an entry returned to the kernel counts as one lookup of its node. The file system keeps the state of a node
//!   until the same number of lookups is forgotten.
//! - REQ-3: names, values and handles are the kernel's; node numbers may be stale (`ESTALE`).
//! - REQ-4: once a sink took an entry, the request succeeds with the entries so far. An error after it is the answer to
//!   the next request.
//! - REQ-5: a failed request returns an errno and nothing more, except for some ioctls. The file system logs the cause.
//! - REQ-6: on a thread that called `set_nonblocking`, a verb waits for no device, no commit and no other request. It
//!   fails with `Errno::WOULD_BLOCK` instead and has changed nothing. The transport repeats the request on a thread
//!   that may block. A sink that took entries ends the answer there (REQ-4).
//! - REQ-7: changes of a verb are visible to every verb that begins after it returned.

mod change;
mod errno;
mod notify;
mod page_drop;
mod reply;
mod verb;
mod watched;

use std::sync::Arc;

pub use change::{
    AccessMode, AttrChange, CopyEnd, NewNode, OpenFlags, ReadHow, RenameFlags, TimeChange,
    WriteHow, XattrHow,
};
pub use errno::{Errno, Result};
pub use notify::Notifier;
pub use page_drop::PageDrop;
pub use reply::{
    Attr, Attributes, ConnectionFlags, Context, DeviceNr, DirEntry, DirPlusSink, DirSink, Entry,
    FileKind, Handle, IoctlAnswer, Lookup, NodeId, Opened, Room, SeekFor, StatFs, Time,
};
pub use verb::Verb;
pub use watched::{Watch, Watched};

/// A file system behind a FUSE connection.
pub trait FileSystem: Send + Sync + 'static {
    /// Returns the flags for setting up the connection.
    fn connection_flags(&self) -> ConnectionFlags;

    /// Prepares for the requests of a connection. `notifier` is the interface to the kernel's caches while the
    /// connection lives. If the connection cannot be set up after all, another may follow.
    fn start(&self, notifier: Arc<dyn Notifier>) {
        let _ = notifier;
    }

    /// Handles the orderly end of the connection by the kernel. Not every kind of mount receives this request. A mount
    /// of a block device does: after the answer the device is free for any program.
    ///
    /// Errors: only `WOULD_BLOCK`; no client would receive another.
    fn destroy(&self) -> Result<()> {
        Ok(())
    }

    /// Declares that this thread serves a queue and must not block from now on (REQ-6).
    fn set_nonblocking(&self) {}

    /// Looks up the file called `name` in `dir`.
    fn lookup(&self, context: &Context, dir: NodeId, name: &[u8]) -> Result<Lookup>;

    /// Releases lookups of `node` that the kernel dropped.
    fn forget(&self, node: NodeId, lookups: u64);

    fn getattr(&self, context: &Context, node: NodeId) -> Result<Attributes>;

    /// Writes the target of a symbolic link to `out`, and returns its length.
    fn readlink(&self, context: &Context, node: NodeId, out: &mut [u8]) -> Result<usize>;

    /// Changes attributes, including the size, and returns all of them.
    fn setattr(
        &self,
        context: &Context,
        node: NodeId,
        handle: Option<Handle>,
        change: &AttrChange,
    ) -> Result<Attributes> {
        let _ = (context, node, handle, change);
        Err(Errno::NOSYS)
    }

    /// Creates a file of any kind except directory and symbolic link.
    fn mknod(&self, context: &Context, dir: NodeId, name: &[u8], new: &NewNode) -> Result<Entry> {
        let _ = (context, dir, name, new);
        Err(Errno::NOSYS)
    }

    fn mkdir(&self, context: &Context, dir: NodeId, name: &[u8], new: &NewNode) -> Result<Entry> {
        let _ = (context, dir, name, new);
        Err(Errno::NOSYS)
    }

    fn symlink(&self, context: &Context, dir: NodeId, name: &[u8], target: &[u8]) -> Result<Entry> {
        let _ = (context, dir, name, target);
        Err(Errno::NOSYS)
    }

    /// Creates another name for `node`.
    fn link(&self, context: &Context, node: NodeId, dir: NodeId, name: &[u8]) -> Result<Entry> {
        let _ = (context, node, dir, name);
        Err(Errno::NOSYS)
    }

    fn unlink(&self, context: &Context, dir: NodeId, name: &[u8]) -> Result<()> {
        let _ = (context, dir, name);
        Err(Errno::NOSYS)
    }

    fn rmdir(&self, context: &Context, dir: NodeId, name: &[u8]) -> Result<()> {
        let _ = (context, dir, name);
        Err(Errno::NOSYS)
    }

    fn rename(
        &self,
        context: &Context,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        let _ = (context, from, to, flags);
        Err(Errno::NOSYS)
    }

    /// Creates a regular file and opens it. Opens an existing file unless `flags` are exclusive.
    fn create(
        &self,
        context: &Context,
        dir: NodeId,
        name: &[u8],
        new: &NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        let _ = (context, dir, name, new, flags);
        Err(Errno::NOSYS)
    }

    /// Creates a regular file without a name and opens it.
    fn tmpfile(
        &self,
        context: &Context,
        dir: NodeId,
        new: &NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        let _ = (context, dir, new, flags);
        Err(Errno::NOSYS)
    }

    fn open(&self, context: &Context, node: NodeId, flags: OpenFlags) -> Result<Opened>;

    /// Reads from `offset` on into `out`; short only at the end of the file.
    fn read(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        out: &mut [u8],
        how: &ReadHow,
    ) -> Result<usize>;

    /// Returns the number of bytes written.
    fn write(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        bytes: &[u8],
        how: &WriteHow,
    ) -> Result<usize> {
        let _ = (context, node, handle, offset, bytes, how);
        Err(Errno::NOSYS)
    }

    /// Handles the close of one descriptor of an open file. `NOSYS` stops the kernel from sending this and all later
    /// ones.
    fn flush(&self, context: &Context, node: NodeId, handle: Handle) -> Result<()> {
        let _ = (context, node, handle);
        Err(Errno::NOSYS)
    }

    /// Makes a file durable; `data_only` leaves out attributes that reading the data does not need.
    fn fsync(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        data_only: bool,
    ) -> Result<()> {
        let _ = (context, node, handle, data_only);
        Err(Errno::NOSYS)
    }

    fn fsyncdir(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        data_only: bool,
    ) -> Result<()> {
        let _ = (context, node, handle, data_only);
        Err(Errno::NOSYS)
    }

    /// Makes everything durable.
    fn syncfs(&self, context: &Context) -> Result<()> {
        let _ = context;
        Err(Errno::NOSYS)
    }

    /// Changes the allocation of a range of a file. `mode` is as in fallocate(2).
    fn fallocate(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        range: (u64, u64),
        mode: u32,
    ) -> Result<()> {
        let _ = (context, node, handle, range, mode);
        Err(Errno::NOSYS)
    }

    /// Copies up to `len` bytes and returns the number; shares extents where it can.
    fn copy_file_range(
        &self,
        context: &Context,
        from: CopyEnd,
        to: CopyEnd,
        len: u64,
    ) -> Result<u64> {
        let _ = (context, from, to, len);
        Err(Errno::NOSYS)
    }

    fn release(&self, context: &Context, node: NodeId, handle: Handle) -> Result<()>;

    fn opendir(&self, context: &Context, node: NodeId) -> Result<Opened>;

    /// Emits entries from `offset` on (0, or a `next_offset` of an entry) until the sink is full.
    fn readdir(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        sink: &mut dyn DirSink,
    ) -> Result<()>;

    /// Emits entries like `readdir`, with the result of a lookup of each name.
    fn readdirplus(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        sink: &mut dyn DirPlusSink,
    ) -> Result<()>;

    fn releasedir(&self, context: &Context, node: NodeId, handle: Handle) -> Result<()>;

    /// Writes the value to `out` and returns its length. An empty `out` requests the length only; one that is too small
    /// is `ERANGE`.
    fn getxattr(
        &self,
        context: &Context,
        node: NodeId,
        name: &[u8],
        out: &mut [u8],
    ) -> Result<usize>;

    /// Writes the names of all xattrs to `out`, each with a zero byte after it. Lengths are as in `getxattr`.
    fn listxattr(&self, context: &Context, node: NodeId, out: &mut [u8]) -> Result<usize>;

    fn setxattr(
        &self,
        context: &Context,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<()> {
        let _ = (context, node, name, value, how);
        Err(Errno::NOSYS)
    }

    fn removexattr(&self, context: &Context, node: NodeId, name: &[u8]) -> Result<()> {
        let _ = (context, node, name);
        Err(Errno::NOSYS)
    }

    fn statfs(&self, context: &Context, node: NodeId) -> Result<StatFs>;

    /// Checks the access of the caller to `node`. Called only if the kernel does not check permissions itself. `mask`
    /// is as in access(2); `ENOSYS` grants this request and all later ones.
    fn access(&self, context: &Context, node: NodeId, mask: u32) -> Result<()>;

    /// Returns the first offset of data or a hole at or after `offset`. The error is `ENXIO` if there is no such
    /// offset.
    fn lseek(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        what: SeekFor,
    ) -> Result<u64>;

    /// Runs a restricted ioctl, whose sizes are encoded in the command's number.
    fn ioctl(
        &self,
        context: &Context,
        node: NodeId,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<IoctlAnswer>;
}

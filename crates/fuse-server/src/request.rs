//! The requests that a mounted file system answers, independent of the transport.
//!
//! A transport reads requests from the kernel, hands their operations to the file system on any number of threads, and
//! encodes the answers.
//! The trait contains nothing specific to a transport, so that readers of `/dev/fuse` and io_uring queues can drive the
//! same file system.
//!
//! Contract
//! - REQ-1: contents (of files, links and xattrs) are written straight into the transport's buffer, which may be the
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
mod operation;
mod page_drop;
mod reply;

use std::sync::Arc;

pub use change::{
    AccessMode, AttrChange, CopyEnd, NewNode, OpenFlags, ReadHow, RenameFlags, TimeChange,
    WriteHow, XattrHow,
};
pub use errno::{Errno, Result};
pub use notify::Notifier;
pub use operation::{Answer, Operation, Verb};
pub use page_drop::PageDrop;
pub use reply::{
    AnswerBuffer, Attr, Attributes, ConnectionFlags, Context, DeviceNr, DirEntry, DirPlusSink,
    DirSink, Entry, FileKind, Handle, IoctlAnswer, NodeId, Opened, Room, SeekFor, StatFs, Time,
};

/// A file system behind a FUSE connection.
pub trait FileSystem: Send + Sync + 'static {
    /// Returns the flags for setting up the connection.
    fn connection_flags(&self) -> ConnectionFlags;

    /// Prepares for the requests of a connection. `notifier` is the interface to the kernel's caches while the
    /// connection lives. If the connection cannot be set up after all, another may follow.
    fn start(&self, notifier: Arc<dyn Notifier>) {
        let _ = notifier;
    }

    /// Declares that this thread serves a queue and must not block from now on (REQ-6).
    fn set_nonblocking(&self) {}

    /// Performs an operation on a node. `out` is the room for entries of a directory, contents of files and links,
    /// values of xattrs, and results of ioctls. It is empty for all other operations.
    fn perform(
        &self,
        context: &Context,
        node: NodeId,
        operation: &Operation<'_>,
        out: &mut impl AnswerBuffer,
    ) -> Result<Answer>;
}

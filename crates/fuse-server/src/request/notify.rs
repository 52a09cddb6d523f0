//! The interface of a file system to the kernel's caches.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::{NodeId, PageDrop};

/// Invalidates cached state of the kernel.
///
/// The kernel takes locks of the node. If a request on the node is being served, they may be held until its answer. So
/// a thread must not call this while it serves a request, or holds a lock that a request may want. The calls do not
/// wait, unless documented.
pub trait Notifier: Debug + Send + Sync {
    /// Notifies the kernel that `name` in `dir` was replaced or removed.
    fn entry_changed(&self, dir: NodeId, name: &[u8]);

    /// Notifies the kernel that `child` lost its name in `dir`. Programs that watch the file receive an event.
    fn entry_deleted(&self, dir: NodeId, name: &[u8], child: NodeId);

    /// Notifies the kernel that attributes of `node` changed. With a range, contents changed too: from an offset on,
    /// for a length or to the end.
    fn node_changed(&self, node: NodeId, contents: Option<(u64, Option<u64>)>);

    /// Makes the kernel drop its pages of a range of a file, and all older attributes. The range is an offset, and a
    /// length or `None` to the end. Dirty pages are written first. A separate thread notifies the kernel and then calls
    /// `over`, which it also calls after the end of the connection. The call does not wait; `PageDrop` does.
    fn drop_pages(
        &self,
        node: NodeId,
        range: (u64, Option<u64>),
        over: Box<dyn FnOnce() + Send>,
    ) -> Arc<PageDrop>;

    /// Drops pages on the calling thread, and waits. Returns false, and does nothing, if too many threads already do
    /// so: the kernel may need the others for requests that these wait for.
    ///
    /// For a thread that serves a request, without locks and where it may block. No page of the range may be locked for
    /// the request.
    fn drop_pages_here(&self, node: NodeId, range: (u64, Option<u64>)) -> bool;

    /// Returns the kernel's cached bytes of a range of a file. They end at the first page that is missing or not up to
    /// date, and at the kernel's i_size. Takes no page lock. Returns `None` without a reply.
    ///
    /// For a thread that may block and holds no lock.
    fn cached(&self, node: NodeId, offset: u64, len: u32) -> Option<Vec<u8>>;

    /// Makes the kernel drop the attributes of `node` at once. Takes no lock that a request may hold.
    fn drop_attributes(&self, node: NodeId);

    /// Returns whether the queue has room for more names. A thread that may wait for the kernel calls `drain` instead.
    fn has_room_for_names(&self) -> bool;

    /// Returns false if `renamed` with these names would have to queue notifications, and the queue has no room.
    fn has_room_for_rename(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8])) -> bool;

    /// Queues notifications for both names of a rename by the kernel, if one for either is not delivered: the kernel may
    /// move an old entry. For the thread that serves the rename, after the change and before the answer.
    fn renamed(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]));

    /// Waits until the kernel has received all earlier node notifications. Never waits for names. Returns false if the
    /// kernel receives none at all for `patience`.
    fn drain_nodes(&self, patience: Option<Duration>) -> bool;

    /// Waits until the kernel has received all earlier notifications. Returns false if it receives none at all for
    /// `patience`.
    fn drain(&self, patience: Option<Duration>) -> bool;
}

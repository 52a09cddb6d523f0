//! The way from a file system back to the kernel's caches.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use super::{NodeId, PageDrop};

/// Tells the kernel that something it remembers is true no longer.
///
/// The kernel takes locks of the node that it is told about. Those of a node that a request is on may be held
/// until the request is answered. So no thread that is serving a request tells it, and no thread that holds a
/// lock that a request may want. The calls do not wait, but for those that say so.
pub trait Notifier: Debug + Send + Sync {
    /// Notifies the kernel that `name` in `dir` means something else now, or nothing.
    fn entry_changed(&self, dir: NodeId, name: &[u8]);

    /// Notifies the kernel that `child` lost its name in `dir`. Programs that watch it hear of that.
    fn entry_deleted(&self, dir: NodeId, name: &[u8], child: NodeId);

    /// Notifies the kernel that attributes of `node` changed. With a range, contents changed too: from an offset on,
    /// for a length or to the end.
    fn node_changed(&self, node: NodeId, contents: Option<(u64, Option<u64>)>);

    /// Has the kernel drop its pages of a range of a file, and all older attributes. The range is an offset, and a length
    /// or none to the end. Dirty pages are written first. A thread of its own asks the kernel and then calls `over`, which it
    /// also calls when the connection is gone. The call does not wait; `PageDrop` does.
    fn drop_pages(
        &self,
        node: NodeId,
        range: (u64, Option<u64>),
        over: Box<dyn FnOnce() + Send>,
    ) -> Arc<PageDrop>;

    /// Does the same on the calling thread, and waits for it. Returns false, and does nothing, where as many threads do
    /// so as may: the kernel may need the others for requests that these wait for.
    ///
    /// It is called by the thread that serves a request, under no lock and where it may wait. No page of the range may be
    /// locked for the request.
    fn drop_pages_here(&self, node: NodeId, range: (u64, Option<u64>)) -> bool;

    /// Returns the bytes that the kernel has cached of a range of a file. They end at the first page that it does not
    /// have or that is not up to date, and at the size that it knows. It takes no lock of a page. None: it did not say.
    ///
    /// It is called where a thread may wait, and holds no lock.
    fn cached(&self, node: NodeId, offset: u64, len: u32) -> Option<Vec<u8>>;

    /// Has the kernel drop the attributes of `node` at once. It takes no lock that a request may hold.
    fn drop_attributes(&self, node: NodeId);

    /// Returns whether so few names wait to be told that more may come. A thread that may wait for the kernel calls
    /// `drain` instead.
    fn has_room_for_names(&self) -> bool;

    /// Waits until the kernel has taken note of what it was told of nodes before the call. This never waits for
    /// names. False if the time was too short.
    fn drain_nodes(&self, until: Option<Instant>) -> bool;

    /// Waits until the kernel has taken note of all that it was told before the call; false if the time was too short.
    fn drain(&self, until: Option<Instant>) -> bool;
}

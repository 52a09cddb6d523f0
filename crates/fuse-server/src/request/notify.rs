//! The way from a file system back to the kernel's caches.

use std::fmt::Debug;
use std::time::Instant;

use super::NodeId;

/// Tells the kernel that something it remembers is true no longer.
///
/// The kernel takes locks of the node that it is told about, and those of a node that a request is on
/// may be held until the request is answered. So: never from a thread that is serving a request, and
/// never under a lock that a request may want.
/// Whoever tells something does not wait.
pub trait Notifier: Debug + Send + Sync {
    /// `name` in `dir` means something else now, or nothing.
    fn entry_changed(&self, dir: NodeId, name: &[u8]);

    /// `child` lost its name in `dir`: as `entry_changed`, and watchers hear of it.
    fn entry_deleted(&self, dir: NodeId, name: &[u8], child: NodeId);

    /// Attributes of `node` changed; and contents from `offset` on, for `len` bytes or to the end, if
    /// there is a range.
    fn node_changed(&self, node: NodeId, contents: Option<(u64, Option<u64>)>);

    /// A request has written `len` bytes past the kernel's cache. Returns when the kernel remembers nothing of the
    /// range and no attributes that are older, or, if that takes long, when it is about to be told.
    ///
    /// For the thread that serves the request, under no lock and where it may wait. No page of the range may be
    /// locked for the request.
    fn contents_written(&self, node: NodeId, offset: u64, len: u64);

    /// Whether so few names wait to be told that more may come. Who may wait for the kernel (`settle`) does that instead.
    fn has_room_for_names(&self) -> bool;

    /// Waits until the kernel has taken note of what it was told of nodes before the call, which never waits for
    /// names; false if it has not in time.
    fn settle_nodes(&self, until: Option<Instant>) -> bool;

    /// The same of all that it was told.
    fn settle(&self, until: Option<Instant>) -> bool;
}

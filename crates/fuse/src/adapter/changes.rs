//! Notifying the kernel of changes that it did not request.
//!
//! The kernel caches answers without a time limit, and knows its own changes. Any other code that changes files below a
//! mount (a control socket, an ioctl) reports the change here. It does not wait unless it calls `wait` or `drain`.
//!
//! Not here: how notifications are sent (`request::Notifier`).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use ubtrfs_fuse_server::request::{NodeId, Notifier, PageDrop};

use super::nodes::Listed;
use super::number::Numbering;
use super::source::FileId;
use super::span::Span;

const NODES_PATIENCE: Duration = Duration::from_secs(1);
/// The delivery of a name needs the lock of its directory. Each user of the directory holds that lock for a whole
/// request, so a busy machine delivers late. A caller that gets its answer earlier may see the old entry.
const NAMES_PATIENCE: Duration = Duration::from_secs(5);

/// Reports changes below a mount to the kernel.
#[derive(Clone, Debug)]
pub struct Changes {
    nodes: NodeIds,
    folio_bytes: u64,
    /// Before it is set, no kernel is connected that could have cached anything.
    notifier: Arc<RwLock<Option<Arc<dyn Notifier>>>>,
}

/// An offset in a file and a length; `None` means to the end.
pub(super) type Range = (u64, Option<u64>);

/// Translates file ids to the kernel's node ids.
#[derive(Clone, Copy, Debug)]
struct NodeIds {
    root: FileId,
    numbering: Numbering,
}

impl NodeIds {
    fn node(&self, id: FileId) -> NodeId {
        if id == self.root {
            return NodeId::ROOT;
        }
        let number = self.numbering.number(id);
        NodeId(number.unwrap_or_else(|| Listed::File(id).usual_number()))
    }
}

/// The last kernel known to cache FUSE files in single pages (checked in /proc/kpageflags of Linux 6.18).
const LAST_WITHOUT_FOLIOS: (u32, u32) = (6, 18);
/// The largest folio that the kernel uses, and thus drops as a whole.
const LARGEST_FOLIO_BYTES: u64 = 2 << 20;

/// Returns the size of the largest folios that this kernel may use.
fn folio_bytes() -> u64 {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    match (next(), next()) {
        (Some(major), Some(minor)) if (major, minor) <= LAST_WITHOUT_FOLIOS => {
            rustix::param::page_size() as u64
        }
        _ => LARGEST_FOLIO_BYTES,
    }
}

/// Returns a range in the form of a notification.
fn range_of(span: Span) -> Range {
    (span.start, (span.end != u64::MAX).then(|| span.len()))
}

impl Changes {
    pub(super) fn new(root: FileId, numbering: Numbering) -> Self {
        Self {
            nodes: NodeIds { root, numbering },
            folio_bytes: folio_bytes(),
            notifier: Arc::default(),
        }
    }

    pub(super) fn start(&self, notifier: Arc<dyn Notifier>) {
        *self.notifier.write() = Some(notifier);
    }

    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        self.notifier.read().clone()
    }

    /// Notifies the kernel that `name` in `dir` was created, removed or replaced.
    pub fn entry(&self, dir: FileId, name: &[u8]) {
        if let Some(notifier) = self.notifier() {
            notifier.entry_changed(self.nodes.node(dir), name);
        }
    }

    /// Notifies the kernel that `child` lost its name in `dir`. Programs that watch the file receive an event.
    pub fn removed(&self, dir: FileId, name: &[u8], child: FileId) {
        if let Some(notifier) = self.notifier() {
            notifier.entry_deleted(self.nodes.node(dir), name, self.nodes.node(child));
        }
    }

    /// Notifies the kernel that attributes of a file have changed.
    pub fn attributes(&self, id: FileId) {
        self.node_changed(id, None);
    }

    /// Notifies the kernel that contents of a file have changed, and attributes with them.
    pub fn contents(&self, id: FileId) {
        self.node_changed(id, Some((0, None)));
    }

    pub(super) fn page_bytes(&self) -> u64 {
        rustix::param::page_size() as u64
    }

    /// Returns the granularity of the kernel's page cache.
    pub(super) fn folio_bytes(&self) -> u64 {
        self.folio_bytes
    }

    /// Starts to drop the pages of a range, and calls `over` after that. Does not wait.
    pub(super) fn drop_pages(
        &self,
        node: NodeId,
        range: Span,
        over: Box<dyn FnOnce() + Send>,
    ) -> Arc<PageDrop> {
        match self.notifier() {
            Some(notifier) => notifier.drop_pages(node, range_of(range), over),
            None => {
                over();
                PageDrop::finished()
            }
        }
    }

    /// Drops pages on this thread, and waits. Returns false, and does nothing, if too many threads already do.
    pub(super) fn drop_pages_here(&self, node: NodeId, range: Span) -> bool {
        self.notifier()
            .is_none_or(|notifier| notifier.drop_pages_here(node, range_of(range)))
    }

    /// Returns the cached bytes of a range, as `Notifier::cached` does.
    pub(super) fn cached(&self, node: NodeId, range: Span) -> Option<Vec<u8>> {
        let len = u32::try_from(range.len()).ok()?;
        self.notifier()?.cached(node, range.start, len)
    }

    /// Drops the kernel's cached attributes of a file at once.
    pub(super) fn drop_attributes(&self, node: NodeId) {
        if let Some(notifier) = self.notifier() {
            notifier.drop_attributes(node);
        }
    }

    fn node_changed(&self, id: FileId, contents: Option<Range>) {
        if let Some(notifier) = self.notifier() {
            notifier.node_changed(self.nodes.node(id), contents);
        }
    }

    /// Returns whether the queue of name notifications has room for more. For threads that serve a request, and so
    /// cannot wait for the queue.
    pub(super) fn has_room_for_names(&self) -> bool {
        self.notifier()
            .is_none_or(|notifier| notifier.has_room_for_names())
    }

    /// Returns false if `renamed` would have to queue notifications, and the queue has no room.
    pub(super) fn has_room_for_rename(
        &self,
        (from, name): (FileId, &[u8]),
        (to, new_name): (FileId, &[u8]),
    ) -> bool {
        self.notifier().is_none_or(|notifier| {
            let (from, to) = (self.nodes.node(from), self.nodes.node(to));
            notifier.has_room_for_rename((from, name), (to, new_name))
        })
    }

    /// Queues notifications for both names of a rename by the kernel, if one for either is not delivered: the kernel may
    /// move an old entry. For the thread that serves the rename, before its answer.
    pub(super) fn renamed(&self, (from, name): (FileId, &[u8]), (to, new_name): (FileId, &[u8])) {
        if let Some(notifier) = self.notifier() {
            let (from, to) = (self.nodes.node(from), self.nodes.node(to));
            notifier.renamed((from, name), (to, new_name));
        }
    }

    /// Waits until all notifications so far are delivered. Not for a thread that serves a request.
    pub fn wait(&self) {
        if let Some(notifier) = self.notifier() {
            notifier.drain(None);
        }
    }

    /// Returns the kernel's node id of a file.
    pub(super) fn node_of(&self, id: FileId) -> NodeId {
        self.nodes.node(id)
    }

    /// Waits until earlier notifications are delivered, but not long. A program that blocks the delivery may be waiting
    /// for the calling thread.
    pub fn drain(&self) {
        if let Some(notifier) = self.notifier() {
            notifier.drain(Some(NAMES_PATIENCE));
        }
    }

    /// Waits like `drain`, for notifications of attributes and contents only.
    pub(super) fn drain_nodes(&self) {
        if let Some(notifier) = self.notifier() {
            notifier.drain_nodes(Some(NODES_PATIENCE));
        }
    }
}

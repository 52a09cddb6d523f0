//! Telling the kernel of changes that it did not ask for.
//!
//! The kernel believes what it was answered for good. It knows its own changes. Anything else that changes
//! files below a mount (a control socket, an ioctl) says so here, and does not wait unless it asks for that.
//!
//! Not here: how the kernel is told (`request::Notifier`).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use ubtrfs_device::clock;
use ubtrfs_fuse_server::request::{NodeId, Notifier, PageDrop};

use super::nodes::Listed;
use super::number::Numbering;
use super::source::FileId;
use super::span::Span;

const DRAIN_AT_MOST: Duration = Duration::from_secs(1);

/// Where changes below a mount are told.
#[derive(Clone, Debug)]
pub struct Changes {
    nodes: NodeIds,
    folio_bytes: u64,
    /// Before it is there, no kernel is connected that could have cached anything.
    notifier: Arc<RwLock<Option<Arc<dyn Notifier>>>>,
}

/// An offset in a file and a length; None: to the end.
pub(super) type Range = (u64, Option<u64>);

/// The kernel's names of files.
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

/// Up to here the kernel holds pages of FUSE one by one (looked for in /proc/kpageflags of Linux 6.18).
const LAST_WITHOUT_FOLIOS: (u32, u32) = (6, 18);
/// The largest folio that the kernel makes, and thus drops at once.
const LARGEST_FOLIO_BYTES: u64 = 2 << 20;

/// Returns the unit in which this kernel may hold pages.
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

/// Returns a range as the kernel is told of it.
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

    /// Notifies the kernel that `name` in `dir` is something else now, or is there, or is not any more.
    pub fn entry(&self, dir: FileId, name: &[u8]) {
        if let Some(notifier) = self.notifier() {
            notifier.entry_changed(self.nodes.node(dir), name);
        }
    }

    /// Notifies the kernel that `child` lost its name in `dir`. Programs that watch it are notified.
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

    /// Returns the unit in which the kernel holds pages, and drops them.
    pub(super) fn folio_bytes(&self) -> u64 {
        self.folio_bytes
    }

    /// Has the kernel drop what it holds of a range, and then calls `over`. Does not wait.
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

    /// Does the same on this thread, and waits. Returns false, and does nothing, if too many do.
    pub(super) fn drop_pages_here(&self, node: NodeId, range: Span) -> bool {
        self.notifier()
            .is_none_or(|notifier| notifier.drop_pages_here(node, range_of(range)))
    }

    /// Returns the bytes of a range that the kernel has cached, as `Notifier::cached` does.
    pub(super) fn cached(&self, node: NodeId, range: Span) -> Option<Vec<u8>> {
        let len = u32::try_from(range.len()).ok()?;
        self.notifier()?.cached(node, range.start, len)
    }

    /// Has the kernel drop the attributes of a file at once.
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

    /// Returns whether the kernel is near enough to what it was told of names that more may change. For a thread that
    /// serves a request, and cannot wait for it.
    pub(super) fn has_room_for_names(&self) -> bool {
        self.notifier()
            .is_none_or(|notifier| notifier.has_room_for_names())
    }

    /// Waits until the kernel knows what was told so far. Not for a thread that serves a request.
    pub fn wait(&self) {
        if let Some(notifier) = self.notifier() {
            notifier.drain(None);
        }
    }

    /// Returns the kernel's node of a file.
    pub(super) fn node_of(&self, id: FileId) -> NodeId {
        self.nodes.node(id)
    }

    /// Waits until the kernel has heard of what was told before, or for a moment. A program that is in the kernel's
    /// way may be waiting for the thread that calls.
    pub fn drain(&self) {
        if let Some(notifier) = self.notifier() {
            notifier.drain(Some(clock::now() + DRAIN_AT_MOST));
        }
    }

    /// Waits like `drain`, for attributes and contents alone.
    pub(super) fn drain_nodes(&self) {
        if let Some(notifier) = self.notifier() {
            notifier.drain_nodes(Some(clock::now() + DRAIN_AT_MOST));
        }
    }
}

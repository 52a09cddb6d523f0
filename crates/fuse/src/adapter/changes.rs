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
use ubtrfs_fuse_server::request::{NodeId, Notifier};

use super::known::Span;
use super::nodes::Listed;
use super::number::Numbering;
use super::source::FileId;

const FLUSHING_AT_MOST: Duration = Duration::from_secs(30);
/// Where no lock is in the way it takes as long as a thread needs to run. The kernel locks a large folio as a whole: a
/// lock of the last page is then in the way of all its pages.
const DROPPING_AT_MOST: Duration = Duration::from_millis(200);
/// Where the kernel may hold a lock until the answer.
const DROPPING_EDGE_AT_MOST: Duration = Duration::from_millis(20);
const DRAIN_AT_MOST: Duration = Duration::from_secs(1);

/// Where changes below a mount are told.
#[derive(Clone, Debug)]
pub struct Changes {
    nodes: NodeIds,
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

/// Returns where the page begins that the kernel may have locked for a buffered write; the end, if there is none.
fn sure_end(range: Span) -> u64 {
    let page = rustix::param::page_size() as u64;
    let last = range.end.saturating_sub(1) / page * page;
    match range.start <= last && range.end.is_multiple_of(page) {
        true => range.end,
        false => last,
    }
}

impl Changes {
    pub(super) fn new(root: FileId, numbering: Numbering) -> Self {
        Self {
            nodes: NodeIds { root, numbering },
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

    /// Notifies the kernel that a request has changed a range of a file past the kernel's cache, before the request is
    /// answered. Returns false if the kernel is notified later.
    pub(super) fn changed_past_cache(&self, id: FileId, range: Span) -> bool {
        self.notifier().is_none_or(|notifier| {
            let len = range.end - range.start;
            notifier.contents_changed(self.nodes.node(id), range.start, len)
        })
    }

    /// Notifies the kernel that contents of a range of a file have changed.
    pub(super) fn pages(&self, id: FileId, range: Span) {
        self.node_changed(id, Some((range.start, Some(range.end - range.start))));
    }

    /// Has the kernel drop what it holds of a part of a range that a buffered write has changed. False if it has not in
    /// time. For the thread that serves the write.
    ///
    /// The kernel may have the last page of the write locked until the answer, if the write covers a part of it. Then
    /// no read can have brought old contents back. So all before it is told first, and waited for longer.
    pub(super) fn drop_pages(&self, id: FileId, part: Span, range: Span) -> bool {
        let last = sure_end(range);
        let sure = Span {
            end: part.end.min(last),
            ..part
        };
        let edge = Span {
            start: part.start.max(last),
            ..part
        };
        let mut is_sent = true;
        for (span, patience) in [(sure, DROPPING_AT_MOST), (edge, DROPPING_EDGE_AT_MOST)] {
            if span.start < span.end {
                self.pages(id, span);
                is_sent = self.drain_nodes_within(patience);
            }
        }
        is_sent
    }

    fn drain_nodes_within(&self, patience: Duration) -> bool {
        self.notifier()
            .is_none_or(|notifier| notifier.drain_nodes(Some(clock::now() + patience)))
    }

    /// Returns whether no notice about a node waits to be told to the kernel.
    pub(super) fn has_sent_nodes(&self) -> bool {
        self.drain_nodes_within(Duration::ZERO)
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

    /// Has the kernel write the dirty pages that it holds of ranges of files, and waits for it. False if it has not in
    /// time: the thread that would take what it writes may be this one.
    pub(super) fn flush(&self, ranges: Vec<(NodeId, Range)>) -> bool {
        let Some(notifier) = self.notifier() else {
            return true;
        };
        // The kernel writes pages before it drops them from its cache.
        for (node, range) in ranges {
            notifier.node_changed(node, Some(range));
        }
        notifier.drain_nodes(Some(clock::now() + FLUSHING_AT_MOST))
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

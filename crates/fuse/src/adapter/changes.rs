//! Telling the kernel of changes that it did not ask for.
//!
//! The kernel believes what it was answered for good. What it changes itself it knows; anything else that
//! changes files below a mount (a control socket, an ioctl) says so here. A thread of its own passes it on,
//! because the kernel takes locks that a request may hold.
//!
//! Invariants
//! - CHANGES-1: nobody waits for room in the queue. What finds none becomes one note that everything changed.
//!
//! Not here: what a transport makes of a note (`request::Notifier`).

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ubtrfs_engine::Volume;

use super::nodes::Listed;
use super::number::Numbering;
use super::source::FileId;
use crate::request::{NodeId, Notifier};

const QUEUED: usize = 1024;
const FLUSHING_AT_MOST: Duration = Duration::from_secs(30);
/// Between two looks whether a full queue has room.
const FULL_PAUSE: Duration = Duration::from_millis(1);
const SETTLING_AT_MOST: Duration = Duration::from_secs(1);

/// Where changes below a mount are told.
#[derive(Clone, Debug)]
pub struct Changes {
    nodes: NodeIds,
    queue: SyncSender<Change>,
    /// Some were not queued.
    overflowed: Arc<AtomicBool>,
    waiting: Arc<Mutex<Option<Receiver<Change>>>>,
}

/// An offset in a file and a length; None: to the end.
pub(super) type Range = (u64, Option<u64>);

#[derive(Debug)]
enum Change {
    Entry {
        dir: NodeId,
        name: Box<[u8]>,
    },
    Removed {
        dir: NodeId,
        name: Box<[u8]>,
        child: NodeId,
    },
    Node {
        node: NodeId,
        contents: bool,
    },
    Everything,
    /// Answered when what was told before has been passed on.
    Mark(SyncSender<()>),
    /// The kernel shall write what it holds of ranges of files; answered when it has.
    Flush {
        ranges: Vec<(NodeId, Range)>,
        done: SyncSender<()>,
    },
    /// Answered when all before it was told.
    Settled(SyncSender<()>),
}

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

impl Changes {
    pub(super) fn new(root: FileId, numbering: Numbering) -> Self {
        let (queue, waiting) = sync_channel(QUEUED);
        Self {
            nodes: NodeIds { root, numbering },
            queue,
            overflowed: Arc::default(),
            waiting: Arc::new(Mutex::new(Some(waiting))),
        }
    }

    /// `name` in `dir` is something else now, or is there, or is not any more.
    pub fn entry(&self, dir: FileId, name: &[u8]) {
        let dir = self.nodes.node(dir);
        let name = name.into();
        self.push(Change::Entry { dir, name });
    }

    /// `child` lost its name in `dir`: who watches it hears of it.
    pub fn removed(&self, dir: FileId, name: &[u8], child: FileId) {
        self.push(Change::Removed {
            dir: self.nodes.node(dir),
            name: name.into(),
            child: self.nodes.node(child),
        });
    }

    /// Attributes of a file.
    pub fn attributes(&self, id: FileId) {
        let node = self.nodes.node(id);
        let contents = false;
        self.push(Change::Node { node, contents });
    }

    /// Contents of a file and attributes with them.
    pub fn contents(&self, id: FileId) {
        let node = self.nodes.node(id);
        let contents = true;
        self.push(Change::Node { node, contents });
    }

    /// Anything below the mount.
    pub fn everything(&self) {
        self.push(Change::Everything);
    }

    /// Waits until the kernel knows what was told so far. Not for who serves a request.
    pub fn wait(&self) {
        if self.waiting.lock().is_some() {
            return;
        }
        let (done, passed) = sync_channel(1);
        if self.queue.send(Change::Mark(done)).is_ok() {
            // An error means that nobody passes on any more.
            let _ = passed.recv();
        }
    }

    fn push(&self, change: Change) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(change) {
            self.overflowed.store(true, Ordering::Release);
        }
    }

    /// The kernel's node of a file.
    pub(super) fn node_of(&self, id: FileId) -> NodeId {
        self.nodes.node(id)
    }

    /// Has the kernel write the dirty pages that it holds of ranges of files, and waits for it. False if it has not in
    /// time: the thread that would take what it writes may be this one.
    pub(super) fn flush(&self, ranges: Vec<(NodeId, Range)>) -> bool {
        if self.waiting.lock().is_some() {
            // Nobody is connected who could hold any.
            return true;
        }
        let give_up = Instant::now() + FLUSHING_AT_MOST;
        let (done, finished) = sync_channel(1);
        let mut asked = self.queue.try_send(Change::Flush { ranges, done });
        while let Err(TrySendError::Full(flush)) = asked {
            if Instant::now() >= give_up {
                return false;
            }
            thread::sleep(FULL_PAUSE);
            asked = self.queue.try_send(flush);
        }
        let left = give_up.saturating_duration_since(Instant::now());
        asked.is_ok() && finished.recv_timeout(left).is_ok()
    }

    /// Waits until the kernel has heard of what was told before, or for a moment: whoever is in the kernel's way may
    /// be waiting for the thread that calls.
    pub fn settle(&self) {
        if self.waiting.lock().is_some() {
            return;
        }
        let (done, settled) = sync_channel(1);
        if self.queue.try_send(Change::Settled(done)).is_ok() {
            let _ = settled.recv_timeout(SETTLING_AT_MOST);
        }
    }

    /// Starts to pass on what was told, and is told.
    pub(super) fn start(&self, notifier: Arc<dyn Notifier>, volume: Option<&Arc<Volume>>) {
        let Some(queue) = self.waiting.lock().take() else {
            return;
        };
        let teller = Teller {
            notifier,
            volume: volume.map(Arc::downgrade).unwrap_or_default(),
            root: self.nodes.root,
            overflowed: Arc::clone(&self.overflowed),
        };
        let started = Builder::new()
            .name("ubtrfs-notify".into())
            .spawn(move || teller.run(&queue));
        if let Err(error) = started {
            tracing::error!(%error, "the kernel will not hear of changes from elsewhere");
        }
    }
}

/// The thread that tells the kernel. It ends with the last `Changes`.
struct Teller {
    notifier: Arc<dyn Notifier>,
    volume: Weak<Volume>,
    root: FileId,
    overflowed: Arc<AtomicBool>,
}

impl Teller {
    fn run(&self, queue: &Receiver<Change>) {
        for change in queue {
            if self.overflowed.swap(false, Ordering::AcqRel) {
                self.tell(Change::Everything);
            }
            self.tell(change);
        }
    }

    fn tell(&self, change: Change) {
        let whole_file = Some((0, None));
        match change {
            Change::Entry { dir, name } => self.notifier.entry_changed(dir, &name),
            Change::Removed { dir, name, child } => {
                self.notifier.entry_deleted(dir, &name, child);
            }
            Change::Node { node, contents } => {
                let contents = if contents { whole_file } else { None };
                self.notifier.node_changed(node, contents);
            }
            Change::Everything => self.tell_everything(),
            Change::Mark(done) => {
                self.notifier.settle();
                let _ = done.send(());
            }
            Change::Flush { ranges, done } => {
                // What is dropped from the kernel's cache is written first.
                for (node, range) in ranges {
                    self.notifier.node_changed(node, Some(range));
                }
                self.notifier.settle();
                let _ = done.send(());
            }
            Change::Settled(done) => {
                self.notifier.settle();
                let _ = done.send(());
            }
        }
    }

    /// An entry that is dropped takes all that is known below it along.
    fn tell_everything(&self) {
        self.notifier.node_changed(NodeId::ROOT, Some((0, None)));
        let Some(volume) = self.volume.upgrade() else {
            return;
        };
        let mut names = Vec::new();
        let listed = volume.readdir(self.root, 0, &mut |entry| {
            names.push(entry.name);
            ControlFlow::Continue(())
        });
        if let Err(error) = listed {
            tracing::warn!(%error, "the kernel may hold what is true no longer");
        }
        drop(volume);
        for name in names {
            self.notifier.entry_changed(NodeId::ROOT, &name);
        }
    }
}

//! Invalidates the kernel's caches, from threads of its own.
//!
//! The kernel locks the nodes of a notification. It may wait for the locks for as long as a request on such a node
//! takes. So notifications are queued, and the thread that queues one never waits.
//!
//! For a name notification the kernel takes the lock of the directory. unlink(2) holds that lock and waits for the
//! file's. A search for holes or a change of flags holds the file's lock until node notifications are delivered. So
//! name notifications could block node notifications. The latter take no such lock, and have a thread of their own.
//!
//! Invariants
//! - NOTIFY-1: a notification is never lost while the connection lives. If the queue of nodes is long, further ones are
//!   coarser: attributes and all contents of each node, once. Names are queued one by one. A notification of all names
//!   at once (`NOTIFY_INC_EPOCH`) would make the kernel drop even unchanged names, and their mounts.
//! - NOTIFY-2: node notifications never wait for name notifications.
//! - NOTIFY-3: memory for names is bounded. A command waits after each change until the queue is empty. An ioctl
//!   cannot: a holder of the directory's lock may wait for its answer. A program may list a directory into memory that
//!   never arrives, and then holds that lock without end. So an ioctl begins no change while `EXACT_MAX` names are
//!   queued. A rename that would add to a full queue is not begun.
//! - NOTIFY-4: a drop that a request waits for has a thread of its own, and so waits only for the locks of its pages.
//!   At most `DROPPING_HERE` requests use their own threads, fewer than the kernel's background requests. A page lock
//!   may belong to a read that the kernel sends only when one of those is answered.
//!
//! - NOTIFY-5: if a rename moves a name whose notification is not yet delivered, both of its names are queued. The
//!   kernel has moved its own entry, which may be old, and the earlier notification names one place only.
//!
//! Locks: a lane's, a leaf, never held during a notification.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi;
use crate::abi::output::{
    NotifyDeleteOut, NotifyInvalEntryOut, NotifyInvalInodeOut, NotifyRetrieveOut,
};
use crate::capacity::BACKGROUND_MIN;
use crate::clock;
use crate::device::Device;
use crate::pool::Pool;
use crate::request::{NodeId, Notifier, PageDrop};
use crate::retrieval::Retrievals;
use crate::thread;

/// The number of notifications that are queued one by one.
const EXACT_MAX: usize = 4096;
/// The maximum number of threads for drops. Further drops are queued: earlier ones end, if need be because their
/// requests stop waiting.
const DROPPERS_MAX: usize = 128;
/// A notification takes a microsecond if no page is locked. By default the kernel sends 12 background requests at once.
const DROPPING_HERE: usize = 8;
const REPLY_AT_MOST: Duration = Duration::from_secs(5);
// NOTIFY-4
const _: () = assert!(DROPPING_HERE < 12 && DROPPING_HERE < BACKGROUND_MIN as usize);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    Entry {
        dir: NodeId,
        name: Vec<u8>,
    },
    Deleted {
        dir: NodeId,
        name: Vec<u8>,
        child: NodeId,
    },
    /// With a range: contents too.
    Node {
        node: NodeId,
        contents: Option<(u64, Option<u64>)>,
    },
}

impl Notice {
    fn is_of(&self, of: NodeId, by: &[u8]) -> bool {
        match self {
            Self::Entry { dir, name } | Self::Deleted { dir, name, .. } => *dir == of && name == by,
            Self::Node { .. } => false,
        }
    }
}

/// A directory and a name in it.
type Name<'a> = (NodeId, &'a [u8]);

/// Notifications to be sent by one thread. Each has an ascending number.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    exact: VecDeque<(u64, Notice)>,
    nodes: BTreeSet<NodeId>,
    /// The number of the first notification in `nodes`.
    nodes_since: u64,
    /// The last number.
    given: u64,
    /// The number of notifications that were sent.
    sent: u64,
    /// The notification being sent.
    sending: Option<(u64, Arc<Notice>)>,
    ended: bool,
}

impl Waiting {
    pub(crate) fn put(&mut self, notice: Notice) {
        if self.ended {
            return;
        }
        self.given += 1;
        match notice {
            // NOTIFY-1
            Notice::Node { node, .. } if self.exact.len() >= EXACT_MAX => {
                // All coarse notifications share the number of the first, so `drain` may wait longer than necessary,
                // but never too short.
                if self.nodes.is_empty() {
                    self.nodes_since = self.given;
                }
                self.nodes.insert(node);
            }
            notice => self.exact.push_back((self.given, notice)),
        }
    }

    /// Returns whether all notifications up to this number are sent.
    fn has_sent(&self, number: u64) -> bool {
        let first = self.exact.front().map(|(number, _)| *number);
        let coarse = (!self.nodes.is_empty()).then_some(self.nodes_since);
        let sending = self.sending.as_ref().map(|(number, _)| *number);
        let left = [sending, first, coarse];
        self.ended || left.into_iter().flatten().all(|left| left > number)
    }

    /// Returns whether a notification of this name is queued. The one being sent does not count.
    fn is_queued(&self, (dir, name): Name<'_>) -> bool {
        self.exact.iter().any(|(_, notice)| notice.is_of(dir, name))
    }

    /// Returns whether a notification of this name is not yet delivered.
    fn is_pending(&self, of: Name<'_>) -> bool {
        let sending = self.sending.as_ref();
        sending.is_some_and(|(_, notice)| notice.is_of(of.0, of.1)) || self.is_queued(of)
    }

    pub(crate) fn take(&mut self) -> Option<Arc<Notice>> {
        let first = self.exact.front().map(|(number, _)| *number);
        if first.is_none_or(|first| first > self.nodes_since) {
            // Coarse notifications are due once all exact ones from before them are sent. They return to the front of
            // the exact queue, where each is sent once.
            while let Some(node) = self.nodes.pop_last() {
                let contents = Some((0, None));
                self.exact
                    .push_front((self.nodes_since, Notice::Node { node, contents }));
            }
        }
        self.sent += u64::from(self.sending.is_some());
        let next = self.exact.pop_front();
        self.sending = next.map(|(number, notice)| (number, Arc::new(notice)));
        Some(Arc::clone(&self.sending.as_ref()?.1))
    }
}

/// The queue of one thread.
#[derive(Debug, Default)]
struct Lane {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Signalled when a notification was sent.
    sent: Condvar,
}

impl Lane {
    fn put(&self, notice: Notice) {
        self.waiting.lock().put(notice);
        self.changed.notify_one();
    }

    fn end(&self) {
        self.waiting.lock().ended = true;
        self.changed.notify_all();
        self.sent.notify_all();
    }

    /// Returns the next notification, or `None` at the end of the connection. The caller has sent the previous one.
    fn next(&self) -> Option<Arc<Notice>> {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.ended {
                return None;
            }
            // Taking the next notification also marks the previous one as sent.
            let notice = waiting.take();
            self.sent.notify_all();
            if notice.is_some() {
                return notice;
            }
            self.changed.wait(&mut waiting);
        }
    }

    /// Waits until all earlier notifications are sent. Returns false if none is sent for so long.
    fn drain(&self, patience: Option<Duration>) -> bool {
        let mut waiting = self.waiting.lock();
        let given = waiting.given;
        while !waiting.has_sent(given) {
            let Some(patience) = patience else {
                self.sent.wait(&mut waiting);
                continue;
            };
            let (sent, until) = (waiting.sent, clock::now() + patience);
            while waiting.sent == sent && !waiting.has_sent(given) {
                if clock::now() >= until {
                    return false;
                }
                self.sent.wait_until(&mut waiting, until);
            }
        }
        true
    }
}

/// The queues of both threads.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    names: Arc<Lane>,
    nodes: Arc<Lane>,
    /// `None` in tests.
    kernel: Option<Kernel>,
    /// The number of requests that run drops on their own threads.
    dropping_here: AtomicUsize,
}

/// The connection to the kernel, and the threads that drop pages.
struct Kernel {
    device: Arc<Device>,
    droppers: Arc<Pool>,
    retrievals: Arc<Retrievals>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").finish_non_exhaustive()
    }
}

impl Notifier for Queue {
    fn entry_changed(&self, dir: NodeId, name: &[u8]) {
        self.names.put(Notice::Entry {
            dir,
            name: name.into(),
        });
    }

    fn entry_deleted(&self, dir: NodeId, name: &[u8], child: NodeId) {
        self.names.put(Notice::Deleted {
            dir,
            name: name.into(),
            child,
        });
    }

    fn node_changed(&self, node: NodeId, contents: Option<(u64, Option<u64>)>) {
        self.nodes.put(Notice::Node { node, contents });
    }

    fn drop_pages(
        &self,
        node: NodeId,
        range: (u64, Option<u64>),
        over: Box<dyn FnOnce() + Send>,
    ) -> Arc<PageDrop> {
        let Some(kernel) = &self.kernel else {
            over();
            return PageDrop::finished();
        };
        let drop = PageDrop::new();
        let (device, under_way) = (Arc::clone(&kernel.device), Arc::clone(&drop));
        let contents = Some(range);
        kernel.droppers.run(move || {
            under_way.begin();
            send(&device, &Notice::Node { node, contents });
            over();
            under_way.finish();
        });
        drop
    }

    fn drop_pages_here(&self, node: NodeId, range: (u64, Option<u64>)) -> bool {
        // NOTIFY-4
        let place =
            self.dropping_here
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                    (taken < DROPPING_HERE).then_some(taken + 1)
                });
        if place.is_err() {
            return false;
        }
        if let Some(kernel) = &self.kernel {
            let contents = Some(range);
            send(&kernel.device, &Notice::Node { node, contents });
        }
        self.dropping_here.fetch_sub(1, Ordering::Relaxed);
        true
    }

    fn drop_attributes(&self, node: NodeId) {
        if let Some(kernel) = &self.kernel {
            let contents = None;
            send(&kernel.device, &Notice::Node { node, contents });
        }
    }

    fn cached(&self, node: NodeId, offset: u64, len: u32) -> Option<Vec<u8>> {
        let kernel = self.kernel.as_ref()?;
        let head = NotifyRetrieveOut {
            notify_unique: 1,
            nodeid: node.0,
            offset,
            size: len,
            padding: 0,
        };
        let ask = || {
            let asked = kernel
                .device
                .notify(abi::NOTIFY_RETRIEVE, &[head.as_bytes()]);
            asked
                .inspect_err(
                    |error| tracing::debug!(node = node.0, %error, "the kernel does not answer"),
                )
                .is_ok()
        };
        let until = clock::now() + REPLY_AT_MOST;
        kernel.retrievals.retrieve((node, offset), until, ask)
    }

    fn has_room_for_names(&self) -> bool {
        // NOTIFY-3
        self.names.waiting.lock().exact.len() < EXACT_MAX
    }

    fn has_room_for_rename(&self, from: Name<'_>, to: Name<'_>) -> bool {
        let waiting = self.names.waiting.lock();
        // NOTIFY-3
        waiting.exact.len() < EXACT_MAX || ![from, to].iter().any(|name| waiting.is_pending(*name))
    }

    fn renamed(&self, from: Name<'_>, to: Name<'_>) {
        let mut waiting = self.names.waiting.lock();
        // NOTIFY-5
        if ![from, to].iter().any(|name| waiting.is_pending(*name)) {
            return;
        }
        for (dir, name) in [from, to] {
            if !waiting.is_queued((dir, name)) {
                let name = name.into();
                waiting.put(Notice::Entry { dir, name });
            }
        }
        drop(waiting);
        self.names.changed.notify_one();
    }

    fn drain_nodes(&self, patience: Option<Duration>) -> bool {
        self.nodes.drain(patience)
    }

    fn drain(&self, patience: Option<Duration>) -> bool {
        self.nodes.drain(patience) && self.names.drain(patience)
    }
}

/// The threads that send notifications to the kernel.
#[derive(Debug)]
pub(crate) struct Invalidator {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
    retrievals: Arc<Retrievals>,
}

impl Invalidator {
    pub(crate) fn start(device: Device) -> std::io::Result<Self> {
        let device = Arc::new(device);
        let retrievals = Arc::<Retrievals>::default();
        let kernel = Kernel {
            device: Arc::clone(&device),
            droppers: Pool::new("ubtrfs-drop", DROPPERS_MAX)?,
            retrievals: Arc::clone(&retrievals),
        };
        let mut invalidator = Self {
            queue: Arc::new(Queue {
                kernel: Some(kernel),
                ..Queue::default()
            }),
            threads: Vec::new(),
            retrievals,
        };
        let queue = invalidator.queue();
        // NOTIFY-2: each lane has a thread of its own.
        for (name, lane) in [
            ("ubtrfs-names", &queue.names),
            ("ubtrfs-nodes", &queue.nodes),
        ] {
            let (lane, device) = (Arc::clone(lane), Arc::clone(&device));
            let thread = thread::start(name, move || {
                while let Some(notice) = lane.next() {
                    send(&device, &notice);
                }
            })?;
            invalidator.threads.push(thread);
        }
        Ok(invalidator)
    }

    pub(crate) fn retrievals(&self) -> Arc<Retrievals> {
        Arc::clone(&self.retrievals)
    }

    pub(crate) fn queue(&self) -> Arc<Queue> {
        Arc::clone(&self.queue)
    }
}

impl Drop for Invalidator {
    /// Ends the threads and waits for them. This runs at the end of the connection, when nothing can block the kernel.
    fn drop(&mut self) {
        self.queue.names.end();
        self.queue.nodes.end();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if let Some(kernel) = &self.queue.kernel {
            kernel.droppers.end();
        }
    }
}

fn send(device: &Device, notice: &Notice) {
    match write(device, notice) {
        // The kernel does not know the node or the name, or the connection is gone: nothing is cached.
        Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::NOTCONN | Errno::CONNABORTED) => {}
        Err(error) => tracing::debug!(?notice, %error, "the kernel took no notice"),
    }
}

fn write(device: &Device, notice: &Notice) -> rustix::io::Result<()> {
    match notice {
        Notice::Entry { dir, name } => {
            let head = NotifyInvalEntryOut {
                parent: dir.0,
                namelen: name.len() as u32,
                flags: 0,
            };
            device.notify(abi::NOTIFY_INVAL_ENTRY, &[head.as_bytes(), name, &[0]])
        }
        Notice::Deleted { dir, name, child } => {
            let head = NotifyDeleteOut {
                parent: dir.0,
                child: child.0,
                namelen: name.len() as u32,
                padding: 0,
            };
            device.notify(abi::NOTIFY_DELETE, &[head.as_bytes(), name, &[0]])
        }
        Notice::Node { node, contents } => {
            let (off, len) = match contents {
                None => (-1, 0),
                Some((off, len)) => (
                    i64::try_from(*off).unwrap_or(i64::MAX),
                    len.map_or(0, |len| i64::try_from(len).unwrap_or(0)),
                ),
            };
            let head = NotifyInvalInodeOut {
                ino: node.0,
                off,
                len,
            };
            device.notify(abi::NOTIFY_INVAL_INODE, &[head.as_bytes()])
        }
    }
}

#[cfg(test)]
mod tests;

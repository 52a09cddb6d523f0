//! Tells the kernel what it remembers wrongly, from a thread of its own.
//!
//! The kernel takes locks of the nodes it is told about, and waits for them for as long as a request on
//! such a node takes. So notices are queued, and whoever has one to give never waits.
//!
//! Invariants
//! - NOTIFY-1: a notice is never lost while the connection lives. When many wait, further ones are given more
//!   coarsely: contents and attributes of a node as a whole, and all names of the mount at once, where the
//!   kernel can be told so (7.44); elsewhere the queue of names grows.
//!
//! Locks: the queue's, a leaf, never held while the kernel is told something.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::abi;
use super::abi::output::{NotifyDeleteOut, NotifyInvalEntryOut, NotifyInvalInodeOut};
use super::device::Device;
use crate::request::{NodeId, Notifier};

/// Notices that wait one by one.
const EXACT_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
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
    AllNames,
}

/// What waits to be told.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    exact: VecDeque<Notice>,
    nodes: BTreeSet<NodeId>,
    all_names: bool,
    /// The kernel can be told about all names at once.
    has_epoch: bool,
    /// One was taken, and is being told.
    telling: bool,
    ended: bool,
}

impl Waiting {
    pub(super) fn new(has_epoch: bool) -> Self {
        Self {
            has_epoch,
            ..Self::default()
        }
    }

    pub(super) fn put(&mut self, notice: Notice) {
        if self.ended {
            return;
        }
        let full = self.exact.len() >= EXACT_MAX;
        match notice {
            Notice::Node { node, .. } if full => {
                self.nodes.insert(node);
            }
            Notice::Entry { .. } | Notice::Deleted { .. } if full && self.has_epoch => {
                self.all_names = true;
            }
            Notice::AllNames => self.all_names = true,
            notice => self.exact.push_back(notice),
        }
    }

    fn is_idle(&self) -> bool {
        !self.telling && self.exact.is_empty() && self.nodes.is_empty() && !self.all_names
    }

    pub(super) fn take(&mut self) -> Option<Notice> {
        if let Some(notice) = self.exact.pop_front() {
            return Some(notice);
        }
        if std::mem::take(&mut self.all_names) {
            return Some(Notice::AllNames);
        }
        let node = self.nodes.pop_first()?;
        Some(Notice::Node {
            node,
            contents: Some((0, None)),
        })
    }
}

/// Where notices wait.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Nothing is left to be told.
    idle: Condvar,
}

impl Queue {
    fn put(&self, notice: Notice) {
        self.waiting.lock().put(notice);
        self.changed.notify_one();
    }

    fn end(&self) {
        self.waiting.lock().ended = true;
        self.changed.notify_all();
        self.idle.notify_all();
    }

    /// The next notice, or none at the end of the connection.
    fn next(&self) -> Option<Notice> {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.ended {
                return None;
            }
            let notice = waiting.take();
            waiting.telling = notice.is_some();
            if notice.is_some() {
                return notice;
            }
            self.idle.notify_all();
            self.changed.wait(&mut waiting);
        }
    }
}

impl Notifier for Queue {
    fn entry_changed(&self, dir: NodeId, name: &[u8]) {
        self.put(Notice::Entry {
            dir,
            name: name.into(),
        });
    }

    fn entry_deleted(&self, dir: NodeId, name: &[u8], child: NodeId) {
        self.put(Notice::Deleted {
            dir,
            name: name.into(),
            child,
        });
    }

    fn node_changed(&self, node: NodeId, contents: Option<(u64, Option<u64>)>) {
        self.put(Notice::Node { node, contents });
    }

    fn settle(&self) {
        let mut waiting = self.waiting.lock();
        while !waiting.ended && !waiting.is_idle() {
            self.idle.wait(&mut waiting);
        }
    }
}

/// The thread that tells the kernel.
#[derive(Debug)]
pub(super) struct Teller {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

impl Teller {
    pub(super) fn start(device: Device, has_epoch: bool) -> std::io::Result<Self> {
        let queue = Arc::new(Queue {
            waiting: Mutex::new(Waiting::new(has_epoch)),
            changed: Condvar::new(),
            idle: Condvar::new(),
        });
        let source = Arc::clone(&queue);
        let thread = Builder::new().name("ubtrfs-notify".into()).spawn(move || {
            while let Some(notice) = source.next() {
                tell(&device, &notice);
            }
        })?;
        Ok(Self {
            queue,
            thread: Some(thread),
        })
    }

    pub(super) fn queue(&self) -> Arc<Queue> {
        Arc::clone(&self.queue)
    }
}

impl Drop for Teller {
    /// At the end of the connection, when nothing can hold the kernel up any more.
    fn drop(&mut self) {
        self.queue.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn tell(device: &Device, notice: &Notice) {
    match send(device, notice) {
        // It does not know the node or the name, or the connection is gone: it remembers nothing.
        Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::NOTCONN | Errno::CONNABORTED) => {}
        Err(error) => tracing::debug!(?notice, %error, "the kernel took no notice"),
    }
}

fn send(device: &Device, notice: &Notice) -> rustix::io::Result<()> {
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
        Notice::AllNames => device.notify(abi::NOTIFY_INC_EPOCH, &[]),
    }
}

#[cfg(test)]
mod tests;

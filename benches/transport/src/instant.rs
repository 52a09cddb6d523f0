//! A file system in memory that answers at once, so that only the transport's share remains.
//!
//! It only supports its clients and checks nothing. Like a slow device, files whose names begin with `slow` answer
//! reads of their contents only when the gate is opened. Files with `stuck` do not even accept reads before.
//!
//! Locks: the state's, and the gate's; neither is taken while the other is held.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use ubtrfs_fuse_server::request::{
    Answer, AnswerBuffer, Attr, AttrChange, Attributes, ConnectionFlags, Context, DeviceNr,
    DirEntry, DirPlusSink, DirSink, Entry, Errno, FileKind, FileSystem, IoctlAnswer, NewNode,
    NodeId, Notifier, Opened, Operation, Result, Room, StatFs, Time, TimeChange,
};

const FOREVER: Duration = Duration::from_secs(1 << 31);
const TYPE_MASK: u32 = 0o170_000;

thread_local! {
    /// Whether this thread must not wait.
    static HURRIED: Cell<bool> = const { Cell::new(false) };
}

/// The behaviour of the file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manners {
    /// The kernel caches written pages.
    pub(crate) writeback_cache: bool,
    /// Files are created by CREATE, not by MKNOD and an elided open.
    pub(crate) create: bool,
}

#[derive(Debug)]
pub(crate) struct Instant {
    manners: Manners,
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) gate: Arc<Gate>,
}

/// The gate that slow files wait for.
#[derive(Default)]
pub(crate) struct Gate {
    pub(crate) open: Mutex<bool>,
    pub(crate) opened: Condvar,
    /// Requests that have waited or are waiting.
    pub(crate) waiters: AtomicUsize,
    /// Requests that were refused because they would have waited.
    pub(crate) refused: AtomicUsize,
    /// Lookups that the kernel has dropped.
    pub(crate) forgotten: AtomicUsize,
    /// The way to the kernel's caches.
    pub(crate) notifier: Mutex<Option<Arc<dyn Notifier>>>,
    /// Called at each query of the connection's settings.
    pub(crate) when_asked: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate")
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

impl Gate {
    fn pass(&self) -> Result<()> {
        let mut open = self.open.lock();
        if !*open && HURRIED.get() {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err(Errno::WOULD_BLOCK);
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        while !*open {
            self.opened.wait(&mut open);
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) nodes: HashMap<u64, Node>,
    last: u64,
}

#[derive(Debug)]
pub(crate) struct Node {
    attr: Attr,
    slow: bool,
    stuck: bool,
    pub(crate) contents: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Entries with their offsets in a listing.
    names: HashMap<Vec<u8>, (u64, u64)>,
    /// Names by the listing offset that follows them.
    listed: BTreeMap<u64, (Vec<u8>, u64)>,
}

impl State {
    fn node(&mut self, node: NodeId) -> Result<&mut Node> {
        self.nodes.get_mut(&node.0).ok_or(Errno::STALE)
    }

    fn child(&mut self, dir: NodeId, name: &[u8]) -> Result<u64> {
        let found = self.node(dir)?.names.get(name);
        found.map(|&(number, _)| number).ok_or(Errno::NOENT)
    }

    fn entry(&mut self, number: u64) -> Result<Entry> {
        let attr = self.node(NodeId(number))?.attr;
        Ok(Entry {
            node: NodeId(number),
            generation: 0,
            attributes: Attributes { attr, ttl: FOREVER },
            ttl: FOREVER,
        })
    }

    fn put(&mut self, dir: NodeId, name: &[u8], number: u64) -> Result<()> {
        let dir = self.node(dir)?;
        let place = dir.listed.last_key_value().map_or(3, |(last, _)| last + 1);
        dir.names.insert(name.into(), (number, place));
        dir.listed.insert(place, (name.into(), number));
        Ok(())
    }

    pub(crate) fn take(&mut self, dir: NodeId, name: &[u8]) -> Result<u64> {
        let dir = self.node(dir)?;
        let (number, place) = dir.names.remove(name).ok_or(Errno::NOENT)?;
        dir.listed.remove(&place);
        Ok(number)
    }

    fn add(&mut self, dir: NodeId, name: &[u8], mode: u32, context: &Context) -> Result<Entry> {
        if self.node(dir)?.names.contains_key(name) {
            return Err(Errno::EXIST);
        }
        self.last += 1;
        let number = self.last;
        let node = Node {
            slow: name.starts_with(b"slow"),
            stuck: name.starts_with(b"stuck"),
            ..Node::new(number, mode, context)
        };
        self.nodes.insert(number, node);
        self.put(dir, name, number)?;
        self.entry(number)
    }
}

impl Node {
    fn new(number: u64, mode: u32, context: &Context) -> Self {
        let kind = match mode & TYPE_MASK {
            0o040_000 => FileKind::Directory,
            0o120_000 => FileKind::Symlink,
            _ => FileKind::Regular,
        };
        let time = Time {
            secs: 1_700_000_000,
            nanos: 0,
        };
        Self {
            attr: Attr {
                ino: number,
                kind,
                permissions: (mode & 0o7777) as u16,
                nlink: 1,
                uid: context.uid,
                gid: context.gid,
                rdev: DeviceNr::default(),
                size_bytes: 0,
                blocks: 0,
                block_bytes: 4096,
                atime: time,
                mtime: time,
                ctime: time,
                btime: time,
            },
            slow: false,
            stuck: false,
            contents: Vec::new(),
            xattrs: BTreeMap::new(),
            names: HashMap::new(),
            listed: BTreeMap::new(),
        }
    }
}

impl Instant {
    pub(crate) fn new(manners: Manners) -> Self {
        let root = Context {
            uid: 0,
            gid: 0,
            pid: 0,
        };
        let mut state = State::default();
        let top = Node::new(NodeId::ROOT.0, 0o040_777, &root);
        state.nodes.insert(NodeId::ROOT.0, top);
        state.last = 1 << 10;
        Self {
            manners,
            state: Arc::new(Mutex::new(state)),
            gate: Arc::default(),
        }
    }

    fn wait_if_slow(&self, node: NodeId) -> Result<()> {
        let slow = self.state.lock().node(node)?.slow;
        if slow { self.gate.pass() } else { Ok(()) }
    }

    /// Lists names from `offset` on until `push` reports a full buffer.
    fn list(
        &self,
        dir: NodeId,
        offset: u64,
        push: &mut dyn FnMut(&DirEntry<'_>, Option<&Entry>) -> Room,
    ) -> Result<Answer> {
        let mut state = self.state.lock();
        let listed: Vec<_> = state
            .node(dir)?
            .listed
            .range(offset..)
            .take(8192)
            .map(|(place, (name, number))| (*place, name.clone(), *number))
            .collect();
        for (place, name, number) in listed {
            let found = state.entry(number)?;
            let entry = DirEntry {
                ino: number,
                kind: found.attributes.attr.kind,
                name: &name,
                next_offset: place + 1,
            };
            if push(&entry, Some(&found)) == Room::Full {
                break;
            }
        }
        Ok(Answer::Done)
    }

    fn mknod(&self, context: &Context, dir: NodeId, name: &[u8], new: &NewNode) -> Result<Answer> {
        let mode = new.mode & !new.umask;
        let made = self.state.lock().add(dir, name, mode, context);
        made.map(Answer::Entry)
    }

    fn setattr(&self, node: NodeId, change: &AttrChange) -> Result<Answer> {
        let mut state = self.state.lock();
        let node = state.node(node)?;
        if let Some(size) = change.size_bytes {
            node.contents.resize(size as usize, 0);
            node.attr.size_bytes = size;
        }
        if let Some(mode) = change.mode {
            node.attr.permissions = (mode & 0o7777) as u16;
        }
        if let Some(TimeChange::At(time)) = change.mtime {
            node.attr.mtime = time;
        }
        let attr = node.attr;
        Ok(Answer::Attributes(Attributes { attr, ttl: FOREVER }))
    }

    fn write(&self, node: NodeId, offset: usize, bytes: &[u8]) -> Result<Answer> {
        let stuck = self.state.lock().node(node)?.stuck;
        if stuck {
            self.gate.pass()?;
        }
        let mut state = self.state.lock();
        let node = state.node(node)?;
        let end = offset + bytes.len();
        if node.contents.len() < end {
            node.contents.resize(end, 0);
        }
        node.contents[offset..end].copy_from_slice(bytes);
        node.attr.size_bytes = node.contents.len() as u64;
        Ok(Answer::Written(bytes.len()))
    }
}

impl FileSystem for Instant {
    fn connection_flags(&self) -> ConnectionFlags {
        if let Some(when_asked) = &mut *self.gate.when_asked.lock() {
            when_asked();
        }
        ConnectionFlags {
            posix_acl: false,
            writable: true,
            writeback_cache: self.manners.writeback_cache,
            idmapped: false,
        }
    }

    fn start(&self, notifier: Arc<dyn Notifier>) {
        *self.gate.notifier.lock() = Some(notifier);
    }

    fn set_nonblocking(&self) {
        HURRIED.set(true);
    }

    fn perform(
        &self,
        context: &Context,
        node: NodeId,
        operation: &Operation<'_>,
        out: &mut impl AnswerBuffer,
    ) -> Result<Answer> {
        match *operation {
            Operation::Lookup { name } => {
                let mut state = self.state.lock();
                match state.child(node, name) {
                    Ok(number) => state.entry(number).map(Answer::Entry),
                    Err(_) => Ok(Answer::Absent { ttl: FOREVER }),
                }
            }
            Operation::Forget { lookups } => {
                let forgotten = &self.gate.forgotten;
                forgotten.fetch_add(lookups as usize, Ordering::SeqCst);
                Ok(Answer::Done)
            }
            Operation::Getattr => {
                let attr = self.state.lock().node(node)?.attr;
                Ok(Answer::Attributes(Attributes { attr, ttl: FOREVER }))
            }
            Operation::Setattr { change, .. } => self.setattr(node, &change),
            Operation::Readlink => {
                let mut state = self.state.lock();
                let target = &state.node(node)?.contents;
                out.bytes()[..target.len()].copy_from_slice(target);
                Ok(Answer::Len(target.len()))
            }
            Operation::Mknod { name, new } => self.mknod(context, node, name, &new),
            Operation::Mkdir { name, new } => {
                let mode = 0o040_000 | (new.mode & !new.umask & !TYPE_MASK);
                let made = self.state.lock().add(node, name, mode, context);
                made.map(Answer::Entry)
            }
            Operation::Symlink { name, target } => {
                let mut state = self.state.lock();
                let made = state.add(node, name, 0o120_777, context)?;
                let link = state.node(made.node)?;
                link.contents = target.into();
                link.attr.size_bytes = target.len() as u64;
                state.entry(made.node.0).map(Answer::Entry)
            }
            Operation::Unlink { name } | Operation::Rmdir { name } => {
                self.state.lock().take(node, name).map(|_| Answer::Done)
            }
            Operation::Rename { name, to, .. } => {
                let mut state = self.state.lock();
                let number = state.take(node, name)?;
                let _ = state.take(to.0, to.1);
                state.put(to.0, to.1, number).map(|()| Answer::Done)
            }
            Operation::Create { name, new, .. } if self.manners.create => {
                match self.mknod(context, node, name, &new)? {
                    Answer::Entry(entry) => Ok(Answer::Created(entry, Opened::Elided)),
                    other => Ok(other),
                }
            }
            Operation::Open { .. } | Operation::Opendir => Ok(Answer::Opened(Opened::Elided)),
            Operation::Read { offset, .. } => {
                self.wait_if_slow(node)?;
                let mut state = self.state.lock();
                let contents = &state.node(node)?.contents;
                let rest = contents.get(offset as usize..).unwrap_or_default();
                let out = out.bytes();
                let len = rest.len().min(out.len());
                out[..len].copy_from_slice(&rest[..len]);
                Ok(Answer::Len(len))
            }
            Operation::Write { offset, bytes, .. } => self.write(node, offset as usize, bytes),
            Operation::Fsync { .. } => self.wait_if_slow(node).map(|()| Answer::Done),
            Operation::Readdir { offset, .. } => {
                self.list(node, offset, &mut |entry, _| DirSink::push(out, entry))
            }
            Operation::Readdirplus { offset, .. } => {
                self.list(node, offset, &mut |entry, found| {
                    DirPlusSink::push(out, entry, found)
                })
            }
            Operation::Getxattr { name, .. } => {
                let mut state = self.state.lock();
                let value = state.node(node)?.xattrs.get(name).ok_or(Errno::NODATA)?;
                fill(out.bytes(), value)
            }
            Operation::Listxattr { .. } => {
                let mut state = self.state.lock();
                let names = state.node(node)?.xattrs.keys();
                let names: Vec<u8> = names
                    .flat_map(|name| name.iter().copied().chain([0]))
                    .collect();
                fill(out.bytes(), &names)
            }
            Operation::Setxattr { name, value, .. } => {
                let mut state = self.state.lock();
                state.node(node)?.xattrs.insert(name.into(), value.into());
                Ok(Answer::Done)
            }
            Operation::Statfs => Ok(Answer::StatFs(StatFs {
                block_bytes: 4096,
                blocks: 1 << 30,
                blocks_free: 1 << 30,
                blocks_available: 1 << 30,
                name_max: 255,
            })),
            // Returns its input reversed.
            Operation::Ioctl { input, .. } => {
                let out = out.bytes();
                let len = input.len().min(out.len());
                for (to, from) in out[..len].iter_mut().zip(input.iter().rev()) {
                    *to = *from;
                }
                Ok(Answer::Ioctl(IoctlAnswer::of(len)))
            }
            Operation::Release { .. } | Operation::Releasedir { .. } | Operation::Destroy => {
                Ok(Answer::Done)
            }
            _ => Err(Errno::NOSYS),
        }
    }
}

/// Copies a value to `out`; an empty buffer requests the length.
fn fill(out: &mut [u8], value: &[u8]) -> Result<Answer> {
    if !out.is_empty() {
        out.get_mut(..value.len())
            .ok_or(Errno::RANGE)?
            .copy_from_slice(value);
    }
    Ok(Answer::Len(value.len()))
}

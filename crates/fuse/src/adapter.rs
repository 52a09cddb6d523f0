//! A btrfs volume as the file system of a FUSE connection, and the only place that picks an errno.
//!
//! One subvolume is the root of the mount; subvolumes below it are directories in it. The kernel may cache every answer
//! without a time limit: it knows its own changes, and is notified of all others (`changes`). So TTLs do not expire,
//! and cached contents survive from one open to the next. Opens are elided unless a part of the adapter needs them
//! (`Adapter::with_opens`).
//!
//! Invariants
//! - FUSE-1: the node id of every file except the root is the displayed inode number (`number`).
//! - FUSE-2: memory grows with the nodes that the kernel knows (`known`) and with open files, not with all files ever
//!   seen.
//! - FUSE-3: a file is the root of the mount only as node 1. Another entry that leads to it would make the tree endless
//!   (`ELOOP`).
//!
//! Locks: none over a whole request. The locks here are leaves; the engine locks inodes.

mod appends;
mod attributes;
mod by_handle;
mod changes;
mod coherence;
mod contents;
mod control;
mod drops;
mod errno;
mod file_system;
mod flags;
mod flushing;
mod handles;
mod ioctl;
mod kernel_pages;
mod known;
mod listing;
mod listing_ends;
mod live;
mod names;
mod nodes;
mod number;
mod scrubs;
mod source;
mod span;
mod volume;
mod xattr;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::OpenFile;
use ubtrfs_fuse_server::request::{
    Attributes, ConnectionFlags, Entry, Errno, FileKind, NodeId, Result,
};

use self::appends::Appends;
pub use self::changes::Changes;
use self::changes::Range;
pub use self::control::{CONTROL_ATTRIBUTE, ControlPoint, KnownNonce, Nonce};
use self::flushing::{Flushing, For};
use self::handles::Handles;
pub(crate) use self::ioctl::DeviceNumber;
pub use self::kernel_pages::KernelPages;
use self::known::KnownNodes;
pub(crate) use self::live::LiveRules;
use self::nodes::{Listed, NodeTable};
use self::number::{Meaning, Numbering};
use self::scrubs::Scrubs;
use self::source::{FileId, Inode, Source};
pub(crate) use self::xattr::{TAKES_CHANGES, WRITABLE_ATTRIBUTE};
use crate::caller::finds_by_handle;

/// More than a century, and within the range of the kernel's clock.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
const NAME_MAX: usize = 255;
const WHOLE_FILE: Range = (0, None);

/// A volume being served.
#[derive(Debug)]
pub(crate) struct Adapter<S: Source> {
    source: S,
    root: FileId,
    /// Keeps the subvolume of the root from being freed during the mount, even if it is deleted.
    _held_root: Option<OpenFile>,
    numbering: Numbering,
    nodes: Arc<NodeTable>,
    known: Arc<KnownNodes>,
    handles: Arc<Handles>,
    changes: Changes,
    /// The number of capability changes, plus one.
    capabilities: AtomicU64,
    flushing: Arc<Flushing>,
    appends: Appends,
    connection_flags: ConnectionFlags,
    /// Whether the kernel sends opens; see `with_opens`.
    gets_opens: bool,
    live: Arc<LiveRules>,
    /// Whether changes of names are durable when they are answered.
    syncs_names: bool,
    is_fakeroot: bool,
    /// Returns whether a process or thread finds files by their handles (`by_handle`).
    finds_by_handle: fn(u32) -> bool,
    device: DeviceNumber,
    control: ControlPoint,
    close_failure: CloseFailure,
    shown_by: ShownBy,
    scrubs: Scrubs,
}

/// The error of closing the volume at the kernel's request.
pub(crate) type CloseFailure = Arc<Mutex<Option<ubtrfs_fs::Error>>>;

/// The loop device of a mounted image, if there is one.
pub(crate) type ShownBy = Arc<Mutex<Option<PathBuf>>>;

/// A node id that the kernel sent, resolved.
#[derive(Debug)]
struct Node {
    id: FileId,
    /// The displayed inode number.
    number: u64,
    listed: Option<Listed>,
}

impl Node {
    /// Returns whether this directory replaces a subvolume that does not exist here.
    fn is_empty_subvolume_dir(&self) -> bool {
        matches!(self.listed, Some(Listed::EmptySubvolumeDir { .. }))
    }
}

impl<S: Source> Adapter<S> {
    /// Creates an adapter for the subvolume with this root directory.
    pub(crate) fn new(source: S, root: FileId, connection_flags: ConnectionFlags) -> Self {
        let numbering = Numbering::new(root.root);
        let known = Arc::new(KnownNodes::new(numbering, root));
        if let Some(volume) = source.volume()
            && connection_flags.writable
        {
            volume.set_lookup_refs(Some(Arc::clone(&known) as _));
        }
        let held = source.volume().map(|volume| volume.open_file(root));
        let held = held.and_then(|held| {
            held.inspect_err(|error| tracing::warn!(%error, "the root is not held"))
                .ok()
        });
        Self {
            source,
            root,
            _held_root: held,
            numbering,
            nodes: Arc::default(),
            known,
            handles: Arc::default(),
            changes: Changes::new(root, numbering),
            capabilities: AtomicU64::new(1),
            flushing: Arc::default(),
            appends: Appends::default(),
            connection_flags,
            gets_opens: connection_flags.writable,
            live: Arc::default(),
            syncs_names: false,
            is_fakeroot: false,
            finds_by_handle,
            device: DeviceNumber::default(),
            control: ControlPoint::default(),
            close_failure: CloseFailure::default(),
            shown_by: ShownBy::default(),
            scrubs: Scrubs::default(),
        }
    }

    /// Sets whether every caller that can send btrfs ioctls may do everything.
    #[must_use]
    pub(crate) fn for_fakeroot(mut self, is_fakeroot: bool) -> Self {
        self.is_fakeroot = is_fakeroot;
        self
    }

    /// Returns the cell that is to be set to the device of the mount.
    pub(crate) fn device(&self) -> DeviceNumber {
        self.device.clone()
    }

    /// Returns the cell to be set to the address for commands.
    pub(crate) fn control(&self) -> ControlPoint {
        self.control.clone()
    }

    pub(crate) fn close_failure(&self) -> CloseFailure {
        Arc::clone(&self.close_failure)
    }

    /// Returns the cell to be set to the loop device of the image.
    pub(crate) fn shown_by(&self) -> ShownBy {
        Arc::clone(&self.shown_by)
    }

    /// Sets whether the kernel sends opens. Usually it need not, since the data of an open file is stored with its node
    /// (`known`). But without opens, inode flags forbid changes and not opens, and the kernel must not use a writeback
    /// cache.
    #[must_use]
    pub(crate) fn with_opens(mut self, gets_opens: bool) -> Self {
        self.gets_opens = gets_opens && self.connection_flags.writable;
        self
    }

    /// Returns the kernel's dirty pages.
    pub(crate) fn kernel_pages(&self) -> KernelPages {
        KernelPages {
            gets_opens: self.gets_opens,
            numbering: self.numbering,
            nodes: Arc::clone(&self.nodes),
            known: Arc::clone(&self.known),
            handles: Arc::clone(&self.handles),
            flushing: Arc::clone(&self.flushing),
            changes: self.changes.clone(),
        }
    }

    /// Makes the kernel write back the files of one subvolume, or of all.
    fn write_back(&self, subvolume: Option<RootId>) -> Result<()> {
        self.kernel_pages().write_back_of(subvolume)
    }

    /// Makes the kernel write back a range of a file. Fails with `EBUSY` if too many requests wait for writeback, for
    /// operations that would be wrong without it.
    fn flush(&self, file: FileId, range: Range, why: For) -> Result<()> {
        let ranges = vec![(self.changes.node_of(file), range)];
        self.kernel_pages().flush(why, ranges)
    }

    /// Sets the rules that a remount can change.
    #[must_use]
    pub(crate) fn with_live_rules(mut self, live: Arc<LiveRules>) -> Self {
        self.live = live;
        self
    }

    /// Sets whether each change of a directory is durable when it is answered.
    #[must_use]
    pub(crate) fn syncing_names(mut self, syncs: bool) -> Self {
        self.syncs_names = syncs;
        self
    }

    /// Returns the interface for reporting changes that were made outside of the mount.
    pub(crate) fn changes(&self) -> Changes {
        self.changes.clone()
    }

    fn node(&self, node: NodeId) -> Result<Node> {
        if node == NodeId::ROOT {
            return Ok(Node {
                id: self.root,
                number: self.numbering.number(self.root).unwrap_or(node.0),
                listed: None,
            });
        }
        let listed = match self.numbering.meaning(node.0) {
            Meaning::File(id) => {
                return Ok(Node {
                    id,
                    number: node.0,
                    listed: None,
                });
            }
            Meaning::Listed => self.nodes.get(node.0).ok_or(Errno::STALE)?,
            // REQ-3
            Meaning::Nothing => return Err(Errno::STALE),
        };
        Ok(Node {
            id: listed.file(),
            number: node.0,
            listed: Some(listed),
        })
    }

    fn listed(dir: &Node, name: &[u8], child: FileId) -> Listed {
        if child.is_empty_subvolume_dir() {
            Listed::EmptySubvolumeDir {
                empty_dir: child,
                dir: dir.id,
                name: name.into(),
            }
        } else {
            Listed::File(child)
        }
    }

    /// Returns the displayed inode number of `name` in `dir`.
    fn shown_number(&self, dir: &Node, name: &[u8], child: FileId) -> u64 {
        self.numbering
            .number(child)
            .unwrap_or_else(|| Self::listed(dir, name, child).usual_number())
    }

    /// Returns the number of `name` in `dir`, as the node of one more lookup.
    fn look_up_number(&self, dir: &Node, name: &[u8], child: FileId, kind: FileKind) -> u64 {
        let number = self
            .numbering
            .number(child)
            .unwrap_or_else(|| self.nodes.look_up(Self::listed(dir, name, child)));
        if self.connection_flags.writable {
            self.known.add(number, kind);
        }
        number
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        let NodeId(number) = node;
        if self.known.forget(number, lookups) {
            self.unpin(number);
        }
        if self.numbering.meaning(number) == Meaning::Listed {
            self.nodes.forget(number, lookups);
        }
    }

    /// Forgets all nodes, as the kernel has forgotten everything.
    fn forget_all(&self) {
        for number in self.known.forget_all() {
            self.unpin(number);
        }
    }

    fn unpin(&self, number: u64) {
        if let (Ok(volume), Ok(node)) = (self.writing(), self.node(NodeId(number))) {
            volume.unpin(node.id);
        }
    }

    fn reachable(&self, child: FileId) -> Result<()> {
        // FUSE-3
        if child == self.root {
            return Err(Errno::LOOP);
        }
        Ok(())
    }

    fn entry_of(&self, number: u64, inode: &Inode) -> Entry {
        Entry {
            node: NodeId(number),
            generation: self.numbering.generation(number, inode.generation),
            attributes: Self::attributes_of(number, inode),
            ttl: FOREVER,
        }
    }

    fn attributes_of(number: u64, inode: &Inode) -> Attributes {
        let mut attr = inode.attr;
        attr.ino = number;
        Attributes { attr, ttl: FOREVER }
    }
}

impl<S: Source> Drop for Adapter<S> {
    fn drop(&mut self) {
        if let Ok(volume) = self.writing() {
            volume.set_lookup_refs(None);
        }
        self.forget_all();
    }
}

#[cfg(test)]
pub(crate) mod memory;
#[cfg(test)]
mod tests;

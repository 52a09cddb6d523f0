//! The nodes that the kernel knows: from the first entry that was sent for a node until the kernel has forgotten all
//! its lookups.
//!
//! The kernel may send requests for such a node whether it has a name or not, so the volume keeps its file
//! (`LookupRefs`). The kernel itself uses about twenty times the memory for a node.
//!
//! Invariants
//! - KNOWN-1: a node is in the table while it has entries that the kernel has not forgotten.
//! - KNOWN-2: a pinned node is held by the volume, and released when it leaves the table.
//! - KNOWN-3: a file is marked if the kernel may hold pages of it: if it was read or written through the page cache.
//! - KNOWN-4: a drop under way stays recorded when its node leaves the table. The kernel may look the file up again
//!   before the drop is delivered.
//!
//! Locks: one mutex for each shard, and below it the shard's `left_drops`, a leaf. The volume calls in with inode locks
//! held.
//! Not here: the encoding of numbers (`number`, `nodes`), and requests in service (`in_service`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::AtomicUsize;

use parking_lot::{Condvar, Mutex};
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::LookupRefs;
use ubtrfs_fuse_server::request::{FileKind, NodeId};

use super::drops::Drops;
use super::listing_ends::ListingEnds;
use super::nodes::Listed;
use super::number::{Meaning, Numbering};
use super::source::FileId;

mod in_service;

pub(super) use in_service::{Background, QuickWrite, Store, StoresBefore};
#[cfg(test)]
mod tests;

const SHARDS: usize = 64;

#[derive(Debug)]
struct Node {
    lookups: u64,
    /// The value of the capability counter when the file was last found without a capability; 0 means never.
    without_capability: u64,
    /// KNOWN-2
    is_pinned: bool,
    /// Whether it is a regular file, which may have pages in the kernel.
    is_file: bool,
    /// The ends of listings, for a directory that was listed.
    listing_ends: Option<Box<ListingEnds>>,
    /// KNOWN-3
    may_have_pages: bool,
    in_service: InService,
    /// `None`: nothing is recorded.
    drops: Option<Box<Drops>>,
}

/// The requests in service for one file.
#[derive(Debug, Default)]
struct InService {
    /// Reads that began since the last check, and earlier ones.
    reads: [u32; 2],
    /// The index in `reads` of reads that begin now.
    reads_now: usize,
    /// Buffered writes on threads that may not wait.
    quick_writes: u32,
    /// Threads that wait for the end of `quick_writes` to begin a drop.
    waiting_drops: u32,
    /// The numbers of writes of dirty pages.
    stores: Vec<u64>,
    /// The number of the store that began last.
    last_store: u64,
}

/// A hasher for node numbers. They are assigned by this mount in sequence, so nobody can choose colliding ones.
#[derive(Debug, Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Nodes = HashMap<u64, Node, BuildHasherDefault<NumberHasher>>;

#[derive(Debug, Default)]
struct Shard {
    nodes: Mutex<Nodes>,
    /// KNOWN-4: drops of nodes that are not in the table.
    left_drops: Mutex<HashMap<u64, Box<Drops>>>,
    /// Signals the end of a request that others wait for.
    served: Condvar,
}

#[derive(Debug)]
pub(super) struct KnownNodes {
    numbering: Numbering,
    shards: Vec<Shard>,
    /// The root of the mount, for which no entry is sent.
    root_number: u64,
    root_listing_ends: Mutex<ListingEnds>,
    /// Requests in service that the kernel may have sent as background requests, of all nodes.
    in_background: AtomicUsize,
}

impl KnownNodes {
    pub(super) fn new(numbering: Numbering, root: FileId) -> Self {
        Self {
            numbering,
            root_number: numbering.number(root).unwrap_or(NodeId::ROOT.0),
            root_listing_ends: Mutex::new(ListingEnds::new()),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            in_background: AtomicUsize::new(0),
        }
    }

    fn shard(&self, number: u64) -> &Shard {
        &self.shards[(number % SHARDS as u64) as usize]
    }

    /// Runs `work` on a node, if the kernel knows it.
    fn with<T>(&self, number: u64, work: impl FnOnce(&mut Node) -> T) -> Option<T> {
        self.shard(number).nodes.lock().get_mut(&number).map(work)
    }

    fn number(&self, id: FileId) -> u64 {
        let number = self.numbering.number(id);
        number.unwrap_or_else(|| Listed::File(id).usual_number())
    }

    /// Counts one more entry that is sent for a node.
    pub(super) fn add(&self, number: u64, kind: FileKind) {
        let mut nodes = self.shard(number).nodes.lock();
        let node = nodes.entry(number).or_insert(Node {
            lookups: 0,
            without_capability: 0,
            is_pinned: false,
            is_file: kind == FileKind::Regular,
            listing_ends: None,
            may_have_pages: false,
            in_service: InService::default(),
            // KNOWN-4
            drops: self.shard(number).left_drops.lock().remove(&number),
        });
        node.lookups += 1;
    }

    /// Subtracts lookups that the kernel has forgotten. Returns true if the node was pinned and must be unpinned.
    #[must_use]
    pub(super) fn forget(&self, number: u64, lookups: u64) -> bool {
        let mut nodes = self.shard(number).nodes.lock();
        let Entry::Occupied(mut node) = nodes.entry(number) else {
            return false;
        };
        // KNOWN-1
        if node.get().lookups > lookups {
            node.get_mut().lookups -= lookups;
            return false;
        }
        // FUSE-2
        let node = node.remove();
        // KNOWN-4
        if let Some(drops) = node.drops.filter(|drops| drops.is_under_way()) {
            self.shard(number).left_drops.lock().insert(number, drops);
        }
        node.is_pinned
    }

    /// Forgets all nodes, since the kernel is gone. Returns those to unpin.
    pub(super) fn forget_all(&self) -> Vec<u64> {
        let mut kept = Vec::new();
        for shard in &self.shards {
            let nodes = std::mem::take(&mut *shard.nodes.lock());
            let nodes = nodes.into_iter().filter(|(_, node)| node.is_pinned);
            kept.extend(nodes.map(|(number, _)| number));
        }
        kept
    }

    /// Returns whether the file was found to have no capability when the capability counter was `count`.
    pub(super) fn is_without_capability(&self, number: u64, count: u64) -> bool {
        self.with(number, |node| node.without_capability == count)
            .unwrap_or(false)
    }

    pub(super) fn note_without_capability(&self, number: u64, count: u64) {
        self.with(number, |node| node.without_capability = count);
    }

    /// Runs `work` on the ends of a directory's listings. Returns `None` if the kernel does not know the directory.
    pub(super) fn with_listing_ends<T>(
        &self,
        number: u64,
        work: impl FnOnce(&mut ListingEnds) -> T,
    ) -> Option<T> {
        if number == self.root_number {
            return Some(work(&mut self.root_listing_ends.lock()));
        }
        self.with(number, |node| {
            work(node.listing_ends.get_or_insert_default())
        })
    }

    /// Returns the regular files that a program may have mapped.
    pub(super) fn files(&self) -> Vec<NodeId> {
        let mut files = Vec::new();
        for shard in &self.shards {
            let nodes = shard.nodes.lock();
            // KNOWN-3
            let is_held = |node: &Node| node.is_file && node.may_have_pages;
            let nodes = nodes.iter().filter(|(_, node)| is_held(node));
            files.extend(nodes.map(|(&number, _)| NodeId(number)));
        }
        files
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.nodes.lock().len())
            .sum()
    }
}

impl LookupRefs for KnownNodes {
    fn knows(&self, id: FileId) -> bool {
        self.with(self.number(id), |_| ()).is_some()
    }

    fn pin(&self, id: FileId) -> bool {
        self.with(self.number(id), |node| {
            !std::mem::replace(&mut node.is_pinned, true)
        })
        .unwrap_or(false)
    }

    fn inodes_of(&self, subvolume: RootId) -> Vec<FileId> {
        let mut known = Vec::new();
        for shard in &self.shards {
            let nodes = shard.nodes.lock();
            let files = nodes.keys().map(|&number| self.numbering.meaning(number));
            known.extend(files.filter_map(|meaning| match meaning {
                Meaning::File(id) if id.root == subvolume => Some(id),
                _ => None,
            }));
        }
        known
    }
}

//! The nodes that the kernel knows: from the first entry that it was given of one until it has forgotten as many.
//!
//! It may ask for such a node whether it has a name or not, so the volume keeps the file of each (`LookupRefs`). The
//! kernel itself takes some twenty times the memory for a node.
//!
//! Invariants
//! - KNOWN-1: a node is in the table while entries were given for it that the kernel has not forgotten.
//! - KNOWN-2: a node that is marked as kept is held by the volume, and let go of when it leaves the table.
//! - KNOWN-3: a file that the kernel may hold pages of is marked so: one that was read or written through its cache.
//! - KNOWN-4: a drop that is under way stays noted when its node leaves the table. The kernel may look the file up anew
//!   before it hears of the drop.
//!
//! Locks: a mutex a shard, and below it that of its left drops, a leaf. The volume asks under the locks of inodes.
//! Not here: what numbers stand for (`number`, `nodes`), and which requests are in service (`in_service`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::AtomicUsize;

use parking_lot::{Condvar, Mutex};
use ubtrfs_engine::LookupRefs;
use ubtrfs_format::ids::RootId;
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
    /// The last count of changed capabilities at which the file was found to have none; 0: never.
    without_capability: u64,
    /// KNOWN-2
    is_pinned: bool,
    /// It may have pages in the kernel.
    is_file: bool,
    /// The ends of listings, for a directory that was listed.
    listing_ends: Option<Box<ListingEnds>>,
    /// KNOWN-3
    may_have_pages: bool,
    in_service: InService,
    /// None: nothing is noted.
    drops: Option<Box<Drops>>,
}

/// The requests of a file that are served at this moment.
#[derive(Debug, Default)]
struct InService {
    /// Those that began since the last look at them, and earlier ones.
    reads: [u32; 2],
    /// The index in `reads` of those that begin now.
    reads_now: usize,
    /// Buffered writes that are served by a thread which may not wait.
    quick_writes: u32,
    /// Threads that wait for the end of these to begin a drop.
    waiting_drops: u32,
    /// Writes of dirty pages, by their numbers.
    stores: Vec<u64>,
    /// The number of the last of these that began.
    last_store: u64,
}

/// Numbers are given out in turn: they cannot be chosen to collide.
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
    /// KNOWN-4: of nodes that are not in the table.
    left_drops: Mutex<HashMap<u64, Box<Drops>>>,
    /// A request that others wait for is served.
    served: Condvar,
}

#[derive(Debug)]
pub(super) struct KnownNodes {
    numbering: Numbering,
    shards: Vec<Shard>,
    /// The root of the mount, which no entry is given of.
    root_number: u64,
    root_listing_ends: Mutex<ListingEnds>,
    /// Requests in service that the kernel may have sent in the background, of all nodes.
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

    /// Does something with a node, if the kernel knows it.
    fn with<T>(&self, number: u64, work: impl FnOnce(&mut Node) -> T) -> Option<T> {
        self.shard(number).nodes.lock().get_mut(&number).map(work)
    }

    fn number(&self, id: FileId) -> u64 {
        let number = self.numbering.number(id);
        number.unwrap_or_else(|| Listed::File(id).usual_number())
    }

    /// Counts one more entry of a node that the kernel is given.
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

    /// Returns whether a node's file was found to have no capability when so many had changed.
    pub(super) fn is_without_capability(&self, number: u64, count: u64) -> bool {
        self.with(number, |node| node.without_capability == count)
            .unwrap_or(false)
    }

    pub(super) fn note_without_capability(&self, number: u64, count: u64) {
        self.with(number, |node| node.without_capability = count);
    }

    /// Does something with the ends of a directory's listings; None: the kernel does not know the directory.
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

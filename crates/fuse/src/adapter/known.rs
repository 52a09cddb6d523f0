//! The nodes that the kernel knows: from the first entry that it was given of one until it has forgotten as many.
//!
//! It may ask for such a node whether it has a name or not, so the volume keeps the file of each (`LookupRefs`). The
//! kernel itself takes some twenty times the memory for a node.
//!
//! Invariants
//! - KNOWN-1: a node is in the table while entries were given for it that the kernel has not forgotten.
//! - KNOWN-2: a node that is marked as kept is held by the volume, and let go of when it leaves the table.
//! - KNOWN-3: `dropped` counts the nodes whose pages are not `Pages::Kept`.
//!
//! Locks: a mutex a shard, leaves. The volume asks under the locks of inodes.
//! Not here: what numbers stand for (`number`, `nodes`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use ubtrfs_engine::LookupRefs;
use ubtrfs_format::ids::RootId;
use ubtrfs_fuse_server::request::{FileKind, NodeId};

use super::listing_ends::ListingEnds;
use super::nodes::Listed;
use super::number::{Meaning, Numbering};
use super::source::FileId;

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
    pages: Pages,
}

/// The state of a file's cached pages since the last buffered write.
///
/// The kernel copies such a write into a page, unlocks the page, and sends the write. If the page is dropped meanwhile,
/// a read that is served before the write brings the old contents back, and they stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    Kept,
    /// The kernel was told to drop some.
    Dropped,
    /// And some were read since.
    Reread,
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

type Shard = HashMap<u64, Node, BuildHasherDefault<NumberHasher>>;

#[derive(Debug)]
pub(super) struct KnownNodes {
    numbering: Numbering,
    shards: Vec<Mutex<Shard>>,
    /// The root of the mount, which no entry is given of.
    root_number: u64,
    root_listing_ends: Mutex<ListingEnds>,
    /// KNOWN-3
    dropped: AtomicUsize,
}

impl KnownNodes {
    pub(super) fn new(numbering: Numbering, root: FileId) -> Self {
        Self {
            numbering,
            root_number: numbering.number(root).unwrap_or(NodeId::ROOT.0),
            root_listing_ends: Mutex::new(ListingEnds::new()),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            dropped: AtomicUsize::new(0),
        }
    }

    fn shard(&self, number: u64) -> &Mutex<Shard> {
        &self.shards[(number % SHARDS as u64) as usize]
    }

    fn number(&self, id: FileId) -> u64 {
        let number = self.numbering.number(id);
        number.unwrap_or_else(|| Listed::File(id).usual_number())
    }

    /// The kernel is given one more entry of a node.
    pub(super) fn add(&self, number: u64, kind: FileKind) {
        let mut shard = self.shard(number).lock();
        let node = shard.entry(number).or_insert(Node {
            lookups: 0,
            without_capability: 0,
            is_pinned: false,
            is_file: kind == FileKind::Regular,
            listing_ends: None,
            pages: Pages::Kept,
        });
        node.lookups += 1;
    }

    /// The kernel has forgotten so many. True: the node was kept, and is to be let go of.
    #[must_use]
    pub(super) fn forget(&self, number: u64, lookups: u64) -> bool {
        let mut shard = self.shard(number).lock();
        let Entry::Occupied(mut node) = shard.entry(number) else {
            return false;
        };
        // KNOWN-1
        if node.get().lookups > lookups {
            node.get_mut().lookups -= lookups;
            return false;
        }
        // FUSE-2
        let node = node.remove();
        self.count(node.pages, Pages::Kept);
        node.is_pinned
    }

    /// The kernel is gone. Returns those to be let go of.
    pub(super) fn forget_all(&self) -> Vec<u64> {
        let mut kept = Vec::new();
        for shard in &self.shards {
            let nodes = std::mem::take(&mut *shard.lock());
            for node in nodes.values() {
                self.count(node.pages, Pages::Kept);
            }
            let nodes = nodes.into_iter().filter(|(_, node)| node.is_pinned);
            kept.extend(nodes.map(|(number, _)| number));
        }
        kept
    }

    /// Whether a node's file was found to have no capability when so many had changed.
    pub(super) fn is_without_capability(&self, number: u64, count: u64) -> bool {
        let shard = self.shard(number).lock();
        shard
            .get(&number)
            .is_some_and(|node| node.without_capability == count)
    }

    pub(super) fn note_without_capability(&self, number: u64, count: u64) {
        if let Some(node) = self.shard(number).lock().get_mut(&number) {
            node.without_capability = count;
        }
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
        let mut shard = self.shard(number).lock();
        let ends = &mut shard.get_mut(&number)?.listing_ends;
        Some(work(ends.get_or_insert_default()))
    }

    /// KNOWN-3, after pages have become something else.
    fn count(&self, from: Pages, to: Pages) {
        match (from == Pages::Kept, to == Pages::Kept) {
            (true, false) => self.dropped.fetch_add(1, Ordering::SeqCst),
            (false, true) => self.dropped.fetch_sub(1, Ordering::SeqCst),
            _ => 0,
        };
    }

    /// Has the pages of a node go from one state into another, if they are in it. True: they were.
    fn change_pages(&self, number: u64, from: Pages, to: Pages) -> bool {
        let mut shard = self.shard(number).lock();
        let Some(node) = shard.get_mut(&number).filter(|node| node.pages == from) else {
            return false;
        };
        node.pages = to;
        self.count(from, to);
        true
    }

    fn were_pages_dropped(&self) -> bool {
        self.dropped.load(Ordering::SeqCst) != 0
    }

    /// The kernel is being told to drop pages of a file, or has just been: both are to be noted.
    pub(super) fn note_drop(&self, number: u64) {
        self.change_pages(number, Pages::Kept, Pages::Dropped);
    }

    /// Before a file is read.
    pub(super) fn note_read(&self, number: u64) {
        if self.were_pages_dropped() {
            self.change_pages(number, Pages::Dropped, Pages::Reread);
        }
    }

    /// Whether a buffered write may be older than the drop of its page, and a read between them.
    pub(super) fn was_reread(&self, number: u64) -> bool {
        let shard = |number| self.shard(number).lock();
        self.were_pages_dropped()
            && shard(number)
                .get(&number)
                .is_some_and(|node| node.pages == Pages::Reread)
    }

    /// A buffered write is about to be answered. The kernel begins the file's next one after that: so only this one can
    /// be older than drops that are over. True: a read may have been served between the two.
    pub(super) fn take_reread(&self, number: u64) -> bool {
        self.were_pages_dropped()
            && !self.change_pages(number, Pages::Dropped, Pages::Kept)
            && self.change_pages(number, Pages::Reread, Pages::Kept)
    }

    /// The regular files.
    pub(super) fn files(&self) -> Vec<NodeId> {
        let mut files = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let nodes = shard.iter().filter(|(_, node)| node.is_file);
            files.extend(nodes.map(|(&number, _)| NodeId(number)));
        }
        files
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

impl LookupRefs for KnownNodes {
    fn knows(&self, id: FileId) -> bool {
        let number = self.number(id);
        self.shard(number).lock().contains_key(&number)
    }

    fn pin(&self, id: FileId) -> bool {
        let number = self.number(id);
        match self.shard(number).lock().get_mut(&number) {
            Some(node) => !std::mem::replace(&mut node.is_pinned, true),
            None => false,
        }
    }

    fn inodes_of(&self, subvolume: RootId) -> Vec<FileId> {
        let mut known = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let files = shard.keys().map(|&number| self.numbering.meaning(number));
            known.extend(files.filter_map(|meaning| match meaning {
                Meaning::File(id) if id.root == subvolume => Some(id),
                _ => None,
            }));
        }
        known
    }
}

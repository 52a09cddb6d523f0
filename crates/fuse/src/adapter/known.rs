//! The nodes that the kernel knows: from the first entry that it was given of one until it has forgotten as many.
//!
//! It may ask for such a node whether it has a name or not, so the volume keeps the file of each (`LookupRefs`). The
//! kernel itself takes some twenty times the memory for a node.
//!
//! Invariants
//! - KNOWN-1: a node is in the table while entries were given for it that the kernel has not forgotten.
//! - KNOWN-2: a node that is marked as kept is held by the volume, and let go of when it leaves the table.
//! - KNOWN-3: `dropped` counts the nodes whose pages are not `Pages::Kept`.
//! - KNOWN-4: pages are not `Pages::Kept` while the kernel is being told to drop some.
//!
//! Locks: a mutex a shard. The notifier's lock is taken below it, and no other. The volume asks under the locks of inodes.
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
    /// Drops of pages that are under way (KNOWN-4).
    drops: u32,
    /// A notice was left to the notifier, which may tell the kernel at any time (KNOWN-4).
    is_late: bool,
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
    /// And some were read since, all of them within this range.
    Reread(Span),
}

/// A range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Span {
    pub(super) fn new(offset: u64, len: u64) -> Self {
        Self {
            start: offset,
            end: offset.saturating_add(len),
        }
    }

    /// Returns the shortest range that contains both.
    fn over(self, other: Self) -> Self {
        Self {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }

    /// Returns the common part, if there is one.
    fn common(self, other: Self) -> Option<Self> {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (start < end).then_some(Self { start, end })
    }
}

impl Pages {
    /// Returns the part of a range that was read again.
    fn reread_of(self, range: Span) -> Option<Span> {
        match self {
            Pages::Reread(read) => read.common(range),
            Pages::Kept | Pages::Dropped => None,
        }
    }
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

    /// Counts one more entry of a node that the kernel is given.
    pub(super) fn add(&self, number: u64, kind: FileKind) {
        let mut shard = self.shard(number).lock();
        let node = shard.entry(number).or_insert(Node {
            lookups: 0,
            without_capability: 0,
            is_pinned: false,
            is_file: kind == FileKind::Regular,
            listing_ends: None,
            pages: Pages::Kept,
            drops: 0,
            is_late: false,
        });
        node.lookups += 1;
    }

    /// Subtracts lookups that the kernel has forgotten. Returns true if the node was pinned and must be unpinned.
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

    /// Forgets all nodes, since the kernel is gone. Returns those to unpin.
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

    /// Returns whether a node's file was found to have no capability when so many had changed.
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

    /// Changes the state of a node's pages.
    fn set_pages(&self, node: &mut Node, pages: Pages) {
        self.count(node.pages, pages);
        node.pages = pages;
    }

    fn were_pages_dropped(&self) -> bool {
        self.dropped.load(Ordering::SeqCst) != 0
    }

    /// Notes that the kernel is about to be asked to drop pages of a file, at a time when it may be sending buffered
    /// writes.
    pub(super) fn begin_drop(&self, number: u64) {
        if let Some(node) = self.shard(number).lock().get_mut(&number) {
            node.drops += 1;
            self.note_dropped(node);
        }
    }

    /// Ends `begin_drop`; `is_sent` is false if the notice waits.
    pub(super) fn end_drop(&self, number: u64, is_sent: bool) {
        if let Some(node) = self.shard(number).lock().get_mut(&number) {
            // The kernel may have forgotten the node meanwhile, and looked it up again.
            node.drops = node.drops.saturating_sub(1);
            node.is_late |= !is_sent;
            self.note_dropped(node);
        }
    }

    /// Notes that the notifier will ask the kernel to drop pages of a file.
    pub(super) fn note_late_drop(&self, number: u64) {
        if let Some(node) = self.shard(number).lock().get_mut(&number) {
            node.is_late = true;
            self.note_dropped(node);
        }
    }

    fn note_dropped(&self, node: &mut Node) {
        if node.pages == Pages::Kept {
            self.set_pages(node, Pages::Dropped);
        }
    }

    /// Notes that a part of a file is about to be read.
    pub(super) fn note_read(&self, number: u64, range: Span) {
        if !self.were_pages_dropped() {
            return;
        }
        if let Some(node) = self.shard(number).lock().get_mut(&number) {
            let pages = match node.pages {
                Pages::Kept => Pages::Kept,
                Pages::Dropped => Pages::Reread(range),
                Pages::Reread(before) => Pages::Reread(before.over(range)),
            };
            self.set_pages(node, pages);
        }
    }

    /// Returns whether a buffered write of a range may be older than the drop of its page, and a read between them.
    pub(super) fn was_reread(&self, number: u64, range: Span) -> bool {
        let shard = |number| self.shard(number).lock();
        self.were_pages_dropped()
            && shard(number)
                .get(&number)
                .is_some_and(|node| node.pages.reread_of(range).is_some())
    }

    /// Returns the part of a buffered write for which a read may have been served between the drop and the write. The
    /// write is about to be answered. The kernel begins the file's next one after that: so only this one can be older
    /// than drops that are over. `has_sent`: whether the notifier has no notice left to send.
    pub(super) fn take_reread(
        &self,
        number: u64,
        range: Span,
        has_sent: impl Fn() -> bool,
    ) -> Option<Span> {
        if !self.were_pages_dropped() {
            return None;
        }
        let mut shard = self.shard(number).lock();
        let node = shard.get_mut(&number)?;
        let reread = node.pages.reread_of(range);
        node.is_late = node.is_late && !has_sent();
        // KNOWN-4
        if node.drops == 0 && !node.is_late {
            self.set_pages(node, Pages::Kept);
        }
        reread
    }

    /// Returns the regular files.
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

//! The nodes that the kernel knows: from the first entry that it was given of one until it has forgotten as many.
//!
//! It may ask for such a node whether it has a name or not, so the volume keeps the file of each (`Keeper`). The
//! kernel itself takes some twenty times the memory for a node.
//!
//! Invariants
//! - KNOWN-1: a node is in the table while entries were given for it that the kernel has not forgotten.
//! - KNOWN-2: a node that is marked as kept is held by the volume, and let go of when it leaves the table.
//!
//! Locks: a mutex a shard, leaves. The volume asks under the locks of inodes.
//! Not here: what numbers stand for (`number`, `nodes`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use parking_lot::Mutex;
use ubtrfs_engine::Keeper;
use ubtrfs_format::ids::RootId;

use super::nodes::Listed;
use super::number::{Meaning, Numbering};
use super::source::FileId;
use crate::request::{FileKind, NodeId};

const SHARDS: usize = 64;

#[derive(Debug)]
struct Node {
    lookups: u64,
    /// The last count of changed capabilities at which the file was found to have none; 0: never.
    without_capability: u64,
    /// KNOWN-2
    is_kept: bool,
    /// It may have pages in the kernel.
    is_file: bool,
}

/// Numbers are given out in turn: nobody chooses them to collide.
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
}

impl KnownNodes {
    pub(super) fn new(numbering: Numbering) -> Self {
        Self {
            numbering,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
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
            is_kept: false,
            is_file: kind == FileKind::Regular,
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
        if node.get().lookups > lookups {
            node.get_mut().lookups -= lookups;
            return false;
        }
        node.remove().is_kept
    }

    /// The kernel is gone. Returns those to be let go of.
    pub(super) fn forget_all(&self) -> Vec<u64> {
        let mut kept = Vec::new();
        for shard in &self.shards {
            let nodes = std::mem::take(&mut *shard.lock());
            let nodes = nodes.into_iter().filter(|(_, node)| node.is_kept);
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

impl Keeper for KnownNodes {
    fn knows(&self, id: FileId) -> bool {
        let number = self.number(id);
        self.shard(number).lock().contains_key(&number)
    }

    fn keep(&self, id: FileId) -> bool {
        let number = self.number(id);
        match self.shard(number).lock().get_mut(&number) {
            Some(node) => !std::mem::replace(&mut node.is_kept, true),
            None => false,
        }
    }

    fn known_of(&self, subvolume: RootId) -> Vec<FileId> {
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

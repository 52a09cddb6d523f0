//! Nodes whose number does not encode their file.
//!
//! Invariants
//! - NODES-1: a node is listed while the kernel holds lookups of it, and no longer.
//! - NODES-2: while it is listed, a node has one number and a number one node.
//!
//! The number is a hash of the node. So it is the same the next time, unless another listed node has taken it (one
//! chance in 2^60 for a pair).
//!
//! Locks: one mutex, a leaf; nothing is read while it is held.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use parking_lot::Mutex;

use super::number::Numbering;
use super::source::FileId;

/// The kind of a listed node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Listed {
    /// A file whose numbers are too large to be packed.
    File(FileId),
    /// An empty directory in place of a subvolume that was not copied with its snapshot. All such directories in one
    /// parent share `empty_dir`; the name distinguishes them.
    EmptySubvolumeDir {
        empty_dir: FileId,
        dir: FileId,
        name: Box<[u8]>,
    },
}

impl Listed {
    /// Returns the file whose attributes the node shows.
    pub(super) fn file(&self) -> FileId {
        match self {
            Self::File(id) => *id,
            Self::EmptySubvolumeDir { empty_dir, .. } => *empty_dir,
        }
    }

    /// Hashes to the same value in every run, unlike the standard library's hashers.
    fn hash(&self) -> u64 {
        let mut hash = Fnv::new();
        match self {
            Self::File(id) => hash.file(*id),
            Self::EmptySubvolumeDir { dir, name, .. } => {
                hash.file(*dir);
                hash.bytes(name);
            }
        }
        hash.finish()
    }

    /// Returns the number of the node unless another node has it. Directory listings display it.
    pub(super) fn usual_number(&self) -> u64 {
        Numbering::listed(self.hash())
    }
}

struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn file(&mut self, id: FileId) {
        self.bytes(&id.root.0.to_le_bytes());
        self.bytes(&id.ino.0.to_le_bytes());
    }

    /// Mixes the hash. FNV barely changes the top bits for short inputs, and the top four are cut off.
    fn finish(self) -> u64 {
        let folded = self.0 ^ self.0 >> 32;
        folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ folded >> 29
    }
}

#[derive(Debug)]
struct Node {
    what: Listed,
    lookups: u64,
}

#[derive(Debug, Default)]
struct Table {
    by_number: HashMap<u64, Node>,
    numbers: HashMap<Listed, u64>,
}

#[derive(Debug, Default)]
pub(super) struct NodeTable {
    table: Mutex<Table>,
}

impl NodeTable {
    /// Counts one lookup, and returns the number.
    pub(super) fn look_up(&self, what: Listed) -> u64 {
        let table = &mut *self.table.lock();
        if let Some(&number) = table.numbers.get(&what) {
            if let Some(node) = table.by_number.get_mut(&number) {
                // REQ-2
                node.lookups = node.lookups.saturating_add(1);
            }
            return number;
        }
        let mut hash = what.hash();
        loop {
            let number = Numbering::listed(hash);
            // NODES-2
            if let Entry::Vacant(free) = table.by_number.entry(number) {
                free.insert(Node {
                    what: what.clone(),
                    lookups: 1,
                });
                table.numbers.insert(what, number);
                return number;
            }
            hash = hash.wrapping_add(1);
        }
    }

    pub(super) fn get(&self, number: u64) -> Option<Listed> {
        self.table
            .lock()
            .by_number
            .get(&number)
            .map(|node| node.what.clone())
    }

    pub(super) fn forget(&self, number: u64, lookups: u64) {
        let table = &mut *self.table.lock();
        let Entry::Occupied(mut node) = table.by_number.entry(number) else {
            return;
        };
        // NODES-1
        if node.get().lookups > lookups {
            node.get_mut().lookups -= lookups;
        } else {
            table.numbers.remove(&node.remove().what);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let table = self.table.lock();
        assert_eq!(table.by_number.len(), table.numbers.len());
        table.numbers.len()
    }
}

#[cfg(test)]
mod tests;

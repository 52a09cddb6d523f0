//! Facts about extents, from the extent tree on one side and from all trees on the other.
//!
//! Both sides state which tree blocks exist and which references each extent has. The first pass only compares the sides as
//! sums. A second pass records the facts of the buckets that differ, sorts them and compares them one by one
//! (`references`).
//!
//! Invariants
//! - FACT-1: all facts about one extent are in one bucket.

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::KeyType;
use ubtrfs_format::node::Node;
use ubtrfs_spill::Sorter;

use crate::error::CheckError;
use crate::fingerprint::{Hasher, Sums};

const BUCKETS: usize = 4096;

/// The source of a fact.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Side {
    ExtentTree,
    Trees,
}

/// A fact about an extent. The order is the order of the sorted records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fact {
    /// The extent is a tree block.
    Block {
        level: u8,
        generation: u64,
    },
    /// The extent is data. The extent tree states this once, the trees with each reference.
    Data,
    TreeRef {
        root: u64,
    },
    SharedBlockRef {
        parent: u64,
    },
    DataRef {
        root: u64,
        inode: u64,
        offset: u64,
    },
    SharedDataRef {
        parent: u64,
    },
}

impl Fact {
    /// Returns the kind and three numbers.
    pub(crate) fn words(self) -> [u64; 4] {
        match self {
            Fact::Block { level, generation } => [0, u64::from(level), generation, 0],
            Fact::Data => [1, 0, 0, 0],
            Fact::TreeRef { root } => [2, root, 0, 0],
            Fact::SharedBlockRef { parent } => [3, parent, 0, 0],
            Fact::DataRef {
                root,
                inode,
                offset,
            } => [4, root, inode, offset],
            Fact::SharedDataRef { parent } => [5, parent, 0, 0],
        }
    }

    pub(crate) fn from_words([kind, a, b, c]: [u64; 4]) -> Fact {
        match kind {
            0 => Fact::Block {
                level: a as u8,
                generation: b,
            },
            1 => Fact::Data,
            2 => Fact::TreeRef { root: a },
            3 => Fact::SharedBlockRef { parent: a },
            4 => Fact::DataRef {
                root: a,
                inode: b,
                offset: c,
            },
            _ => Fact::SharedDataRef { parent: a },
        }
    }
}

/// bytenr, the fact, side and count, length.
pub(crate) type FactRecord = [u64; 7];

/// The collection of all facts.
#[derive(Debug)]
pub(crate) struct Facts {
    hasher: Hasher,
    sums: Sums,
    /// Used in the second pass.
    records: Option<Sorter<[u64; 7]>>,
    /// The bytes of data extents: their full sizes, and the parts used by files.
    data_bytes: (u64, u64),
}

impl Facts {
    pub(crate) fn new() -> Facts {
        Facts {
            hasher: Hasher::new(),
            sums: Sums::new(BUCKETS),
            records: None,
            data_bytes: (0, 0),
        }
    }

    pub(crate) fn all_equal(&self) -> bool {
        self.sums.all_equal()
    }

    /// Returns the bytes of data extents: their full sizes, and the parts used by files.
    pub(crate) fn data_bytes(&self) -> (u64, u64) {
        self.data_bytes
    }

    /// Starts recording the facts of buckets that differ.
    pub(crate) fn start_recording(&mut self, sorter: Sorter<[u64; 7]>) {
        self.records = Some(sorter);
    }

    pub(crate) fn take_records(&mut self) -> Option<Sorter<[u64; 7]>> {
        self.records.take()
    }

    /// Adds a fact from one side. `length` is the size of data according to that side; 0 for blocks.
    pub(crate) fn add(
        &mut self,
        side: Side,
        bytenr: u64,
        length: u64,
        fact: Fact,
        count: u64,
    ) -> Result<(), CheckError> {
        // FACT-1
        let bucket = self.hasher.words([bytenr]);
        let [kind, a, b, c] = fact.words();
        if let Some(records) = &mut self.records {
            if self.sums.differs(bucket) {
                let side_and_count = (side as u64) << 32 | count.min(u64::from(u32::MAX));
                records.push([bytenr, kind, a, b, c, side_and_count, length])?;
            }
            return Ok(());
        }
        if fact == Fact::Data {
            return Ok(());
        }
        let hash = self.hasher.words([bytenr, length, kind, a, b, c]);
        let hash = hash.wrapping_mul(count);
        match side {
            Side::ExtentTree => self.sums.take(bucket, hash),
            Side::Trees => self.sums.add(bucket, hash),
        }
        Ok(())
    }

    /// Adds the existence of a block and its references as facts. If `is_full`, the block itself is the parent of its
    /// references, otherwise they belong to the tree that owns the block.
    pub(crate) fn tell_block(
        &mut self,
        node: Node<'_>,
        first_slot: usize,
        is_full: bool,
    ) -> Result<(), CheckError> {
        let bytenr = node.bytenr().0;
        let owner = node.owner().0;
        let block = Fact::Block {
            level: node.level(),
            generation: node.generation().0,
        };
        self.add(Side::Trees, bytenr, 0, block, 1)?;
        let child = if is_full {
            Fact::SharedBlockRef { parent: bytenr }
        } else {
            Fact::TreeRef { root: owner }
        };
        for ptr in node.ptrs().get(first_slot..).unwrap_or_default() {
            self.add(Side::Trees, ptr.blockptr.get(), 0, child, 1)?;
        }
        for (slot, head) in node.heads().iter().enumerate() {
            if head.key.item_type != KeyType::EXTENT_DATA.0 {
                continue;
            }
            let Some((key, bytes)) = node.item(slot) else {
                continue;
            };
            let Some(FileExtent::Regular { body, .. }) = FileExtent::decode(bytes) else {
                continue;
            };
            let Some(disk) = body.disk() else { continue };
            let data = if is_full {
                Fact::SharedDataRef { parent: bytenr }
            } else {
                Fact::DataRef {
                    root: owner,
                    inode: key.objectid,
                    offset: key.offset.wrapping_sub(body.offset.get()),
                }
            };
            let length = body.disk_num_bytes.get();
            if self.records.is_none() {
                let (allocated, referenced) = &mut self.data_bytes;
                *allocated = allocated.saturating_add(length);
                *referenced = referenced.saturating_add(body.num_bytes.get());
            }
            self.add(Side::Trees, disk.0, length, data, 1)?;
        }
        Ok(())
    }

    /// Adds the fact that the root of a tree is at `bytenr`.
    pub(crate) fn tell_root(&mut self, tree: RootId, bytenr: u64) -> Result<(), CheckError> {
        let fact = match tree {
            // The root of a relocation tree refers to itself.
            RootId::TREE_RELOC => Fact::SharedBlockRef { parent: bytenr },
            tree => Fact::TreeRef { root: tree.0 },
        };
        self.add(Side::Trees, bytenr, 0, fact, 1)
    }
}

#[cfg(test)]
mod tests {
    use ubtrfs_spill::ScratchDir;

    use super::*;

    fn tell_all(facts: &mut Facts) {
        for bytenr in (0..BUCKETS as u64 * 4).map(|number| number << 12) {
            for root in 5..15 {
                // One extent has an additional reference on one side.
                let count = if (bytenr, root) == (7 << 12, 9) { 2 } else { 1 };
                let fact = Fact::TreeRef { root };
                facts.add(Side::ExtentTree, bytenr, 0, fact, count).unwrap();
                facts.add(Side::Trees, bytenr, 0, fact, 1).unwrap();
            }
        }
    }

    /// FACT-1
    #[test]
    fn all_facts_of_an_extent_that_differs_are_recorded() {
        let mut facts = Facts::new();
        tell_all(&mut facts);
        assert!(!facts.all_equal());
        facts.start_recording(Sorter::new(&ScratchDir::named("/tmp"), 1 << 20));
        tell_all(&mut facts);
        let mut sorted = facts.take_records().unwrap().finish().unwrap();
        let mut of_extent = 0;
        while let Some([bytenr, ..]) = sorted.next_record().unwrap() {
            of_extent += usize::from(bytenr == 7 << 12);
        }
        assert_eq!(of_extent, 20);
    }
}

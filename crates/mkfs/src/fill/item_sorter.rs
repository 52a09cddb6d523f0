//! An external sort of the items of several trees, by tree and key.
//!
//! Items with the same key are directory entries with colliding names, and are joined into one item, in the order in
//! which they were pushed.
//!
//! Invariants
//! - ITEMSORT-1: the items of a record have the same tree and objectid, and ascend. No other record has a key between
//!   its first and its last.
//! - ITEMSORT-2: the result depends on the pushed records, not on the budget.

use std::cmp::Ordering;
use std::io;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_spill::{Position, RunReader, ScratchDir, SortRecord, Sorted, Sorter};

use crate::error::MkfsError;
use crate::files::Push;

#[cfg(test)]
mod tests;

/// Items of one objectid, usually an inode.
#[derive(Debug)]
pub(super) struct Record {
    tree: RootId,
    objectid: u64,
    /// Type, offset, length and data of each item.
    items: Vec<u8>,
}

const ITEM_HEAD_BYTES: usize = 1 + 8 + 4;

impl Record {
    pub(super) fn new(tree: RootId, objectid: u64) -> Record {
        Record {
            tree,
            objectid,
            items: Vec::new(),
        }
    }

    pub(super) fn item(&mut self, item_type: KeyType, offset: u64, data: &[&[u8]]) {
        let len: usize = data.iter().map(|part| part.len()).sum();
        self.items.push(item_type.0);
        self.items.extend_from_slice(&offset.to_le_bytes());
        self.items.extend_from_slice(&(len as u32).to_le_bytes());
        for part in data {
            self.items.extend_from_slice(part);
        }
    }

    pub(super) fn append(&mut self, other: &Record) {
        self.items.extend_from_slice(&other.items);
    }

    pub(super) fn len_bytes(&self) -> usize {
        self.items.len()
    }

    /// Clears the record, for another inode.
    pub(super) fn reset(&mut self, tree: RootId, objectid: u64) {
        *self = Record {
            tree,
            objectid,
            items: std::mem::take(&mut self.items),
        };
        self.items.clear();
    }
}

/// Splits off the first item: its type and offset, its data, and the rest.
fn split_item(items: &[u8]) -> Option<(KeyType, u64, &[u8], &[u8])> {
    let (head, rest) = items.split_first_chunk::<ITEM_HEAD_BYTES>()?;
    let [item_type, offset @ .., l0, l1, l2, l3] = *head;
    let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    let (data, rest) = rest.split_at_checked(len)?;
    Some((KeyType(item_type), u64::from_le_bytes(offset), data, rest))
}

/// The sort key of a record. Its items are the tail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    tree: u64,
    objectid: u64,
    item_type: u8,
    offset: u64,
}

impl Rank {
    fn of(record: &Record) -> Rank {
        // ITEMSORT-1: the key of the first item determines the order of records.
        let (item_type, offset, _, _) = split_item(&record.items).unwrap_or_default();
        Rank {
            tree: record.tree.0,
            objectid: record.objectid,
            item_type: item_type.0,
            offset,
        }
    }
}

impl SortRecord for Rank {
    type Tail = Position;

    fn compare<'t>(&self, other: &Rank, _: impl FnOnce() -> (&'t [u8], &'t [u8])) -> Ordering {
        self.cmp(other)
    }

    fn group(&self) -> u64 {
        self.tree
    }

    fn write(&self, out: &mut Vec<u8>) {
        [self.tree, self.objectid, self.item_type.into(), self.offset].write(out);
    }

    fn read(from: &mut RunReader) -> io::Result<Rank> {
        let [tree, objectid, item_type, offset] = SortRecord::read(from)?;
        Ok(Rank {
            tree,
            objectid,
            item_type: item_type as u8,
            offset,
        })
    }
}

#[derive(Debug)]
pub(super) struct ItemSorter {
    sorter: Sorter<Rank>,
}

impl ItemSorter {
    pub(super) fn new(scratch_dir: &ScratchDir, budget_bytes: usize) -> ItemSorter {
        ItemSorter {
            sorter: Sorter::new(scratch_dir, budget_bytes),
        }
    }

    pub(super) fn push(&mut self, record: &Record) -> Result<(), MkfsError> {
        if record.items.is_empty() {
            return Ok(());
        }
        // ITEMSORT-2: equal ranks stay in their order.
        let pushed = self.sorter.push_with_tail(Rank::of(record), &record.items);
        pushed.map_err(MkfsError::Scratch)
    }

    pub(super) fn finish(self) -> Result<SortedItems, MkfsError> {
        let records = self.sorter.finish().map_err(MkfsError::Scratch)?;
        Ok(SortedItems { records })
    }
}

/// The sorted items of a sorter. They can be read several times.
#[derive(Debug)]
pub(super) struct SortedItems {
    records: Sorted<Rank>,
}

impl SortedItems {
    /// Pushes the items of a tree in key order.
    pub(super) fn each(&self, tree: RootId, push: &mut Push<'_>) -> Result<(), MkfsError> {
        let mut joiner = Joiner { held: None, push };
        let mut records = self.records.group(tree.0).map_err(MkfsError::Scratch)?;
        while let Some((rank, items)) = records.next_with_tail().map_err(MkfsError::Scratch)? {
            joiner.record(rank.objectid, items)?;
        }
        joiner.finish()
    }
}

/// Joins directory entries with colliding names into one item.
struct Joiner<'p, 'q> {
    held: Option<(Key, Vec<u8>)>,
    push: &'p mut Push<'q>,
}

impl Joiner<'_, '_> {
    fn record(&mut self, objectid: u64, mut items: &[u8]) -> Result<(), MkfsError> {
        while let Some((item_type, offset, data, rest)) = split_item(items) {
            self.item(Key::new(objectid, item_type, offset), data)?;
            items = rest;
        }
        Ok(())
    }

    fn item(&mut self, key: Key, data: &[u8]) -> Result<(), MkfsError> {
        if let Some((held, bytes)) = &mut self.held {
            if *held == key {
                bytes.extend_from_slice(data);
                return Ok(());
            }
            (self.push)(*held, bytes)?;
            self.held = None;
        }
        match key.item_type {
            KeyType::DIR_ITEM => {
                self.held = Some((key, data.to_vec()));
                Ok(())
            }
            _ => (self.push)(key, data),
        }
    }

    fn finish(self) -> Result<(), MkfsError> {
        match self.held {
            Some((key, data)) => (self.push)(key, &data),
            None => Ok(()),
        }
    }
}

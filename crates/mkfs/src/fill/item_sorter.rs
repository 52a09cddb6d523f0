//! An external sort of the items of several trees, by tree and key.
//!
//! Items beyond the budget are sorted and written to a log as a run; reading merges the runs. Items with the same key
//! are directory entries with colliding names, and are joined into one item, in the order in which they were pushed.
//!
//! Invariants
//! - ITEMSORT-1: the items of a record have the same tree and objectid, and ascend. No other record has a key between
//!   its first and its last.
//! - ITEMSORT-2: the result depends on the pushed records, not on the budget.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::{Key, KeyType};

use super::arena::{Arena, Position};
use super::byte_log::{ByteLog, LogReader};
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
const RECORD_HEAD_BYTES: usize = 4 + 8 + 8;

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

/// The sort key of a record: tree, objectid and type; offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank(u128, u64);

impl Rank {
    fn of(tree: RootId, objectid: u64, items: &[u8]) -> Rank {
        // ITEMSORT-1: the key of the first item determines the order of records.
        let (item_type, offset, _, _) = split_item(items).unwrap_or_default();
        let high = u128::from(tree.0) << 72 | u128::from(objectid) << 8 | u128::from(item_type.0);
        Rank(high, offset)
    }

    fn tree(self) -> RootId {
        RootId((self.0 >> 72) as u64)
    }
}

#[derive(Debug)]
pub(super) struct ItemSorter {
    arena: Arena,
    /// Ranks of the records in the arena, with their positions.
    index: Vec<(Rank, Position)>,
    budget_bytes: usize,
    log: ByteLog,
    runs: Vec<Run>,
}

/// Sorted records in the log.
#[derive(Debug)]
struct Run {
    /// The range of each tree's records.
    trees: Vec<(RootId, Range<u64>)>,
}

impl ItemSorter {
    pub(super) fn new(scratch_dir: &Path, budget_bytes: usize) -> ItemSorter {
        ItemSorter {
            arena: Arena::default(),
            index: Vec::new(),
            budget_bytes,
            log: ByteLog::new(scratch_dir, 0),
            runs: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, record: &Record) -> Result<(), MkfsError> {
        if record.items.is_empty() {
            return Ok(());
        }
        let index_bytes = self.index.len() * size_of::<(Rank, Position)>();
        let held = self.arena.len_bytes() + index_bytes;
        if held + record.items.len() > self.budget_bytes && !self.index.is_empty() {
            self.spill().map_err(MkfsError::Scratch)?;
        }
        let rank = Rank::of(record.tree, record.objectid, &record.items);
        let position = self.arena.push(&[
            &(record.items.len() as u32).to_le_bytes(),
            &record.tree.0.to_le_bytes(),
            &record.objectid.to_le_bytes(),
            &record.items,
        ]);
        self.index.push((rank, position));
        Ok(())
    }

    /// Returns a record in the arena, including its head.
    fn record(&self, at: Position) -> &[u8] {
        let bytes = self.arena.from(at);
        let len = bytes
            .first_chunk()
            .map_or(0, |&len| u32::from_le_bytes(len));
        &bytes[..RECORD_HEAD_BYTES + len as usize]
    }

    /// Sorts the records. Later records have greater positions, so equal ranks keep their order.
    fn sort(&mut self) {
        self.index.sort_unstable();
    }

    fn spill(&mut self) -> io::Result<()> {
        self.sort();
        let mut trees: Vec<(RootId, Range<u64>)> = Vec::new();
        let index = std::mem::take(&mut self.index);
        // Collects larger writes.
        let mut buffer = Vec::new();
        let mut at = self.log.len_bytes();
        for (rank, position) in &index {
            let record = self.record(*position);
            buffer.extend_from_slice(record);
            let end = at + record.len() as u64;
            match trees.last_mut() {
                Some((tree, range)) if *tree == rank.tree() => range.end = end,
                _ => trees.push((rank.tree(), at..end)),
            }
            at = end;
            if buffer.len() > 1 << 20 {
                self.log.push(&buffer)?;
                buffer.clear();
            }
        }
        self.log.push(&buffer)?;
        self.runs.push(Run { trees });
        self.arena = Arena::default();
        Ok(())
    }

    /// Ends the sort. Nothing may be pushed afterwards.
    pub(super) fn finish(mut self) -> SortedItems {
        self.sort();
        SortedItems { sorter: self }
    }
}

/// The sorted items of a sorter. They can be read several times.
#[derive(Debug)]
pub(super) struct SortedItems {
    sorter: ItemSorter,
}

impl SortedItems {
    /// Pushes the items of a tree in key order.
    pub(super) fn each(&self, tree: RootId, push: &mut Push<'_>) -> Result<(), MkfsError> {
        let mut joiner = Joiner { held: None, push };
        let sorter = &self.sorter;
        let start = sorter.index.partition_point(|(rank, _)| rank.tree() < tree);
        let end = sorter
            .index
            .partition_point(|(rank, _)| rank.tree() <= tree);
        let in_memory = sorter.index[start..end].iter();
        if sorter.runs.is_empty() {
            for (_, at) in in_memory {
                let (head, items) = sorter.record(*at).split_at(RECORD_HEAD_BYTES);
                joiner.record(objectid(head), items)?;
            }
        } else {
            self.merge(tree, in_memory, &mut joiner)?;
        }
        joiner.finish()
    }

    fn merge<'a>(
        &'a self,
        tree: RootId,
        in_memory: impl Iterator<Item = &'a (Rank, Position)>,
        joiner: &mut Joiner<'_, '_>,
    ) -> Result<(), MkfsError> {
        let mut readers: Vec<RunReader<'_>> = Vec::new();
        for run in &self.sorter.runs {
            let own = run.trees.iter().find(|(of, _)| *of == tree);
            if let Some((_, range)) = own {
                readers.push(RunReader::new(&self.sorter.log, range.clone()));
            }
        }
        let mut in_memory = in_memory.peekable();
        let last = readers.len();
        // ITEMSORT-2: for equal ranks, earlier runs precede later ones, and records in memory are last.
        let mut heads = BinaryHeap::new();
        for (number, reader) in readers.iter_mut().enumerate() {
            if let Some(rank) = reader.next().map_err(MkfsError::Scratch)? {
                heads.push(Reverse((rank, number)));
            }
        }
        loop {
            let from_runs = heads.peek().map(|Reverse(head)| *head);
            let from_memory = in_memory.peek().map(|(rank, _)| (*rank, last));
            let number = match (from_runs, from_memory) {
                (None, None) => return Ok(()),
                (Some(run), Some(memory)) => run.min(memory).1,
                (Some((_, number)), None) | (None, Some((_, number))) => number,
            };
            if number == last {
                if let Some((_, at)) = in_memory.next() {
                    let (head, items) = self.sorter.record(*at).split_at(RECORD_HEAD_BYTES);
                    joiner.record(objectid(head), items)?;
                }
                continue;
            }
            heads.pop();
            let reader = &mut readers[number];
            joiner.record(reader.objectid, &reader.items)?;
            if let Some(rank) = reader.next().map_err(MkfsError::Scratch)? {
                heads.push(Reverse((rank, number)));
            }
        }
    }
}

fn objectid(record_head: &[u8]) -> u64 {
    let objectid = record_head.last_chunk();
    objectid.map_or(0, |&bytes| u64::from_le_bytes(bytes))
}

/// Reads the records of one tree in one run.
struct RunReader<'a> {
    reader: LogReader<'a>,
    objectid: u64,
    items: Vec<u8>,
}

impl<'a> RunReader<'a> {
    fn new(log: &'a ByteLog, range: Range<u64>) -> RunReader<'a> {
        RunReader {
            reader: log.reader(range.start, range.end),
            objectid: 0,
            items: Vec::new(),
        }
    }

    fn next(&mut self) -> io::Result<Option<Rank>> {
        if self.reader.is_at_end() {
            return Ok(None);
        }
        let len = u32::from_le_bytes(self.reader.array()?);
        let tree = RootId(u64::from_le_bytes(self.reader.array()?));
        self.objectid = u64::from_le_bytes(self.reader.array()?);
        self.items.resize(len as usize, 0);
        self.reader.read_exact(&mut self.items)?;
        Ok(Some(Rank::of(tree, self.objectid, &self.items)))
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

//! Sorting of an archive's nodes by directory and name. If they exceed the memory budget, sorted runs are merged from a
//! file.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read};
use std::ops::Range;

use super::names::Names;
use super::node::NodeId;
use crate::fill::byte_log::{ByteLog, LogReader, Scratch};

/// The memory for a node and its name.
const NODE_BYTES: usize = 48;
const WRITE_BYTES: usize = 1 << 20;

/// Receives directory, index and name length of each node, in sorted order.
pub(super) type Each<'a> = dyn FnMut(NodeId, NodeId, usize) -> io::Result<()> + 'a;

pub(super) enum Sorted {
    Part(Part),
    Runs { log: ByteLog, runs: Vec<Range<u64>> },
}

/// Nodes that are sorted in memory.
#[derive(Default)]
pub(super) struct Part {
    entries: Vec<Entry>,
    names: Vec<u8>,
}

struct Entry {
    parent: NodeId,
    /// The first bytes of the name, which suffice for most comparisons.
    first: [u8; 8],
    id: NodeId,
    at: u32,
    len: u16,
}

/// Sorts all nodes with a name.
pub(super) fn sorted(names: &Names, scratch: &Scratch) -> io::Result<Sorted> {
    let most = (scratch.memory_bytes / 8 / NODE_BYTES).max(1);
    let mut log = ByteLog::new(&scratch.dir, 0);
    let mut runs = Vec::new();
    let mut part = Part::default();
    for id in 1..names.len() {
        let node = names.node(id)?;
        if node.is_replaced {
            continue;
        }
        if part.entries.len() == most {
            runs.push(part.write(&mut log)?);
            part.entries.clear();
            part.names.clear();
        }
        names.with_name(&node, |name| part.add(node.parent, id, name))?;
    }
    if runs.is_empty() {
        part.sort();
        return Ok(Sorted::Part(part));
    }
    runs.push(part.write(&mut log)?);
    Ok(Sorted::Runs { log, runs })
}

impl Part {
    fn add(&mut self, parent: NodeId, id: NodeId, name: &[u8]) {
        let mut first = [0; 8];
        let known = name.len().min(first.len());
        first[..known].copy_from_slice(&name[..known]);
        self.entries.push(Entry {
            parent,
            first,
            id,
            at: self.names.len() as u32,
            len: name.len() as u16,
        });
        self.names.extend_from_slice(name);
    }

    fn name(&self, entry: &Entry) -> &[u8] {
        &self.names[entry.at as usize..][..entry.len.into()]
    }

    fn sort(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        // SOURCE-1
        entries.sort_unstable_by(|a, b| {
            let beginnings = (a.parent, a.first).cmp(&(b.parent, b.first));
            beginnings.then_with(|| self.name(a).cmp(self.name(b)))
        });
        self.entries = entries;
    }

    /// Writes a sorted run, and returns its range in the log.
    fn write(&mut self, log: &mut ByteLog) -> io::Result<Range<u64>> {
        self.sort();
        let start = log.len_bytes();
        let mut buffer = Vec::new();
        for entry in &self.entries {
            buffer.extend_from_slice(&entry.parent.to_le_bytes());
            buffer.extend_from_slice(&entry.id.to_le_bytes());
            buffer.extend_from_slice(&entry.len.to_le_bytes());
            buffer.extend_from_slice(self.name(entry));
            if buffer.len() > WRITE_BYTES {
                log.push(&buffer)?;
                buffer.clear();
            }
        }
        log.push(&buffer)?;
        Ok(start..log.len_bytes())
    }
}

impl Sorted {
    pub(super) fn each(&self, each: &mut Each<'_>) -> io::Result<()> {
        match self {
            Sorted::Part(part) => part
                .entries
                .iter()
                .try_for_each(|entry| each(entry.parent, entry.id, entry.len.into())),
            Sorted::Runs { log, runs } => merge(log, runs, each),
        }
    }
}

fn merge(log: &ByteLog, runs: &[Range<u64>], each: &mut Each<'_>) -> io::Result<()> {
    let mut readers: Vec<LogReader<'_>> = runs
        .iter()
        .map(|run| log.reader(run.start, run.end))
        .collect();
    let mut heads = BinaryHeap::new();
    for (number, reader) in readers.iter_mut().enumerate() {
        heads.extend(next(reader)?.map(|(parent, name, id)| Reverse((parent, name, id, number))));
    }
    while let Some(Reverse((parent, name, id, number))) = heads.pop() {
        each(parent, id, name.len())?;
        let head = next(&mut readers[number])?;
        heads.extend(head.map(|(parent, name, id)| Reverse((parent, name, id, number))));
    }
    Ok(())
}

fn next(reader: &mut LogReader<'_>) -> io::Result<Option<(NodeId, Vec<u8>, NodeId)>> {
    if reader.is_at_end() {
        return Ok(None);
    }
    let parent = NodeId::from_le_bytes(reader.array()?);
    let id = NodeId::from_le_bytes(reader.array()?);
    let len = u16::from_le_bytes(reader.array()?);
    let mut name = vec![0; len.into()];
    reader.read_exact(&mut name)?;
    Ok(Some((parent, name, id)))
}

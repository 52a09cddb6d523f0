//! External sorting of entries by path.
//!
//! Entries are kept in serialized form. Full buffers are sorted and written as runs to an unnamed file. At the end
//! all runs are merged.
//!
//! Invariants
//! - DIFFSORT-1: memory is limited to the budget, one entry, and one block per run. Too many runs are merged early.
//! - DIFFSORT-2: entries are ordered by path, compared name by name; removed entries precede others with the same
//!   path.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::entry::{ChangeKind, DiffEntry};
use super::error::DiffError;

/// Bytes of each run in memory during the merge.
const BLOCK_BYTES: usize = 64 << 10;
/// Limits the blocks to 16 MiB.
pub(super) const MAX_RUNS: usize = 256;
/// Memory overhead of an entry in addition to its bytes.
const OVERHEAD_BYTES: usize = 96;

/// A serialized entry. Two entries are equal if path and kind are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    path: Vec<u8>,
    kind: ChangeKind,
    body: Vec<u8>,
}

impl Ord for Record {
    fn cmp(&self, other: &Record) -> Ordering {
        // DIFFSORT-2: a slash sorts below all bytes in names.
        let rank = |byte: &u8| {
            if *byte == b'/' {
                0
            } else {
                u16::from(*byte) + 1
            }
        };
        let paths = self.path.iter().map(rank).cmp(other.path.iter().map(rank));
        paths
            .then(self.kind.cmp(&other.kind))
            .then_with(|| self.body.cmp(&other.body))
    }
}

impl PartialOrd for Record {
    fn partial_cmp(&self, other: &Record) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Record {
    fn new(mut entry: DiffEntry) -> Result<Record, DiffError> {
        let body = serde_json::to_vec(&entry).map_err(|error| DiffError::Spill(error.into()))?;
        Ok(Record {
            path: std::mem::take(&mut entry.path),
            kind: entry.kind,
            body,
        })
    }

    fn into_entry(self) -> Result<DiffEntry, DiffError> {
        let entry: Result<DiffEntry, _> = serde_json::from_slice(&self.body);
        let mut entry = entry.map_err(|error| DiffError::Spill(error.into()))?;
        entry.path = self.path;
        Ok(entry)
    }

    fn len_bytes(&self) -> usize {
        self.path.len() + self.body.len() + OVERHEAD_BYTES
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for part in [&self.path, &self.body] {
            let len = u32::try_from(part.len()).map_err(io::Error::other)?;
            out.write_all(&len.to_le_bytes())?;
            out.write_all(part)?;
        }
        out.write_all(&[match self.kind {
            ChangeKind::Removed => 0,
            ChangeKind::Added => 1,
            ChangeKind::Renamed => 2,
            ChangeKind::Changed => 3,
        }])
    }

    fn read(from: &mut impl Read) -> io::Result<Record> {
        let mut parts = [Vec::new(), Vec::new()];
        for part in &mut parts {
            let mut len = [0; 4];
            from.read_exact(&mut len)?;
            part.resize(u32::from_le_bytes(len) as usize, 0);
            from.read_exact(part)?;
        }
        let mut kind = [0];
        from.read_exact(&mut kind)?;
        let [path, body] = parts;
        Ok(Record {
            path,
            body,
            kind: match kind[0] {
                0 => ChangeKind::Removed,
                1 => ChangeKind::Added,
                2 => ChangeKind::Renamed,
                _ => ChangeKind::Changed,
            },
        })
    }
}

/// Accepts entries in any order.
#[derive(Debug)]
pub(super) struct Sorter {
    buffer: Vec<Record>,
    buffered_bytes: usize,
    most_bytes: usize,
    spill: Option<File>,
    /// The end of each run.
    ends: Vec<u64>,
}

impl Sorter {
    pub(super) fn new(most_bytes: usize) -> Sorter {
        Sorter {
            buffer: Vec::new(),
            buffered_bytes: 0,
            most_bytes,
            spill: None,
            ends: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, entry: DiffEntry) -> Result<(), DiffError> {
        let record = Record::new(entry)?;
        self.buffered_bytes += record.len_bytes();
        self.buffer.push(record);
        // DIFFSORT-1
        if self.buffered_bytes > self.most_bytes {
            self.write_run().map_err(DiffError::Spill)?;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn runs(&self) -> usize {
        self.ends.len()
    }

    fn write_run(&mut self) -> io::Result<()> {
        self.buffer.sort_unstable();
        let file = match &mut self.spill {
            Some(file) => file,
            None => self.spill.insert(tempfile::tempfile()?),
        };
        file.seek(SeekFrom::End(0))?;
        let mut out = BufWriter::with_capacity(BLOCK_BYTES, file);
        for record in self.buffer.drain(..) {
            record.write(&mut out)?;
        }
        let end = out.into_inner()?.stream_position()?;
        self.ends.push(end);
        self.buffered_bytes = 0;
        match self.ends.len() < MAX_RUNS {
            true => Ok(()),
            false => self.join_runs(),
        }
    }

    /// Merges all runs into one.
    fn join_runs(&mut self) -> io::Result<()> {
        let mut merge = self.merge_runs()?;
        let mut out = BufWriter::with_capacity(BLOCK_BYTES, tempfile::tempfile()?);
        while let Some(record) = merge.next()? {
            record.write(&mut out)?;
        }
        let mut file = out.into_inner()?;
        self.ends = vec![file.stream_position()?];
        self.spill = Some(file);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Sorted, DiffError> {
        let Some(_) = &self.spill else {
            self.buffer.sort_unstable();
            return Ok(Sorted::Memory(self.buffer.into_iter()));
        };
        let merge = self.merge().map_err(DiffError::Spill)?;
        Ok(Sorted::Merge(merge))
    }

    fn merge(&mut self) -> io::Result<Merge> {
        if !self.buffer.is_empty() {
            self.write_run()?;
        }
        self.buffer = Vec::new();
        self.merge_runs()
    }

    fn merge_runs(&mut self) -> io::Result<Merge> {
        let mut merge = Merge::default();
        let Some(file) = self.spill.take().map(Arc::new) else {
            return Ok(merge);
        };
        let mut at = 0;
        for &end in &self.ends {
            let part = Part {
                file: Arc::clone(&file),
                at,
                end,
            };
            merge.runs.push(BufReader::with_capacity(BLOCK_BYTES, part));
            merge.refill(merge.runs.len() - 1)?;
            at = end;
        }
        Ok(merge)
    }
}

/// A part of a file, read from its start.
#[derive(Debug)]
pub(super) struct Part {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Part {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let len = buf.len().min(left);
        let read = self.file.read_at(&mut buf[..len], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[derive(Debug)]
pub(super) enum Sorted {
    Memory(std::vec::IntoIter<Record>),
    Merge(Merge),
}

impl Sorted {
    pub(super) fn next(&mut self) -> Result<Option<DiffEntry>, DiffError> {
        let record = match self {
            Sorted::Memory(records) => records.next(),
            Sorted::Merge(merge) => merge.next().map_err(DiffError::Spill)?,
        };
        record.map(Record::into_entry).transpose()
    }
}

#[derive(Debug, Default)]
pub(super) struct Merge {
    runs: Vec<BufReader<Part>>,
    heap: BinaryHeap<Reverse<(Record, usize)>>,
}

impl Merge {
    fn next(&mut self) -> io::Result<Option<Record>> {
        let Some(Reverse((record, run))) = self.heap.pop() else {
            return Ok(None);
        };
        self.refill(run)?;
        Ok(Some(record))
    }

    /// Pushes the next record of a run onto the heap.
    fn refill(&mut self, index: usize) -> io::Result<()> {
        let run = &mut self.runs[index];
        let is_over = run.buffer().is_empty() && run.get_ref().at == run.get_ref().end;
        if !is_over {
            self.heap.push(Reverse((Record::read(run)?, index)));
        }
        Ok(())
    }
}

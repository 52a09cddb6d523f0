//! External sorting of records.
//!
//! A record is a value of a fixed size, and may have a tail of bytes. Full buffers are sorted and written to a log as
//! runs; at the end all runs are merged. Runs are divided into groups of records, so that a group is read without the
//! others.
//!
//! Invariants
//! - SORT-1: memory is limited to the budget, one record, and one block per run. Too many runs are merged early.
//! - SORT-2: the output is ascending and has exactly the records of the input, including duplicates. Equal
//!   records are in the order of their runs. Equal records with tails are in the order of the input.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use crate::arena::{Arena, Tail};
use crate::log::{Log, LogReader, READ_BYTES};
use crate::scratch_dir::ScratchDir;

#[cfg(test)]
mod tests;

/// Limits the blocks of the merge to 16 MiB.
const MAX_RUNS: usize = 256;

/// Reads the records of a run.
pub type RunReader = LogReader<Arc<Log>>;

/// A record that can be sorted in a file.
pub trait SortRecord: Copy {
    type Tail: Tail;

    /// Compares two records. `tails` returns their tails, which are far from the records in memory.
    fn compare<'t>(&self, other: &Self, tails: impl FnOnce() -> (&'t [u8], &'t [u8])) -> Ordering;

    /// Returns the group. Records must be ordered by group first.
    fn group(&self) -> u64 {
        0
    }

    /// Writes the record without its tail.
    fn write(&self, out: &mut Vec<u8>);
    fn read(from: &mut RunReader) -> io::Result<Self>;
}

impl<const N: usize> SortRecord for [u64; N] {
    type Tail = ();

    fn compare<'t>(&self, other: &Self, _: impl FnOnce() -> (&'t [u8], &'t [u8])) -> Ordering {
        self.cmp(other)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.iter().flat_map(|word| word.to_le_bytes()));
    }

    fn read(from: &mut RunReader) -> io::Result<[u64; N]> {
        let mut record = [0; N];
        for word in &mut record {
            *word = u64::from_le_bytes(from.array()?);
        }
        Ok(record)
    }
}

/// Accepts records in any order.
#[derive(Debug)]
pub struct Sorter<R: SortRecord> {
    buffer: Vec<(R, R::Tail)>,
    arena: Arena,
    budget_bytes: usize,
    runs: Runs,
}

/// Sorted runs in a log.
#[derive(Debug)]
struct Runs {
    log: Log,
    runs: Vec<Run>,
    /// A record in the file's format.
    bytes: Vec<u8>,
}

/// The range of each group in the log.
type Run = Vec<(u64, Range<u64>)>;

impl<R: SortRecord<Tail = ()>> Sorter<R> {
    pub fn push(&mut self, record: R) -> io::Result<()> {
        self.push_with_tail(record, &[])
    }
}

impl<R: SortRecord> Sorter<R> {
    pub fn new(scratch_dir: &ScratchDir, budget_bytes: usize) -> Sorter<R> {
        Sorter {
            buffer: Vec::new(),
            arena: Arena::default(),
            budget_bytes,
            runs: Runs::new(scratch_dir),
        }
    }

    pub fn push_with_tail(&mut self, record: R, tail: &[u8]) -> io::Result<()> {
        let held = (self.buffer.len() + 1) * size_of::<(R, R::Tail)>() + self.arena.len_bytes();
        // SORT-1
        if held + tail.len() > self.budget_bytes && !self.buffer.is_empty() {
            self.write_run()?;
        }
        let tail = R::Tail::push(&mut self.arena, tail);
        self.buffer.push((record, tail));
        Ok(())
    }

    fn sort(&mut self) {
        let arena = &self.arena;
        self.buffer.sort_unstable_by(|(a, a_tail), (b, b_tail)| {
            let order = a.compare(b, || (a_tail.get(arena), b_tail.get(arena)));
            // SORT-2
            order.then_with(|| a_tail.cmp(b_tail))
        });
    }

    fn write_run(&mut self) -> io::Result<()> {
        self.sort();
        self.runs.begin();
        for (record, tail) in self.buffer.drain(..) {
            self.runs.push(&record, tail.get(&self.arena))?;
        }
        self.arena = Arena::default();
        if self.runs.runs.len() < MAX_RUNS {
            return Ok(());
        }
        // SORT-1
        let mut joined = Runs::new(self.runs.log.scratch_dir());
        let runs = std::mem::replace(&mut self.runs, Runs::new(joined.log.scratch_dir()));
        let mut merge = Merge::<R>::new(&Arc::new(runs.log), &runs.runs, None)?;
        joined.begin();
        while let Some((record, tail)) = merge.next()? {
            joined.push(&record, tail)?;
        }
        self.runs = joined;
        Ok(())
    }

    pub fn finish(mut self) -> io::Result<Sorted<R>> {
        if self.runs.runs.is_empty() {
            self.sort();
        } else if !self.buffer.is_empty() {
            self.write_run()?;
            self.buffer = Vec::new();
        }
        Ok(Sorted {
            memory: self.buffer.into_iter(),
            arena: self.arena,
            log: Arc::new(self.runs.log),
            runs: self.runs.runs,
            merge: None,
        })
    }
}

impl Runs {
    fn new(scratch_dir: &ScratchDir) -> Runs {
        Runs {
            log: Log::new(scratch_dir, READ_BYTES),
            runs: Vec::new(),
            bytes: Vec::new(),
        }
    }

    fn begin(&mut self) {
        self.runs.push(Run::new());
    }

    /// Appends the next record of the last run.
    fn push<R: SortRecord>(&mut self, record: &R, tail: &[u8]) -> io::Result<()> {
        self.bytes.clear();
        record.write(&mut self.bytes);
        if R::Tail::EXISTS {
            let len = tail.len() as u32;
            self.bytes.extend_from_slice(&len.to_le_bytes());
            self.bytes.extend_from_slice(tail);
        }
        let at = self.log.push(&self.bytes)?;
        let end = self.log.len_bytes();
        let run = self.runs.last_mut().expect("a run has begun");
        match run.last_mut() {
            Some((group, range)) if *group == record.group() => range.end = end,
            _ => run.push((record.group(), at..end)),
        }
        Ok(())
    }
}

/// Records in ascending order.
#[derive(Debug)]
pub struct Sorted<R: SortRecord> {
    /// All records, if there are no runs.
    memory: std::vec::IntoIter<(R, R::Tail)>,
    arena: Arena,
    log: Arc<Log>,
    runs: Vec<Run>,
    merge: Option<Merge<R>>,
}

impl<R: SortRecord> Sorted<R> {
    /// Removes the first record, and returns it with its tail.
    pub fn next_with_tail(&mut self) -> io::Result<Option<(R, &[u8])>> {
        if self.runs.is_empty() {
            let next = self.memory.next();
            return Ok(next.map(|(record, tail)| (record, tail.get(&self.arena))));
        }
        if self.merge.is_none() {
            self.merge = Some(Merge::new(&self.log, &self.runs, None)?);
        }
        match &mut self.merge {
            Some(merge) => merge.next(),
            None => Ok(None),
        }
    }

    /// Removes the first record.
    pub fn next_record(&mut self) -> io::Result<Option<R>> {
        let next = self.next_with_tail()?;
        Ok(next.map(|(record, _)| record))
    }

    /// Reads the records of a group, without removing them.
    pub fn group(&self, group: u64) -> io::Result<Group<'_, R>> {
        let held = self.memory.as_slice();
        let start = held.partition_point(|(record, _)| record.group() < group);
        let end = held.partition_point(|(record, _)| record.group() <= group);
        let merge = if self.runs.is_empty() {
            None
        } else {
            Some(Merge::new(&self.log, &self.runs, Some(group))?)
        };
        Ok(Group {
            memory: held[start..end].iter(),
            arena: &self.arena,
            merge,
        })
    }
}

/// The records of a group in ascending order.
#[derive(Debug)]
pub struct Group<'s, R: SortRecord> {
    memory: std::slice::Iter<'s, (R, R::Tail)>,
    arena: &'s Arena,
    merge: Option<Merge<R>>,
}

impl<R: SortRecord> Group<'_, R> {
    pub fn next_with_tail(&mut self) -> io::Result<Option<(R, &[u8])>> {
        let Some(merge) = &mut self.merge else {
            let next = self.memory.next();
            return Ok(next.map(|(record, tail)| (*record, tail.get(self.arena))));
        };
        merge.next()
    }
}

#[derive(Debug)]
struct Merge<R> {
    readers: Vec<RunReader>,
    /// The next record of each run.
    heads: BinaryHeap<Head<R>>,
    /// The tail of the last record.
    tail: Vec<u8>,
}

#[derive(Debug)]
struct Head<R> {
    record: R,
    tail: Vec<u8>,
    run: usize,
}

/// In reverse, because a heap begins with the greatest.
impl<R: SortRecord> Ord for Head<R> {
    fn cmp(&self, other: &Head<R>) -> Ordering {
        // SORT-2: the lowest record of all runs, and the earliest run among equal ones.
        let tails = || (&other.tail[..], &self.tail[..]);
        let order = other.record.compare(&self.record, tails);
        order.then(other.run.cmp(&self.run))
    }
}

impl<R: SortRecord> PartialOrd for Head<R> {
    fn partial_cmp(&self, other: &Head<R>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R: SortRecord> PartialEq for Head<R> {
    fn eq(&self, other: &Head<R>) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<R: SortRecord> Eq for Head<R> {}

impl<R: SortRecord> Merge<R> {
    /// Merges all runs, or the parts of them that belong to `group`.
    fn new(log: &Arc<Log>, runs: &[Run], group: Option<u64>) -> io::Result<Merge<R>> {
        let mut merge = Merge {
            readers: Vec::new(),
            heads: BinaryHeap::new(),
            tail: Vec::new(),
        };
        for run in runs {
            let range = match (group, &run[..]) {
                (None, [(_, first), .., (_, last)]) => first.start..last.end,
                (None, [(_, range)]) => range.clone(),
                (None, []) => continue,
                (Some(group), _) => match run.binary_search_by_key(&group, |part| part.0) {
                    Ok(at) => run[at].1.clone(),
                    Err(_) => continue,
                },
            };
            merge.readers.push(LogReader::new(Arc::clone(log), range));
            merge.refill(merge.readers.len() - 1, Vec::new())?;
        }
        Ok(merge)
    }

    fn next(&mut self) -> io::Result<Option<(R, &[u8])>> {
        let Some(Head { record, tail, run }) = self.heads.pop() else {
            return Ok(None);
        };
        let room = std::mem::replace(&mut self.tail, tail);
        self.refill(run, room)?;
        Ok(Some((record, &self.tail)))
    }

    /// Pushes the next record of a run onto the heap, with its tail in `tail`.
    fn refill(&mut self, run: usize, mut tail: Vec<u8>) -> io::Result<()> {
        let reader = &mut self.readers[run];
        if reader.is_at_end() {
            return Ok(());
        }
        let record = R::read(reader)?;
        if R::Tail::EXISTS {
            let len = u32::from_le_bytes(reader.array()?);
            tail.resize(len as usize, 0);
            reader.read_exact(&mut tail)?;
        }
        self.heads.push(Head { record, tail, run });
        Ok(())
    }
}

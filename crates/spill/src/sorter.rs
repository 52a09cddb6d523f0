//! External sorting of records.
//!
//! Full buffers are sorted and written to a log as runs; at the end all runs are merged. Runs are divided into groups
//! of records, so that a group is read without the others.
//!
//! Invariants
//! - SORT-1: memory is limited to the budget, one record, and one block per run. Too many runs are merged early.
//! - SORT-2: the output is ascending and has exactly the records of the input, including duplicates. Equal
//!   records are in the order of their runs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::log::{Log, LogReader, READ_BYTES};
use crate::scratch_dir::ScratchDir;

#[cfg(test)]
mod tests;

/// Limits the blocks of the merge to 16 MiB.
const MAX_RUNS: usize = 256;

/// Reads the records of a run.
pub type RunReader = LogReader<Arc<Log>>;

/// A record that can be sorted in a file.
pub trait SortRecord: Ord + Sized {
    /// Returns the number of bytes in memory in addition to the value itself.
    fn heap_bytes(&self) -> usize {
        0
    }

    /// Returns the group. Records must be ordered by group first.
    fn group(&self) -> u64 {
        0
    }

    fn write(&self, out: &mut Vec<u8>);
    fn read(from: &mut RunReader) -> io::Result<Self>;
}

impl<const N: usize> SortRecord for [u64; N] {
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
pub struct Sorter<R> {
    buffer: Vec<R>,
    buffered_bytes: usize,
    budget_bytes: usize,
    runs: Runs,
}

/// Sorted runs in a log.
#[derive(Debug)]
struct Runs {
    log: Log,
    runs: Vec<Run>,
}

/// The range of each group in the log.
type Run = Vec<(u64, Range<u64>)>;

impl<R: SortRecord> Sorter<R> {
    pub fn new(scratch_dir: &ScratchDir, budget_bytes: usize) -> Sorter<R> {
        Sorter {
            buffer: Vec::new(),
            buffered_bytes: 0,
            budget_bytes,
            runs: Runs::new(scratch_dir),
        }
    }

    pub fn push(&mut self, record: R) -> io::Result<()> {
        let record_bytes = size_of::<R>() + record.heap_bytes();
        // SORT-1
        if self.buffered_bytes + record_bytes > self.budget_bytes && !self.buffer.is_empty() {
            self.write_run()?;
        }
        self.buffered_bytes += record_bytes;
        self.buffer.push(record);
        Ok(())
    }

    fn write_run(&mut self) -> io::Result<()> {
        self.buffer.sort_unstable();
        self.runs.write(self.buffer.drain(..).map(Ok))?;
        self.buffered_bytes = 0;
        if self.runs.runs.len() < MAX_RUNS {
            return Ok(());
        }
        // SORT-1
        let mut joined = Runs::new(self.runs.log.scratch_dir());
        let runs = std::mem::replace(&mut self.runs, Runs::new(joined.log.scratch_dir()));
        let mut merge = Merge::<R>::new(&Arc::new(runs.log), &runs.runs, None)?;
        joined.write(std::iter::from_fn(|| merge.next().transpose()))?;
        self.runs = joined;
        Ok(())
    }

    pub fn finish(mut self) -> io::Result<Sorted<R>> {
        if self.runs.runs.is_empty() {
            self.buffer.sort_unstable();
        } else if !self.buffer.is_empty() {
            self.write_run()?;
            self.buffer = Vec::new();
        }
        Ok(Sorted {
            memory: self.buffer.into_iter(),
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
        }
    }

    /// Writes sorted records as one run.
    fn write<R: SortRecord>(
        &mut self,
        records: impl Iterator<Item = io::Result<R>>,
    ) -> io::Result<()> {
        let mut run = Run::new();
        let mut bytes = Vec::new();
        for record in records {
            let record = record?;
            bytes.clear();
            record.write(&mut bytes);
            let at = self.log.push(&bytes)?;
            let end = self.log.len_bytes();
            match run.last_mut() {
                Some((group, range)) if *group == record.group() => range.end = end,
                _ => run.push((record.group(), at..end)),
            }
        }
        self.runs.push(run);
        Ok(())
    }
}

/// Records in ascending order.
#[derive(Debug)]
pub struct Sorted<R> {
    /// All records, if there are no runs.
    memory: std::vec::IntoIter<R>,
    log: Arc<Log>,
    runs: Vec<Run>,
    merge: Option<Merge<R>>,
}

impl<R: SortRecord> Sorted<R> {
    /// Removes the first record.
    pub fn next_record(&mut self) -> io::Result<Option<R>> {
        if self.runs.is_empty() {
            return Ok(self.memory.next());
        }
        let merge = match &mut self.merge {
            Some(merge) => merge,
            None => self.merge.insert(Merge::new(&self.log, &self.runs, None)?),
        };
        merge.next()
    }

    /// Reads the records of a group, without removing them.
    pub fn group(&self, group: u64) -> io::Result<Group<'_, R>> {
        let held = self.memory.as_slice();
        let start = held.partition_point(|record| record.group() < group);
        let end = held.partition_point(|record| record.group() <= group);
        let merge = if self.runs.is_empty() {
            None
        } else {
            Some(Merge::new(&self.log, &self.runs, Some(group))?)
        };
        Ok(Group {
            memory: held[start..end].iter(),
            merge,
            last: None,
        })
    }
}

/// The records of a group in ascending order.
#[derive(Debug)]
pub struct Group<'s, R> {
    memory: std::slice::Iter<'s, R>,
    merge: Option<Merge<R>>,
    last: Option<R>,
}

impl<R: SortRecord> Group<'_, R> {
    pub fn next_record(&mut self) -> io::Result<Option<&R>> {
        let Some(merge) = &mut self.merge else {
            return Ok(self.memory.next());
        };
        self.last = merge.next()?;
        Ok(self.last.as_ref())
    }
}

#[derive(Debug)]
struct Merge<R> {
    readers: Vec<RunReader>,
    heap: BinaryHeap<Reverse<(R, usize)>>,
}

impl<R: SortRecord> Merge<R> {
    /// Merges all runs, or the parts of them that belong to `group`.
    fn new(log: &Arc<Log>, runs: &[Run], group: Option<u64>) -> io::Result<Merge<R>> {
        let mut merge = Merge {
            readers: Vec::new(),
            heap: BinaryHeap::new(),
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
            merge.refill(merge.readers.len() - 1)?;
        }
        Ok(merge)
    }

    fn next(&mut self) -> io::Result<Option<R>> {
        // SORT-2: the lowest record of all runs, and the earliest run among equal ones.
        let Some(Reverse((record, run))) = self.heap.pop() else {
            return Ok(None);
        };
        self.refill(run)?;
        Ok(Some(record))
    }

    /// Pushes the next record of a run onto the heap.
    fn refill(&mut self, run: usize) -> io::Result<()> {
        let reader = &mut self.readers[run];
        if !reader.is_at_end() {
            self.heap.push(Reverse((R::read(reader)?, run)));
        }
        Ok(())
    }
}

//! External sorting of records.
//!
//! A record is a fixed number of words, compared from the first word on. Full buffers are sorted and written as runs
//! to an unnamed file; at the end all runs are merged.
//!
//! Invariants
//! - SORT-1: at most `buffer_bytes` and one block per run are in memory.
//! - SORT-2: the output is ascending and has exactly the records of the input, including duplicates.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use zerocopy::IntoBytes;

type Record<const N: usize> = [u64; N];

/// Bytes of each run in memory during the merge.
const MERGE_BLOCK_BYTES: usize = 64 << 10;

/// Accepts records in any order.
#[derive(Debug)]
pub(crate) struct Sorter<const N: usize> {
    buffer: Vec<Record<N>>,
    most: usize,
    dir: PathBuf,
    spill: Option<Spill>,
}

#[derive(Debug)]
struct Spill {
    file: File,
    len_bytes: u64,
    /// The end of each run.
    ends: Vec<u64>,
}

impl<const N: usize> Sorter<N> {
    pub(crate) fn new(buffer_bytes: u64, dir: Option<&Path>) -> Sorter<N> {
        let most = buffer_bytes as usize / size_of::<Record<N>>();
        Sorter {
            buffer: Vec::new(),
            most: most.max(16),
            dir: dir.map_or_else(std::env::temp_dir, Path::to_owned),
            spill: None,
        }
    }

    pub(crate) fn push(&mut self, record: Record<N>) -> io::Result<()> {
        // SORT-1
        if self.buffer.len() >= self.most {
            self.write_run()?;
        }
        self.buffer.push(record);
        Ok(())
    }

    fn write_run(&mut self) -> io::Result<()> {
        self.buffer.sort_unstable();
        let spill = match &mut self.spill {
            Some(spill) => spill,
            None => self.spill.insert(Spill {
                file: tempfile::tempfile_in(&self.dir)?,
                len_bytes: 0,
                ends: Vec::new(),
            }),
        };
        let bytes = self.buffer.as_bytes();
        spill.file.write_all_at(bytes, spill.len_bytes)?;
        spill.len_bytes += bytes.len() as u64;
        spill.ends.push(spill.len_bytes);
        self.buffer.clear();
        Ok(())
    }

    pub(crate) fn finish(mut self) -> io::Result<Sorted<N>> {
        if self.spill.is_none() {
            self.buffer.sort_unstable();
            return Ok(Sorted::Memory(self.buffer.into_iter()));
        }
        if !self.buffer.is_empty() {
            self.write_run()?;
        }
        self.buffer = Vec::new();
        let Some(spill) = self.spill else {
            return Ok(Sorted::Memory(Vec::new().into_iter()));
        };
        let mut start = 0;
        let mut merge = Merge {
            file: spill.file,
            runs: Vec::new(),
            heap: BinaryHeap::new(),
        };
        for (index, end) in spill.ends.into_iter().enumerate() {
            merge.runs.push(Run {
                at: start,
                end,
                block: Vec::new(),
                next: 0,
            });
            start = end;
            merge.refill(index)?;
        }
        Ok(Sorted::Merge(merge))
    }
}

/// Records in ascending order.
#[derive(Debug)]
pub(crate) enum Sorted<const N: usize> {
    Memory(std::vec::IntoIter<Record<N>>),
    Merge(Merge<N>),
}

impl<const N: usize> Sorted<N> {
    pub(crate) fn next(&mut self) -> io::Result<Option<Record<N>>> {
        match self {
            Sorted::Memory(records) => Ok(records.next()),
            Sorted::Merge(merge) => merge.next(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Merge<const N: usize> {
    file: File,
    runs: Vec<Run<N>>,
    heap: BinaryHeap<Reverse<(Record<N>, usize)>>,
}

#[derive(Debug)]
struct Run<const N: usize> {
    at: u64,
    end: u64,
    block: Vec<Record<N>>,
    next: usize,
}

impl<const N: usize> Merge<N> {
    fn next(&mut self) -> io::Result<Option<Record<N>>> {
        // SORT-2: the lowest record of all runs.
        let Some(Reverse((record, run))) = self.heap.pop() else {
            return Ok(None);
        };
        self.refill(run)?;
        Ok(Some(record))
    }

    /// Pushes the next record of a run onto the heap.
    fn refill(&mut self, index: usize) -> io::Result<()> {
        let run = &mut self.runs[index];
        if run.next == run.block.len() {
            let record_bytes = size_of::<Record<N>>();
            let most = (MERGE_BLOCK_BYTES / record_bytes) as u64;
            let left = (run.end - run.at) / record_bytes as u64;
            run.block.resize(left.min(most) as usize, [0; N]);
            run.next = 0;
            let bytes = run.block.as_mut_bytes();
            self.file.read_exact_at(bytes, run.at)?;
            run.at += bytes.len() as u64;
        }
        if let Some(record) = run.block.get(run.next) {
            run.next += 1;
            self.heap.push(Reverse((*record, index)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: u64) -> impl Iterator<Item = [u64; 2]> {
        (0..count).map(|n| [n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40, n])
    }

    // SORT-2
    #[test]
    fn spilled_records_come_out_as_sorted_in_memory() {
        for buffer_bytes in [1 << 20, 4000] {
            let mut sorter = Sorter::<2>::new(buffer_bytes, None);
            let mut wanted: Vec<[u64; 2]> = numbers(20_000).collect();
            for record in numbers(20_000) {
                sorter.push(record).unwrap();
            }
            wanted.sort_unstable();
            let mut sorted = sorter.finish().unwrap();
            let mut found = Vec::new();
            while let Some(record) = sorted.next().unwrap() {
                found.push(record);
            }
            assert!(found == wanted, "buffer of {buffer_bytes}");
        }
    }

    /// SORT-1
    #[test]
    fn memory_is_the_buffer_and_then_a_block_a_run() {
        const BUFFER_BYTES: usize = 1 << 20;
        let most = BUFFER_BYTES / size_of::<Record<2>>();
        let mut sorter = Sorter::<2>::new(BUFFER_BYTES as u64, None);
        for record in numbers(5 * most as u64) {
            sorter.push(record).unwrap();
            assert!(sorter.buffer.len() <= most);
        }
        let Sorted::Merge(mut merge) = sorter.finish().unwrap() else {
            panic!("more than the buffer holds");
        };
        assert_eq!(merge.runs.len(), 5);
        while merge.next().unwrap().is_some() {
            let blocks = merge.runs.iter().map(|run| size_of_val(&run.block[..]));
            assert!(blocks.max() <= Some(MERGE_BLOCK_BYTES));
        }
    }

    #[test]
    fn nothing_comes_out_of_nothing() {
        let mut sorted = Sorter::<3>::new(0, None).finish().unwrap();
        assert_eq!(sorted.next().unwrap(), None);
    }
}

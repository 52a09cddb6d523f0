//! Turns written bytes into runs of whole sectors.
//!
//! A partial sector is completed with the file's old data. Whole sectors are not copied.
//!
//! Not here: the addresses of the data (`store`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::Result;
use crate::inode::DirtyRanges;

#[cfg(test)]
mod tests;

/// Contiguous whole sectors of a file.
#[derive(Debug)]
pub(super) struct Run<'a> {
    start: u64,
    len: u64,
    /// By offset in the run; each part is whole sectors.
    parts: Vec<(u64, Cow<'a, [u8]>)>,
}

impl<'a> Run<'a> {
    /// Creates a run of `bytes` (whole sectors) at file offset `start`.
    pub(super) fn new(start: u64, bytes: Cow<'a, [u8]>) -> Run<'a> {
        Run {
            start,
            len: bytes.len() as u64,
            parts: vec![(0, bytes)],
        }
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.start + self.len
    }

    fn push(&mut self, bytes: Cow<'a, [u8]>) {
        let at = self.len;
        self.len += bytes.len() as u64;
        self.parts.push((at, bytes));
    }

    /// Returns the bytes of `range`, which is whole sectors within the run.
    pub(super) fn slices(&self, range: Range<u64>) -> impl Iterator<Item = &[u8]> {
        let (from, to) = (range.start - self.start, range.end - self.start);
        let first = self.parts.partition_point(|(at, _)| *at <= from) - 1;
        self.parts[first..]
            .iter()
            .take_while(move |(at, _)| *at < to)
            .map(move |(at, bytes)| {
                let end = (to - at).min(bytes.len() as u64) as usize;
                &bytes[from.saturating_sub(*at) as usize..end]
            })
    }

    /// Returns the bytes of `range` as one slice, copied to `scratch` if they are in several parts.
    pub(super) fn bytes<'s>(&'s self, range: Range<u64>, scratch: &'s mut Vec<u8>) -> &'s [u8] {
        let mut slices = self.slices(range.clone());
        let first = slices.next().unwrap_or(&[]);
        if first.len() as u64 == range.end - range.start {
            return first;
        }
        scratch.clear();
        scratch.extend_from_slice(first);
        for slice in slices {
            scratch.extend_from_slice(slice);
        }
        scratch
    }
}

/// Returns the runs of all sectors that `dirty_ranges` touch or `also` contains. `read_old` reads the file's
/// data at an offset. `old_size` is the size of the file on disk.
pub(super) fn runs<'a>(
    dirty_ranges: &'a DirtyRanges,
    also: &[Range<u64>],
    sectorsize: u64,
    old_size: u64,
    read_old: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
) -> Result<Vec<Run<'a>>> {
    let mut sectors: BTreeMap<u64, Cow<'a, [u8]>> = BTreeMap::new();
    let mut partial = Vec::new();
    for (start, bytes) in dirty_ranges.iter() {
        let end = start + bytes.len() as u64;
        let (first, last) = (start.next_multiple_of(sectorsize), end - end % sectorsize);
        if first < last {
            let whole = &bytes[(first - start) as usize..(last - start) as usize];
            sectors.insert(first, Cow::Borrowed(whole));
        }
        if start < first {
            partial.push(start - start % sectorsize);
        }
        if last < end {
            partial.push(last);
        }
    }
    for range in also {
        let whole = range.clone().step_by(sectorsize as usize);
        partial.extend(whole.filter(|&at| !covers(dirty_ranges, at..at + sectorsize)));
    }
    partial.sort_unstable();
    partial.dedup();
    for at in partial {
        let mut sector = vec![0; sectorsize as usize];
        let known = (old_size.max(at) - at).min(sectorsize);
        if !covers(dirty_ranges, at..at + known) {
            read_old(at, &mut sector[..known as usize])?;
        }
        dirty_ranges.copy_to(at, &mut sector);
        sectors.insert(at, Cow::Owned(sector));
    }
    let mut runs: Vec<Run<'a>> = Vec::new();
    for (start, bytes) in sectors {
        match runs.last_mut() {
            Some(run) if run.range().end == start => run.push(bytes),
            _ => runs.push(Run::new(start, bytes)),
        }
    }
    Ok(runs)
}

fn covers(dirty_ranges: &DirtyRanges, range: Range<u64>) -> bool {
    let mut gaps = vec![range];
    gaps.retain(|gap| !gap.is_empty());
    dirty_ranges.subtract_from(&mut gaps);
    gaps.is_empty()
}

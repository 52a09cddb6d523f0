//! The expected bytes of a file or of a part of one.

use std::collections::BTreeSet;
use std::ops::Range;

pub(super) const PAGE: u64 = 4096;

/// Fills `buf`, which represents a file from `offset` on, with bytes derived from a tag and their offset. Some tags
/// give compressible bytes.
pub(super) fn fill(buf: &mut [u8], tag: u64, offset: u64) {
    let bytes_alike = if tag.is_multiple_of(4) { PAGE } else { 8 };
    let mut at = offset;
    let mut rest = buf;
    while !rest.is_empty() {
        let word = (tag ^ (at / bytes_alike)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let from = (at % 8) as usize;
        let len = (8 - from).min(rest.len());
        let (part, after) = rest.split_at_mut(len);
        part.copy_from_slice(&word.to_le_bytes()[from..from + len]);
        at += len as u64;
        rest = after;
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) bytes: Vec<u8>,
    /// Pages that contain either the bytes of a failed store, or the previous ones.
    pub(super) unsure: BTreeSet<u64>,
}

impl Model {
    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        if end > self.len() {
            self.bytes.resize(end as usize, 0);
        }
        self.bytes[offset as usize..end as usize].copy_from_slice(bytes);
        let whole = offset.div_ceil(PAGE)..end / PAGE;
        self.unsure.retain(|page| !whole.contains(page));
    }

    pub(super) fn resize(&mut self, len: u64) {
        self.bytes.resize(len as usize, 0);
        self.unsure.retain(|page| page * PAGE < len);
    }

    pub(super) fn zero(&mut self, range: Range<u64>) {
        let end = range.end.min(self.len());
        if range.start < end {
            self.write(range.start, &vec![0; (end - range.start) as usize]);
        }
    }

    /// Marks whole pages as uncertain after a failed store.
    pub(super) fn doubt(&mut self, range: Range<u64>) {
        self.unsure
            .extend(range.start / PAGE..range.end.div_ceil(PAGE));
    }

    pub(super) fn is_sure(&self) -> bool {
        self.unsure.is_empty()
    }

    /// Finds the first wrong byte of `found` (PRESSURE-1), which represents the file from `offset` on.
    pub(super) fn first_wrong(&self, offset: u64, found: &[u8]) -> Option<u64> {
        let from = offset.min(self.len());
        let wanted = &self.bytes[from as usize..];
        let wanted = &wanted[..wanted.len().min(found.len())];
        if wanted == found {
            return None;
        }
        let pairs = wanted.iter().zip(found).enumerate();
        let mut wrong = pairs
            .filter(|(_, (wanted, found))| wanted != found)
            .map(|(at, _)| offset + at as u64);
        wrong.find(|at| !self.unsure.contains(&(at / PAGE)))
    }
}

//! Buffered bytes of a file by offset, merged when they are written.
//!
//! Invariants
//! - DIRTY-RANGES-1: pieces are not empty, do not overlap, and none crosses a multiple of [`WINDOW_BYTES`].
//! - DIRTY-RANGES-2: within a window no two pieces touch.
//!
//! Windows bound the bytes that one write moves, and that a growing piece copies. The memory of full windows
//! is recycled (`buffer_pool`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::buffer_pool::{BufferPool, WINDOW_BYTES};

#[cfg(test)]
mod tests;

#[cfg(test)]
thread_local! {
    /// How many pieces this thread has visited.
    pub(crate) static VISITS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[inline]
fn count_visit() {
    #[cfg(test)]
    VISITS.set(VISITS.get() + 1);
}

/// Bytes of one file. They count against the volume's budget until they are dropped.
#[derive(Debug, Default)]
pub(crate) struct DirtyRanges {
    by_start: BTreeMap<u64, Vec<u8>>,
    bytes: u64,
    buffer_pool: Option<Arc<BufferPool>>,
}

impl Drop for DirtyRanges {
    fn drop(&mut self) {
        self.charge(0);
        if let Some(buffer_pool) = &self.buffer_pool {
            buffer_pool.release(std::mem::take(&mut self.by_start).into_values());
        }
    }
}

impl DirtyRanges {
    pub(crate) fn new(buffer_pool: &Arc<BufferPool>) -> DirtyRanges {
        DirtyRanges {
            by_start: BTreeMap::new(),
            bytes: 0,
            buffer_pool: Some(Arc::clone(buffer_pool)),
        }
    }

    fn charge(&mut self, bytes: u64) {
        if let Some(buffer_pool) = &self.buffer_pool {
            buffer_pool.charge(bytes.wrapping_sub(self.bytes).cast_signed());
        }
        self.bytes = bytes;
    }

    /// Returns memory for a piece at `start`. It has the size of a whole window if the piece before fills its
    /// own window, as a sequential write is likely to continue.
    fn new_piece(&self, start: u64) -> Vec<u8> {
        let full = |at: u64| self.by_start.get(&at).map(Vec::len) == Some(WINDOW_BYTES as usize);
        let is_sequential =
            start.is_multiple_of(WINDOW_BYTES) && start.checked_sub(WINDOW_BYTES).is_some_and(full);
        match &self.buffer_pool {
            Some(buffer_pool) if is_sequential => buffer_pool.take(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    pub(crate) fn last(&self) -> Option<(u64, &[u8])> {
        let (&start, piece) = self.by_start.last_key_value()?;
        Some((start, piece))
    }

    /// Returns the end of the last piece.
    pub(crate) fn end(&self) -> Option<u64> {
        let (start, last) = self.last()?;
        Some(start + last.len() as u64)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.by_start
            .iter()
            .inspect(|_| count_visit())
            .map(|(&start, piece)| (start, piece.as_slice()))
    }

    /// Returns the pieces that overlap `range`, uncut.
    pub(crate) fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &[u8])> {
        let first = self.first_reaching(range.start.saturating_add(1), range.start);
        self.by_start
            .range(first..range.end.max(first))
            .inspect(|_| count_visit())
            .map(|(&start, piece)| (start, piece.as_slice()))
    }

    /// Returns the start of the last piece below `below` if it reaches `below`, and `at` otherwise.
    fn first_reaching(&self, below: u64, at: u64) -> u64 {
        match self.by_start.range(..below).next_back() {
            Some((&start, piece)) if start + piece.len() as u64 >= below => start,
            _ => at,
        }
    }

    /// Writes `bytes` at `offset`, over older bytes.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            // DIRTY-RANGES-1
            let room = WINDOW_BYTES - at % WINDOW_BYTES;
            let (part, after) = rest.split_at(rest.len().min(room as usize));
            self.write_within(at, part);
            at += part.len() as u64;
            rest = after;
        }
    }

    /// Writes bytes within one window, and merges the pieces that they touch (DIRTY-RANGES-2).
    fn write_within(&mut self, start: u64, bytes: &[u8]) {
        let end = start + bytes.len() as u64;
        let window = start - start % WINDOW_BYTES;
        // The fast path of an append: no piece follows.
        if let Some(mut last) = self.by_start.last_entry()
            && last.key() + last.get().len() as u64 == start
            && start > window
        {
            extend(last.get_mut(), bytes);
            return self.charge(self.bytes + bytes.len() as u64);
        }
        let before = self.by_start.range(window..=start).next_back();
        let before = before
            .filter(|(at, piece)| *at + piece.len() as u64 >= start)
            .map(|(at, _)| *at);
        let first = before.unwrap_or(start);
        let last = (window + WINDOW_BYTES - 1).min(end);
        let mut swallowed = Vec::new();
        while let Some((&next, _)) = self.by_start.range(first + 1..last + 1).next() {
            let behind = self.by_start.remove(&next).unwrap_or_default();
            swallowed.push((next, behind));
        }
        if before.is_none() {
            let piece = self.new_piece(start);
            self.by_start.insert(start, piece);
        }
        let piece = self.by_start.get_mut(&first).expect("found or made above");
        let mut grown = -(piece.len() as i64);
        let from = (start - first) as usize;
        let over = bytes.len().min(piece.len() - from);
        piece[from..from + over].copy_from_slice(&bytes[..over]);
        extend(piece, &bytes[over..]);
        for (next, behind) in swallowed {
            grown -= behind.len() as i64;
            let reached = first + piece.len() as u64;
            let known = ((reached - next) as usize).min(behind.len());
            extend(piece, &behind[known..]);
        }
        grown += piece.len() as i64;
        self.charge(self.bytes.saturating_add_signed(grown));
    }

    /// Discards the bytes in `range`.
    pub(crate) fn clear(&mut self, range: Range<u64>) {
        let hit: Vec<u64> = self
            .overlapping(range.clone())
            .map(|(start, _)| start)
            .collect();
        for start in hit {
            let Some(mut piece) = self.by_start.remove(&start) else {
                continue;
            };
            let end = start + piece.len() as u64;
            let mut bytes = self.bytes - piece.len() as u64;
            if range.end < end {
                let tail = piece.split_off((range.end.max(start) - start) as usize);
                bytes += tail.len() as u64;
                self.by_start.insert(range.end.max(start), tail);
            }
            if start < range.start {
                piece.truncate((range.start - start) as usize);
                bytes += piece.len() as u64;
                self.by_start.insert(start, piece);
            }
            self.charge(bytes);
        }
    }

    /// Copies the buffered bytes from `offset` on over `buf`.
    pub(crate) fn copy_to(&self, offset: u64, buf: &mut [u8]) {
        let end = offset + buf.len() as u64;
        for (start, piece) in self.overlapping(offset..end) {
            let from = start.max(offset);
            let to = (start + piece.len() as u64).min(end);
            let part = &piece[(from - start) as usize..(to - start) as usize];
            buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
        }
    }

    /// Subtracts the pieces from `gaps`, which are in ascending order.
    pub(crate) fn subtract_from(&self, gaps: &mut Vec<Range<u64>>) {
        if self.is_empty() {
            return;
        }
        let mut left = Vec::with_capacity(gaps.len());
        for gap in gaps.drain(..) {
            let mut at = gap.start;
            for (start, piece) in self.overlapping(gap.clone()) {
                if start > at {
                    left.push(at..start);
                }
                at = at.max(start + piece.len() as u64);
            }
            if at < gap.end {
                left.push(at..gap.end);
            }
        }
        *gaps = left;
    }

    /// Returns the length of all sectors in `range` that hold a buffered byte.
    pub(crate) fn sector_bytes(&self, range: Range<u64>, sectorsize: u64) -> u64 {
        let mut sum = 0;
        let mut at = range.start;
        for (start, piece) in self.overlapping(range.clone()) {
            let from = (start - start % sectorsize).max(at);
            let to = (start + piece.len() as u64).next_multiple_of(sectorsize);
            let to = to.min(range.end);
            sum += to.saturating_sub(from);
            at = at.max(to);
        }
        sum
    }
}

/// Appends to a piece. The capacity grows in few steps, as each one copies the piece.
fn extend(piece: &mut Vec<u8>, bytes: &[u8]) {
    let len = piece.len() + bytes.len();
    if len > piece.capacity() && !piece.is_empty() {
        let wanted = (piece.len() * 4).clamp(len, (WINDOW_BYTES as usize).max(len));
        piece.reserve_exact(wanted - piece.len());
    }
    piece.extend_from_slice(bytes);
}

//! The buffered data of one file, which has no extent yet.
//!
//! A write puts its bytes among the dirty pieces. A write-back takes the dirty pieces in flight, where
//! readers still find them, and drops them when they have extents. Data written during the write-back is
//! dirty again, and hides the older bytes in flight.
//!
//! Invariants
//! - BUFFER-1: pieces in flight do not change. Data is in flight only while the file's extents are locked.
//! - BUFFER-2: no piece reaches beyond the file's size. The size is the larger of the inode item's size and
//!   the end of the last piece.
//! - BUFFER-3: space is reserved for every dirty sector, for one more, and for the sectors in `ahead`.
//! - BUFFER-4: `count` holds exactly the sectors with buffered data.
//!
//! Locks: protected by the inode's lock.
//! Not here: the pieces (`dirty_ranges`), write-back (`write_back`), the list of dirty files (`dirty_files`).

use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::buffer_pool::{BufferPool, WINDOW_BYTES};
use super::count::DelallocCount;
use super::dirty_ranges::DirtyRanges;
use super::reservation::DelallocReservation;
use super::writeback_errors::WritebackErrors;

/// A write right behind a piece of this length is expected to be part of a sequential write.
const LONG_BYTES: usize = 16 << 10;

/// The buffered part of one file.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    dirty: DirtyRanges,
    in_flight: Option<Arc<DirtyRanges>>,
    delalloc: DelallocReservation,
    /// Reserved sectors that follow dirty ones in the same window. A sequential write needs no reservation
    /// there.
    ahead: Range<u64>,
    /// The size that a truncation in progress has given the file. The inode item still has a larger one.
    cut: Option<u64>,
    writeback_errors: WritebackErrors,
    /// BUFFER-4
    count: Mutex<DelallocCount>,
}

/// The buffered data that a write-back has taken, with its reservation.
#[derive(Debug)]
pub(crate) struct TakenBuffer {
    pub(crate) dirty_ranges: Arc<DirtyRanges>,
    pub(crate) delalloc: DelallocReservation,
}

impl WriteBuffer {
    /// Returns whether data is buffered, in flight or not.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || self.in_flight.is_some()
    }

    /// Returns whether it holds state that exists only in memory: buffered data, or an unreported write-back
    /// error.
    pub(crate) fn must_stay(&self) -> bool {
        self.is_dirty() || self.writeback_errors.is_unreported()
    }

    /// Returns the size of a file with `item_size` in its item (BUFFER-2).
    pub(crate) fn size_over(&self, item_size: u64) -> u64 {
        let in_flight = self.in_flight.as_ref().and_then(|ranges| ranges.end());
        let end = self.dirty.end().max(in_flight).unwrap_or(0);
        self.size_on_disk(item_size).max(end)
    }

    /// Returns the offset up to which extents count, for a file with `item_size` in its item.
    pub(crate) fn size_on_disk(&self, item_size: u64) -> u64 {
        self.cut.map_or(item_size, |cut| cut.min(item_size))
    }

    /// Buffers bytes for which `need_bytes` were reserved.
    pub(crate) fn write(
        &mut self,
        buffer_pool: &Arc<BufferPool>,
        offset: u64,
        bytes: &[u8],
        sectorsize: u64,
        mut delalloc: DelallocReservation,
    ) {
        if self.dirty.is_empty() {
            self.dirty = DirtyRanges::new(buffer_pool);
        }
        let end = offset + bytes.len() as u64;
        let sectors = sectors_of(offset..end, sectorsize);
        let known = self.dirty.sector_bytes(sectors.clone(), sectorsize);
        let spare = if self.dirty.is_empty() { sectorsize } else { 0 };
        let need = sectors.end - sectors.start - known + spare;
        debug_assert!(delalloc.data_bytes() >= need, "BUFFER-3");
        delalloc.shrink(delalloc.data_bytes().saturating_sub(need));
        self.delalloc.join(delalloc);
        self.dirty.write(offset, bytes);
        self.count.get_mut().add(sectors);
    }

    /// Returns whether a write of `range` needs no reservation. Its sectors are dirty, or they follow dirty
    /// ones and were reserved ahead.
    pub(crate) fn is_reserved(&self, range: Range<u64>, sectorsize: u64) -> bool {
        let sectors = sectors_of(range, sectorsize);
        let old_end = if self.continues_into_ahead(&sectors) {
            self.ahead.start
        } else {
            sectors.end
        };
        let old = sectors.start..old_end;
        old.is_empty() || self.dirty.sector_bytes(old.clone(), sectorsize) == old.end - old.start
    }

    /// Returns whether a write of `sectors` begins in dirty sectors or right behind them, and ends in those
    /// reserved ahead.
    fn continues_into_ahead(&self, sectors: &Range<u64>) -> bool {
        (sectors.start..sectors.end).contains(&self.ahead.start) && sectors.end <= self.ahead.end
    }

    /// Buffers bytes for which [`WriteBuffer::is_reserved`] is true.
    pub(crate) fn write_reserved(&mut self, offset: u64, bytes: &[u8], sectorsize: u64) {
        let sectors = sectors_of(offset..offset + bytes.len() as u64, sectorsize);
        if self.continues_into_ahead(&sectors) {
            self.ahead.start = sectors.end;
        }
        self.dirty.write(offset, bytes);
        self.count.get_mut().add(sectors);
    }

    /// Returns the bytes to reserve ahead of a write of `range`: the rest of the window if it continues a
    /// long piece, and 0 otherwise.
    pub(crate) fn wants_ahead(&self, range: Range<u64>, sectorsize: u64) -> u64 {
        let end = range.end.next_multiple_of(sectorsize);
        match self.dirty.last() {
            Some((start, piece))
                if piece.len() >= LONG_BYTES && start + piece.len() as u64 == range.start =>
            {
                end.next_multiple_of(WINDOW_BYTES) - end
            }
            _ => 0,
        }
    }

    /// Stores the reservation ahead of a write that ends at `end`. The previous one is released.
    pub(crate) fn reserve_ahead(
        &mut self,
        end: u64,
        sectorsize: u64,
        delalloc: DelallocReservation,
    ) {
        self.delalloc.shrink(self.ahead.end - self.ahead.start);
        let start = end.next_multiple_of(sectorsize);
        self.ahead = start..start + delalloc.data_bytes();
        self.delalloc.join(delalloc);
    }

    /// Returns the bytes to reserve for a write (BUFFER-3).
    pub(crate) fn need_bytes(offset: u64, len: u64, sectorsize: u64) -> u64 {
        let start = offset - offset % sectorsize;
        (offset + len).next_multiple_of(sectorsize) - start + sectorsize
    }

    /// Discards the dirty data in `range`. Its reservation stays until the next write-back, or is returned if
    /// nothing is dirty afterwards. It then covers at least one sector, which growing the file may need.
    pub(crate) fn forget(&mut self, range: Range<u64>, sectorsize: u64) -> DelallocReservation {
        self.dirty.clear(range.clone());
        self.recount(sectors_of(range, sectorsize), sectorsize);
        if !self.dirty.is_empty() {
            return DelallocReservation::default();
        }
        self.ahead = 0..0;
        std::mem::take(&mut self.delalloc)
    }

    /// Updates the count for a range of sectors (BUFFER-4).
    fn recount(&mut self, sectors: Range<u64>, sectorsize: u64) {
        let count = self.count.get_mut();
        count.remove(sectors.clone());
        for ranges in [Some(&self.dirty), self.in_flight.as_deref()] {
            let pieces = ranges.into_iter();
            for (start, piece) in pieces.flat_map(|all| all.overlapping(sectors.clone())) {
                let piece = sectors_of(start..start + piece.len() as u64, sectorsize);
                count.add(piece.start.max(sectors.start)..piece.end.min(sectors.end));
            }
        }
    }

    /// Returns the count of buffered sectors without space.
    pub(crate) fn count(&self) -> MutexGuard<'_, DelallocCount> {
        self.count.lock()
    }

    /// Takes all dirty data in flight (BUFFER-1). Returns None if nothing is dirty.
    pub(crate) fn take(&mut self) -> Option<TakenBuffer> {
        debug_assert!(self.in_flight.is_none(), "BUFFER-1");
        if self.dirty.is_empty() {
            return None;
        }
        let dirty_ranges = Arc::new(std::mem::take(&mut self.dirty));
        self.in_flight = Some(Arc::clone(&dirty_ranges));
        let delalloc = std::mem::take(&mut self.delalloc);
        self.ahead = 0..0;
        Some(TakenBuffer {
            dirty_ranges,
            delalloc,
        })
    }

    /// Puts the pieces of a single write in flight, without making them dirty (BUFFER-1).
    pub(crate) fn put_in_flight(
        &mut self,
        dirty_ranges: DirtyRanges,
        sectorsize: u64,
    ) -> Arc<DirtyRanges> {
        debug_assert!(self.in_flight.is_none(), "BUFFER-1");
        let dirty_ranges = Arc::new(dirty_ranges);
        let count = self.count.get_mut();
        for (start, piece) in dirty_ranges.iter() {
            count.add(sectors_of(start..start + piece.len() as u64, sectorsize));
        }
        self.in_flight = Some(Arc::clone(&dirty_ranges));
        dirty_ranges
    }

    /// Drops the data in flight, which has its extents now or is lost.
    pub(crate) fn complete(&mut self, sectorsize: u64) {
        let Some(in_flight) = self.in_flight.take() else {
            return;
        };
        // Other sectors may be many.
        for (start, piece) in in_flight.iter() {
            let end = start + piece.len() as u64;
            self.recount(sectors_of(start..end, sectorsize), sectorsize);
        }
    }

    /// Sets the size that limits extents during a truncation.
    pub(crate) fn set_cut(&mut self, cut: Option<u64>) {
        self.cut = cut;
    }

    /// Returns whether any byte of `range` is buffered.
    pub(crate) fn touches(&self, range: Range<u64>) -> bool {
        let in_flight = self.in_flight.as_ref();
        self.dirty.overlapping(range.clone()).next().is_some()
            || in_flight.is_some_and(|ranges| ranges.overlapping(range).next().is_some())
    }

    /// Returns the buffered sectors that overlap `range`, ascending and apart. They may reach beyond it.
    pub(crate) fn sectors_in(&self, range: Range<u64>, sectorsize: u64) -> Vec<Range<u64>> {
        let range = sectors_of(range, sectorsize);
        let sectors = |(start, piece): (u64, &[u8])| {
            sectors_of(start..start + piece.len() as u64, sectorsize)
        };
        let dirty = self.dirty.overlapping(range.clone());
        let mut all: Vec<Range<u64>> = dirty.map(sectors).collect();
        if let Some(in_flight) = &self.in_flight {
            all.extend(in_flight.overlapping(range).map(sectors));
            all.sort_unstable_by_key(|range| range.start);
        }
        all.dedup_by(|next, before| {
            let touches = next.start <= before.end;
            if touches {
                before.end = before.end.max(next.end);
            }
            touches
        });
        all
    }

    /// Copies the buffered bytes from `offset` on over `buf`. Returns the parts that are not buffered.
    pub(crate) fn copy_to(&self, offset: u64, buf: &mut [u8]) -> Vec<Range<u64>> {
        let mut gaps = Vec::with_capacity(1);
        if !buf.is_empty() {
            gaps.push(offset..offset + buf.len() as u64);
        }
        if let Some(in_flight) = &self.in_flight {
            in_flight.copy_to(offset, buf);
            in_flight.subtract_from(&mut gaps);
        }
        self.dirty.copy_to(offset, buf);
        self.dirty.subtract_from(&mut gaps);
        gaps
    }

    /// Returns the first buffered byte at or above `offset`.
    pub(crate) fn next_data(&self, offset: u64) -> Option<u64> {
        let first = |ranges: &DirtyRanges| {
            let next = ranges.overlapping(offset..u64::MAX).next();
            next.map(|(start, _)| start.max(offset))
        };
        let in_flight = self.in_flight.as_deref().and_then(first);
        match (first(&self.dirty), in_flight) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Returns the first byte at or above `offset` that is not buffered.
    pub(crate) fn next_gap(&self, offset: u64) -> u64 {
        let mut at = offset;
        loop {
            let end = |ranges: &DirtyRanges| {
                let piece = ranges.overlapping(at..at + 1).next();
                piece.map(|(start, piece)| start + piece.len() as u64)
            };
            let in_flight = self.in_flight.as_deref().and_then(end);
            match end(&self.dirty).max(in_flight) {
                Some(end) => at = end,
                None => return at,
            }
        }
    }

    pub(crate) fn writeback_errors(&self) -> &WritebackErrors {
        &self.writeback_errors
    }

    pub(crate) fn writeback_errors_mut(&mut self) -> &mut WritebackErrors {
        &mut self.writeback_errors
    }
}

fn sectors_of(range: Range<u64>, sectorsize: u64) -> Range<u64> {
    let end = range.end.checked_next_multiple_of(sectorsize);
    range.start - range.start % sectorsize..end.unwrap_or(u64::MAX)
}

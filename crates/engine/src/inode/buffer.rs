//! Written data that has no extent yet, of one file.
//!
//! A write puts its bytes among the dirty pieces. A write-back takes these in flight, where readers still
//! find them, gives them extents, and lets go of them. Data that is written meanwhile is dirty again and lies
//! over what is in flight.
//!
//! Invariants
//! - BUFFER-1: what is in flight is not changed; there is something in flight only while the file's extents
//!   are locked.
//! - BUFFER-2: no piece reaches beyond the file's size: the size is the inode item's, or where the last piece
//!   ends if that is more.
//! - BUFFER-3: space is reserved for every dirty sector, for one more, and for those in `ahead`.
//! - BUFFER-4: `count` has exactly the sectors of which anything is buffered.
//!
//! Locks: the inode's protects it.
//! Not here: the pieces (`dirty_ranges`), giving them extents (`write_back`), which files have any (`dirty`).

use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::delalloc_count::DelallocCount;
use super::delalloc_reservation::DelallocReservation;
use super::dirty::DirtyFiles;
use super::dirty_ranges::{DirtyRanges, WINDOW_BYTES};
use super::writeback_errors::WritebackErrors;

/// Length of a piece from which a write right behind it is expected to be followed by more.
const LONG_BYTES: usize = 16 << 10;

/// The buffered part of one file.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    dirty: DirtyRanges,
    in_flight: Option<Arc<DirtyRanges>>,
    delalloc: DelallocReservation,
    /// Whole sectors behind dirty ones, in the same window. A write that continues there needs no reservation.
    ahead: Range<u64>,
    /// The size that a truncation under way has given the file, while its item still says another.
    cut: Option<u64>,
    writeback_errors: WritebackErrors,
    /// BUFFER-4
    count: Mutex<DelallocCount>,
}

/// The work of a write-back.
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

    /// Returns whether it holds what is nowhere else: data, or a loss of data that has not been reported.
    pub(crate) fn must_stay(&self) -> bool {
        self.is_dirty() || self.writeback_errors.is_unreported()
    }

    /// Returns the size of the file whose item says `item_size` (BUFFER-2).
    pub(crate) fn size_over(&self, item_size: u64) -> u64 {
        let in_flight = self
            .in_flight
            .as_ref()
            .and_then(|dirty_ranges| dirty_ranges.end());
        let end = self.dirty.end().max(in_flight).unwrap_or(0);
        self.size_on_disk(item_size).max(end)
    }

    /// Returns the size up to which extents count, given the size in the item.
    pub(crate) fn size_on_disk(&self, item_size: u64) -> u64 {
        self.cut.map_or(item_size, |cut| cut.min(item_size))
    }

    /// Buffers bytes for which `need_bytes` were reserved.
    pub(crate) fn write(
        &mut self,
        files: &DirtyFiles,
        offset: u64,
        bytes: &[u8],
        sectorsize: u64,
        mut delalloc: DelallocReservation,
    ) {
        if self.dirty.is_empty() {
            self.dirty = DirtyRanges::new(files.buffer_pool());
        }
        let end = offset + bytes.len() as u64;
        let sectors = sectors_of(offset..end, sectorsize);
        let known = self.dirty.sector_bytes(sectors.clone(), sectorsize);
        let spare = match self.dirty.is_empty() {
            true => sectorsize,
            false => 0,
        };
        let need = sectors.end - sectors.start - known + spare;
        debug_assert!(delalloc.data_bytes() >= need, "BUFFER-3");
        delalloc.shrink(delalloc.data_bytes().saturating_sub(need));
        self.delalloc.join(delalloc);
        self.dirty.write(offset, bytes);
        self.count.get_mut().add(sectors);
    }

    /// Returns whether bytes in `range` need no reservation: their sectors are dirty, or come next and were reserved
    /// ahead.
    pub(crate) fn is_reserved(&self, range: Range<u64>, sectorsize: u64) -> bool {
        let sectors = sectors_of(range, sectorsize);
        let old_end = match self.goes_on(&sectors) {
            true => self.ahead.start,
            false => sectors.end,
        };
        let old = sectors.start..old_end;
        old.is_empty() || self.dirty.sector_bytes(old.clone(), sectorsize) == old.end - old.start
    }

    /// Returns whether a write of `sectors` begins at dirty ones, or right behind, and ends in those that were reserved
    /// ahead.
    fn goes_on(&self, sectors: &Range<u64>) -> bool {
        (sectors.start..sectors.end).contains(&self.ahead.start) && sectors.end <= self.ahead.end
    }

    /// Buffers bytes that [`WriteBuffer::is_reserved`].
    pub(crate) fn write_reserved(&mut self, offset: u64, bytes: &[u8], sectorsize: u64) {
        let sectors = sectors_of(offset..offset + bytes.len() as u64, sectorsize);
        if self.goes_on(&sectors) {
            self.ahead.start = sectors.end;
        }
        self.dirty.write(offset, bytes);
        self.count.get_mut().add(sectors);
    }

    /// Returns the bytes to reserve ahead with a write of `range`. A write that continues a long piece gets the rest of
    /// the window, any other nothing.
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

    /// Keeps what was reserved ahead with a write that ends at `end`, in the place of what was before.
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

    /// Returns how much space a write must be reserved (BUFFER-3).
    pub(crate) fn need_bytes(offset: u64, len: u64, sectorsize: u64) -> u64 {
        let start = offset - offset % sectorsize;
        (offset + len).next_multiple_of(sectorsize) - start + sectorsize
    }

    /// Forgets what is dirty in `range`. Its reservation stays until the next write-back. If nothing is
    /// dirty any more, returns the reservation: of a sector at least, which making the file longer may take.
    pub(crate) fn forget(&mut self, range: Range<u64>, sectorsize: u64) -> DelallocReservation {
        self.dirty.clear(range.clone());
        self.recount(sectors_of(range, sectorsize), sectorsize);
        if !self.dirty.is_empty() {
            return DelallocReservation::default();
        }
        self.ahead = 0..0;
        std::mem::take(&mut self.delalloc)
    }

    /// Counts the sectors of a range anew (BUFFER-4).
    fn recount(&mut self, sectors: Range<u64>, sectorsize: u64) {
        let count = self.count.get_mut();
        count.remove(sectors.clone());
        for dirty_ranges in [Some(&self.dirty), self.in_flight.as_deref()] {
            let pieces = dirty_ranges.into_iter();
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

    /// Takes all that is dirty in flight (BUFFER-1); None if nothing is.
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

    /// Puts the pieces of a single write in flight, past what is dirty (BUFFER-1).
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

    /// Notes that data in flight has its extents, or is lost.
    pub(crate) fn complete(&mut self, sectorsize: u64) {
        self.in_flight = None;
        self.recount(0..u64::MAX, sectorsize);
    }

    /// Sets the size that limits extents while a truncation goes on.
    pub(crate) fn set_cut(&mut self, cut: Option<u64>) {
        self.cut = cut;
    }

    /// Returns whether a piece holds anything of `range`.
    pub(crate) fn touches(&self, range: Range<u64>) -> bool {
        let in_flight = self.in_flight.as_ref();
        self.dirty.overlapping(range.clone()).next().is_some()
            || in_flight
                .is_some_and(|dirty_ranges| dirty_ranges.overlapping(range).next().is_some())
    }

    /// Returns the sectors of which anything is buffered, ascending and apart.
    pub(crate) fn sectors(&self, sectorsize: u64) -> Vec<Range<u64>> {
        let sectors = |(start, piece): (u64, &[u8])| {
            sectors_of(start..start + piece.len() as u64, sectorsize)
        };
        let mut all: Vec<Range<u64>> = self.dirty.iter().map(sectors).collect();
        if let Some(in_flight) = &self.in_flight {
            all.extend(in_flight.iter().map(sectors));
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

    /// Copies what is buffered over `buf`, which stands for the file from `offset` on. Returns the parts that
    /// are not buffered.
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
        let first = |dirty_ranges: &DirtyRanges| {
            let next = dirty_ranges.overlapping(offset..u64::MAX).next();
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
            let end = |dirty_ranges: &DirtyRanges| {
                let piece = dirty_ranges.overlapping(at..at + 1).next();
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

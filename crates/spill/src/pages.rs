//! A sparse array of records in pages. Pages that were not used recently are moved to a sparse file.

use std::collections::HashMap;
use std::io;

use crate::file::SpillFile;
use crate::scratch_dir::ScratchDir;

#[cfg(test)]
mod tests;

/// A record of a fixed size that can be written to a file.
pub trait PageRecord: Copy {
    /// The size in the file.
    const BYTES: usize;

    fn write(&self, bytes: &mut [u8]);
    fn read(bytes: &[u8]) -> Self;
}

impl PageRecord for u8 {
    const BYTES: usize = 1;

    fn write(&self, bytes: &mut [u8]) {
        bytes[0] = *self;
    }

    fn read(bytes: &[u8]) -> u8 {
        bytes[0]
    }
}

impl PageRecord for u32 {
    const BYTES: usize = 4;

    fn write(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> u32 {
        bytes
            .first_chunk()
            .map_or(0, |&bytes| u32::from_le_bytes(bytes))
    }
}

/// The page size and the memory budget.
#[derive(Clone, Copy, Debug)]
pub struct Paging {
    /// Number of records in a page; a power of two.
    pub page_records: usize,
    /// At least two pages are in memory.
    pub memory_bytes: usize,
}

/// Pages that were never changed consist of records that were read from zeros.
#[derive(Debug)]
pub struct Pages<T> {
    page_records: usize,
    /// Maximum number of pages in memory.
    most: usize,
    /// The frames of the pages in memory, by number of the page.
    held: HashMap<u64, usize, foldhash::fast::RandomState>,
    /// The frame that was used last.
    last: usize,
    frames: Vec<Frame<T>>,
    /// The position of the clock hand.
    hand: usize,
    file: SpillFile,
    /// A page in the file's format.
    buffer: Vec<u8>,
}

/// Room for a page.
#[derive(Debug)]
struct Frame<T> {
    /// None after an error.
    number: Option<u64>,
    records: Vec<T>,
    is_changed: bool,
    was_used: bool,
}

impl<T: PageRecord> Pages<T> {
    pub fn new(scratch_dir: &ScratchDir, paging: Paging) -> Pages<T> {
        debug_assert!(paging.page_records.is_power_of_two());
        let page_bytes = paging.page_records * size_of::<T>();
        Pages {
            page_records: paging.page_records,
            most: (paging.memory_bytes / page_bytes).max(2),
            held: HashMap::default(),
            last: 0,
            frames: Vec::new(),
            hand: 0,
            file: SpillFile::new(scratch_dir),
            buffer: vec![0; paging.page_records * T::BYTES],
        }
    }

    /// Returns whether no page was ever used.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub fn read(&mut self, number: u64) -> io::Result<&[T]> {
        let frame = self.frame(number)?;
        Ok(&self.frames[frame].records)
    }

    pub fn change(&mut self, number: u64) -> io::Result<&mut [T]> {
        let frame = self.frame(number)?;
        let frame = &mut self.frames[frame];
        frame.is_changed = true;
        Ok(&mut frame.records)
    }

    /// Adds a page that was never used, with copies of a record.
    pub(crate) fn add(&mut self, number: u64, record: T) -> io::Result<&mut [T]> {
        let frame = self.free_frame()?;
        let len = self.page_records;
        self.fill(frame, number, |records| records.resize(len, record));
        let frame = &mut self.frames[frame];
        frame.is_changed = true;
        Ok(&mut frame.records)
    }

    /// Finds the frame of a page, and loads the page if necessary.
    fn frame(&mut self, number: u64) -> io::Result<usize> {
        // Consecutive uses of one page are common, and need no search.
        let last = self.frames.get_mut(self.last);
        if let Some(last) = last.filter(|frame| frame.number == Some(number)) {
            last.was_used = true;
            return Ok(self.last);
        }
        if let Some(&frame) = self.held.get(&number) {
            self.frames[frame].was_used = true;
            self.last = frame;
            return Ok(frame);
        }
        let frame = self.free_frame()?;
        if self.file.exists() {
            let at = self.offset(number)?;
            self.file.read_sparse_at(&mut self.buffer, at)?;
        } else {
            self.buffer.fill(0);
        }
        let buffer = std::mem::take(&mut self.buffer);
        let records = buffer.chunks_exact(T::BYTES).map(T::read);
        self.fill(frame, number, |page| page.extend(records));
        self.buffer = buffer;
        Ok(frame)
    }

    fn fill(&mut self, frame: usize, number: u64, fill: impl FnOnce(&mut Vec<T>)) {
        self.held.insert(number, frame);
        self.last = frame;
        let frame = &mut self.frames[frame];
        frame.number = Some(number);
        frame.is_changed = false;
        frame.was_used = true;
        frame.records.clear();
        fill(&mut frame.records);
    }

    /// Returns a new frame, or one of a page that was not used recently.
    fn free_frame(&mut self) -> io::Result<usize> {
        // SPILL-1
        if self.frames.len() < self.most {
            self.frames.push(Frame {
                number: None,
                records: Vec::with_capacity(self.page_records),
                is_changed: false,
                was_used: false,
            });
            return Ok(self.frames.len() - 1);
        }
        loop {
            self.hand = (self.hand + 1) % self.frames.len();
            // Second chance: a page that was used since the last round stays.
            if !std::mem::take(&mut self.frames[self.hand].was_used) {
                break;
            }
        }
        self.evict(self.hand)?;
        Ok(self.hand)
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.frames.len()
    }

    fn evict(&mut self, at: usize) -> io::Result<()> {
        let Some(number) = self.frames[at].number else {
            return Ok(());
        };
        if self.frames[at].is_changed {
            let offset = self.offset(number)?;
            let parts = self.buffer.chunks_exact_mut(T::BYTES);
            for (record, bytes) in self.frames[at].records.iter().zip(parts) {
                record.write(bytes);
            }
            self.file.write_all_at(&self.buffer, offset)?;
        }
        self.held.remove(&number);
        self.frames[at].number = None;
        Ok(())
    }

    /// Returns the offset of a page in the file. Numbers from a damaged tree may exceed all file offsets.
    fn offset(&self, number: u64) -> io::Result<u64> {
        let page_bytes = self.buffer.len() as u64;
        let end = number
            .checked_add(1)
            .and_then(|next| next.checked_mul(page_bytes));
        let end = end.filter(|&end| i64::try_from(end).is_ok());
        let end = end.ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(end - page_bytes)
    }
}

//! A vector of fixed-size records with bounded memory. Pages that were not used recently are moved to an unnamed file.
//!
//! Not here: the meaning of the records.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// A record that can be written to a file.
pub(super) trait Record: Copy {
    /// The size in the file.
    const BYTES: usize;

    fn write(&self, bytes: &mut [u8]);
    fn read(bytes: &[u8]) -> Self;
}

impl Record for u8 {
    const BYTES: usize = 1;

    fn write(&self, bytes: &mut [u8]) {
        bytes[0] = *self;
    }

    fn read(bytes: &[u8]) -> u8 {
        bytes[0]
    }
}

impl Record for u32 {
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
pub(super) struct Paging {
    /// Number of records in a page; a power of two.
    pub(super) page_records: usize,
    pub(super) memory_bytes: usize,
}

#[derive(Debug)]
pub(super) struct Paged<T> {
    page_shift: u32,
    len: u64,
    pages: RefCell<Pages<T>>,
}

#[derive(Debug)]
struct Pages<T> {
    scratch_dir: PathBuf,
    /// Maximum number of pages in memory.
    most: usize,
    /// All pages, by index.
    pages: Vec<Page<T>>,
    /// The pages in memory, and the position of the clock hand.
    held: Vec<u32>,
    hand: usize,
    file: Option<File>,
    /// A page in the file's format.
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Page<T> {
    /// None if it is only in the file.
    records: Option<Box<[T]>>,
    is_changed: bool,
    was_used: bool,
}

impl<T: Record + std::fmt::Debug> Paged<T> {
    /// Creates an empty vector. Its file is created in `scratch_dir` when it is first needed, and removed with the
    /// vector.
    pub(super) fn new(scratch_dir: &Path, paging: Paging) -> Paged<T> {
        debug_assert!(paging.page_records.is_power_of_two());
        let page_bytes = paging.page_records * size_of::<T>();
        let pages = Pages {
            scratch_dir: scratch_dir.to_owned(),
            most: (paging.memory_bytes / page_bytes).max(2),
            pages: Vec::new(),
            held: Vec::new(),
            hand: 0,
            file: None,
            buffer: Vec::new(),
        };
        Paged {
            page_shift: paging.page_records.trailing_zeros(),
            len: 0,
            pages: RefCell::new(pages),
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    fn place(&self, at: u64) -> (usize, usize) {
        assert!(at < self.len, "there is no record {at}");
        ((at >> self.page_shift) as usize, self.within(at))
    }

    fn within(&self, at: u64) -> usize {
        (at & ((1 << self.page_shift) - 1)) as usize
    }

    pub(super) fn get(&self, at: u64) -> io::Result<T> {
        let (page, within) = self.place(at);
        let pages = &mut *self.pages.borrow_mut();
        Ok(pages.page(page)?[within])
    }

    pub(super) fn update<R>(&mut self, at: u64, change: impl FnOnce(&mut T) -> R) -> io::Result<R> {
        let (page, within) = self.place(at);
        let pages = self.pages.get_mut();
        let outcome = change(&mut pages.page(page)?[within]);
        pages.pages[page].is_changed = true;
        Ok(outcome)
    }

    pub(super) fn set(&mut self, at: u64, record: T) -> io::Result<()> {
        self.update(at, |there| *there = record)
    }

    /// Appends a record, and returns its index.
    pub(super) fn push(&mut self, record: T) -> io::Result<u64> {
        self.push_row(&[record])
    }

    /// Calls `look` with consecutive records in one page, and returns its result.
    pub(super) fn with<R>(
        &self,
        at: u64,
        len: usize,
        look: impl FnOnce(&[T]) -> R,
    ) -> io::Result<R> {
        if len == 0 {
            return Ok(look(&[]));
        }
        let (page, within) = self.place(at);
        let pages = &mut *self.pages.borrow_mut();
        Ok(look(&pages.page(page)?[within..within + len]))
    }

    /// Appends consecutive records to one page, which must be able to hold them. Begins a new page if the current one
    /// has too little room. Returns the index of the first record.
    pub(super) fn push_row(&mut self, records: &[T]) -> io::Result<u64> {
        let Some(&first) = records.first() else {
            return Ok(self.len);
        };
        let page_records = 1 << self.page_shift;
        assert!(records.len() <= page_records, "a row fits a page");
        let within = self.within(self.len);
        if within + records.len() > page_records {
            self.len += (page_records - within) as u64;
        }
        let (at, within) = (self.len, self.within(self.len));
        let pages = self.pages.get_mut();
        if within == 0 {
            pages.add(vec![first; page_records].into())?;
        }
        let number = (at >> self.page_shift) as usize;
        pages.page(number)?[within..within + records.len()].copy_from_slice(records);
        pages.pages[number].is_changed = true;
        self.len += records.len() as u64;
        Ok(at)
    }
}

impl<T: Record> Pages<T> {
    /// Loads a page into memory if necessary.
    fn page(&mut self, number: usize) -> io::Result<&mut [T]> {
        if self.pages[number].records.is_none() {
            self.load(number)?;
        }
        let page = &mut self.pages[number];
        page.was_used = true;
        Ok(page.records.as_deref_mut().expect("loaded above"))
    }

    fn add(&mut self, records: Box<[T]>) -> io::Result<()> {
        self.evict()?;
        self.held.push(self.pages.len() as u32);
        self.pages.push(Page {
            records: Some(records),
            is_changed: true,
            was_used: true,
        });
        Ok(())
    }

    fn load(&mut self, number: usize) -> io::Result<()> {
        self.evict()?;
        let file = self
            .file
            .as_ref()
            .expect("a page that is not in memory was written");
        let at = (number * self.buffer.len()) as u64;
        file.read_exact_at(&mut self.buffer, at)?;
        let records = self.buffer.chunks_exact(T::BYTES).map(T::read);
        self.pages[number].records = Some(records.collect());
        self.pages[number].is_changed = false;
        self.held.push(number as u32);
        Ok(())
    }

    /// Evicts pages until there is room for another one.
    fn evict(&mut self) -> io::Result<()> {
        while self.held.len() >= self.most {
            if self.hand >= self.held.len() {
                self.hand = 0;
            }
            let number = self.held[self.hand] as usize;
            let page = &mut self.pages[number];
            // Second chance: a page that was used since the last round stays.
            if std::mem::take(&mut page.was_used) {
                self.hand += 1;
                continue;
            }
            if let Some(records) = page.records.take()
                && page.is_changed
            {
                self.buffer.resize(records.len() * T::BYTES, 0);
                let parts = self.buffer.chunks_exact_mut(T::BYTES);
                for (record, bytes) in records.iter().zip(parts) {
                    record.write(bytes);
                }
                let file = match &self.file {
                    Some(file) => file,
                    None => self.file.insert(tempfile::tempfile_in(&self.scratch_dir)?),
                };
                file.write_all_at(&self.buffer, (number * self.buffer.len()) as u64)?;
            }
            self.held.swap_remove(self.hand);
        }
        Ok(())
    }
}

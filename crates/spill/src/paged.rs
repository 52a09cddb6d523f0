//! A vector of fixed-size records in bounded memory, on pages.

use std::cell::RefCell;
use std::io;

use crate::pages::{PageRecord, Pages, Paging};
use crate::scratch_dir::ScratchDir;

#[cfg(test)]
mod tests;

#[derive(Debug)]
pub struct Paged<T> {
    page_shift: u32,
    len: u64,
    pages: RefCell<Pages<T>>,
}

impl<T: PageRecord> Paged<T> {
    /// Creates an empty vector.
    pub fn new(scratch_dir: &ScratchDir, paging: Paging) -> Paged<T> {
        Paged {
            page_shift: paging.page_records.trailing_zeros(),
            len: 0,
            pages: RefCell::new(Pages::new(scratch_dir, paging)),
        }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn place(&self, at: u64) -> (u64, usize) {
        assert!(at < self.len, "there is no record {at}");
        (at >> self.page_shift, self.within(at))
    }

    fn within(&self, at: u64) -> usize {
        (at & ((1 << self.page_shift) - 1)) as usize
    }

    pub fn get(&self, at: u64) -> io::Result<T> {
        let (page, within) = self.place(at);
        Ok(self.pages.borrow_mut().read(page)?[within])
    }

    pub fn update<R>(&mut self, at: u64, change: impl FnOnce(&mut T) -> R) -> io::Result<R> {
        let (page, within) = self.place(at);
        Ok(change(&mut self.pages.get_mut().change(page)?[within]))
    }

    pub fn set(&mut self, at: u64, record: T) -> io::Result<()> {
        self.update(at, |there| *there = record)
    }

    /// Appends a record, and returns its index.
    pub fn push(&mut self, record: T) -> io::Result<u64> {
        self.push_row(&[record])
    }

    /// Calls `look` with consecutive records in one page, and returns its result.
    pub fn with<R>(&self, at: u64, len: usize, look: impl FnOnce(&[T]) -> R) -> io::Result<R> {
        if len == 0 {
            return Ok(look(&[]));
        }
        let (page, within) = self.place(at);
        let pages = &mut *self.pages.borrow_mut();
        Ok(look(&pages.read(page)?[within..within + len]))
    }

    /// Appends consecutive records to one page, which must be able to hold them. Begins a new page if the current one
    /// has too little room. Returns the index of the first record.
    pub fn push_row(&mut self, records: &[T]) -> io::Result<u64> {
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
        let number = at >> self.page_shift;
        let pages = self.pages.get_mut();
        let page = if within == 0 {
            pages.add(number, first)?
        } else {
            pages.change(number)?
        };
        page[within..within + records.len()].copy_from_slice(records);
        self.len += records.len() as u64;
        Ok(at)
    }
}

//! Collections of inode numbers in bounded memory, which spill to unnamed temporary files.
//!
//! The memory of a collection has a fixed limit, however many numbers it has (SPILL-1).

mod list;
mod pages;
#[cfg(test)]
mod tests;

use std::io;

use super::error::Result;
pub(super) use list::InodeList;
use pages::{PAGE_BYTES, Pages};

/// A set of inode numbers. Dense ranges use one bit per number.
#[derive(Debug, Default)]
pub(super) struct InodeSet {
    pages: Pages,
}

/// A small count for each inode, initially 0.
#[derive(Debug, Default)]
pub(super) struct InodeCounts {
    pages: Pages,
}

/// Inode numbers without duplicates, in insertion order.
#[derive(Debug, Default)]
pub(super) struct FirstSeen {
    seen: InodeSet,
    list: InodeList,
}

const BITS_A_PAGE: u64 = PAGE_BYTES as u64 * 8;
const COUNT_BYTES: usize = size_of::<u32>();
const COUNTS_A_PAGE: u64 = (PAGE_BYTES / COUNT_BYTES) as u64;

/// Returns the location of an inode's bit: page, byte and mask.
fn place_of_bit(ino: u64) -> (u64, usize, u8) {
    let bit = ino % BITS_A_PAGE;
    (ino / BITS_A_PAGE, (bit / 8) as usize, 1 << (bit % 8))
}

impl InodeSet {
    pub(super) fn contains(&mut self, ino: u64) -> io::Result<bool> {
        if self.pages.is_empty() {
            return Ok(false);
        }
        let (page, byte, mask) = place_of_bit(ino);
        Ok(self.pages.read(page)?[byte] & mask != 0)
    }

    /// Adds an inode. Returns false if the set had it already.
    pub(super) fn insert(&mut self, ino: u64) -> io::Result<bool> {
        let (page, byte, mask) = place_of_bit(ino);
        let is_new = self.pages.read(page)?[byte] & mask == 0;
        if is_new {
            self.pages.change(page)?[byte] |= mask;
        }
        Ok(is_new)
    }

    pub(super) fn remove(&mut self, ino: u64) -> io::Result<()> {
        if self.contains(ino)? {
            let (page, byte, mask) = place_of_bit(ino);
            self.pages.change(page)?[byte] &= !mask;
        }
        Ok(())
    }
}

impl InodeCounts {
    pub(super) fn get(&mut self, ino: u64) -> io::Result<u32> {
        let (page, at) = place_of_count(ino);
        let bytes = self.pages.read(page)?;
        let mut count = [0; COUNT_BYTES];
        count.copy_from_slice(&bytes[at..at + COUNT_BYTES]);
        Ok(u32::from_le_bytes(count))
    }

    pub(super) fn set(&mut self, ino: u64, count: u32) -> io::Result<()> {
        let (page, at) = place_of_count(ino);
        self.pages.change(page)?[at..at + COUNT_BYTES].copy_from_slice(&count.to_le_bytes());
        Ok(())
    }
}

/// Returns the location of an inode's count: page and byte.
fn place_of_count(ino: u64) -> (u64, usize) {
    let at = (ino % COUNTS_A_PAGE) as usize * COUNT_BYTES;
    (ino / COUNTS_A_PAGE, at)
}

impl FirstSeen {
    pub(super) fn add(&mut self, ino: u64) -> io::Result<()> {
        match self.seen.insert(ino)? {
            true => self.list.push(ino),
            false => Ok(()),
        }
    }

    /// Removes a number that was added and will not be added again.
    pub(super) fn forget(&mut self, ino: u64) -> io::Result<()> {
        self.seen.remove(ino)
    }

    /// Calls `each` for all remaining numbers, in insertion order.
    pub(super) fn into_each(mut self, mut each: impl FnMut(u64) -> Result<()>) -> Result<()> {
        for ino in self.list.iter() {
            let ino = ino?;
            if self.seen.contains(ino)? {
                each(ino)?;
            }
        }
        Ok(())
    }
}

//! Collections of inode numbers in bounded memory, which spill to unnamed temporary files.
//!
//! The memory of a collection has a fixed limit, however many numbers it has (SPILL-1).

#[cfg(test)]
mod tests;

use std::io;

use ubtrfs_spill::{Log, Pages, Paging, ScratchDir};

use super::error::Result;

/// Maximum memory of a list.
const LIST_BYTES: usize = 64 << 10;
/// Maximum memory of a set, or of counts.
const PAGES_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;

/// Inode numbers in insertion order.
#[derive(Debug)]
pub(super) struct InodeList {
    log: Log,
}

/// A set of inode numbers. Dense ranges use one bit per number.
#[derive(Debug)]
pub(super) struct InodeSet {
    pages: Pages<u8>,
}

/// A small count for each inode, initially 0.
#[derive(Debug)]
pub(super) struct InodeCounts {
    pages: Pages<u32>,
}

/// Inode numbers without duplicates, in insertion order.
#[derive(Debug)]
pub(super) struct FirstSeen {
    seen: InodeSet,
    list: InodeList,
}

const BITS_A_PAGE: u64 = PAGE_BYTES as u64 * 8;
const COUNTS_A_PAGE: u64 = (PAGE_BYTES / size_of::<u32>()) as u64;

impl InodeList {
    pub(super) fn new(scratch_dir: &ScratchDir) -> InodeList {
        let log = Log::new(scratch_dir, LIST_BYTES);
        InodeList { log }
    }

    pub(super) fn push(&mut self, ino: u64) -> io::Result<()> {
        self.log.push(&ino.to_le_bytes())?;
        Ok(())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = io::Result<u64>> {
        let mut reader = self.log.read();
        std::iter::from_fn(move || {
            let is_over = reader.is_at_end();
            (!is_over).then(|| reader.array().map(u64::from_le_bytes))
        })
    }
}

/// Returns the location of an inode's bit: page, byte and mask.
fn place_of_bit(ino: u64) -> (u64, usize, u8) {
    let bit = ino % BITS_A_PAGE;
    (ino / BITS_A_PAGE, (bit / 8) as usize, 1 << (bit % 8))
}

impl InodeSet {
    pub(super) fn new(scratch_dir: &ScratchDir) -> InodeSet {
        let paging = Paging {
            page_records: PAGE_BYTES,
            memory_bytes: PAGES_BYTES,
        };
        InodeSet {
            pages: Pages::new(scratch_dir, paging),
        }
    }

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
    pub(super) fn new(scratch_dir: &ScratchDir) -> InodeCounts {
        let paging = Paging {
            page_records: COUNTS_A_PAGE as usize,
            memory_bytes: PAGES_BYTES,
        };
        InodeCounts {
            pages: Pages::new(scratch_dir, paging),
        }
    }

    pub(super) fn get(&mut self, ino: u64) -> io::Result<u32> {
        let counts = self.pages.read(ino / COUNTS_A_PAGE)?;
        Ok(counts[(ino % COUNTS_A_PAGE) as usize])
    }

    pub(super) fn set(&mut self, ino: u64, count: u32) -> io::Result<()> {
        let counts = self.pages.change(ino / COUNTS_A_PAGE)?;
        counts[(ino % COUNTS_A_PAGE) as usize] = count;
        Ok(())
    }
}

impl FirstSeen {
    pub(super) fn new(scratch_dir: &ScratchDir) -> FirstSeen {
        FirstSeen {
            seen: InodeSet::new(scratch_dir),
            list: InodeList::new(scratch_dir),
        }
    }

    pub(super) fn add(&mut self, ino: u64) -> io::Result<()> {
        if self.seen.insert(ino)? {
            self.list.push(ino)?;
        }
        Ok(())
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

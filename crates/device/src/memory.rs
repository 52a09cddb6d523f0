//! A sparse device in memory: only written pages are allocated, so that it may have terabytes.
//!
//! A clone is a snapshot: pages are shared until either side writes to them.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::block_device::{BlockDevice, PastEnd};
use crate::discard_geometry::{DiscardGeometry, MIN_GRANULARITY};

#[cfg(test)]
mod tests;

const PAGE_BYTES: usize = 16 << 10;

#[derive(Clone)]
struct Page([u8; PAGE_BYTES]);

pub struct MemDevice {
    len_bytes: AtomicU64,
    pages: RwLock<BTreeMap<u64, Arc<Page>>>,
}

impl std::fmt::Debug for MemDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemDevice")
            .field("len_bytes", &self.len_bytes())
            .finish_non_exhaustive()
    }
}

impl Clone for MemDevice {
    fn clone(&self) -> Self {
        Self {
            len_bytes: self.len_bytes().into(),
            pages: RwLock::new(self.pages.read().clone()),
        }
    }
}

impl MemDevice {
    /// Creates a device of zeros.
    pub fn new(len_bytes: u64) -> Self {
        Self {
            len_bytes: len_bytes.into(),
            pages: RwLock::default(),
        }
    }

    /// Creates a device with the contents of an image; pages of zeros are not allocated.
    pub fn from_bytes(image: &[u8]) -> Self {
        let mut pages = BTreeMap::new();
        for (index, bytes) in image.chunks(PAGE_BYTES).enumerate() {
            if bytes.iter().any(|&byte| byte != 0) {
                let mut page = Page([0; PAGE_BYTES]);
                page.0[..bytes.len()].copy_from_slice(bytes);
                pages.insert(index as u64, Arc::new(page));
            }
        }
        Self {
            len_bytes: (image.len() as u64).into(),
            pages: RwLock::new(pages),
        }
    }

    /// Returns the number of allocated bytes.
    pub fn allocated_bytes(&self) -> u64 {
        (self.pages.read().len() * PAGE_BYTES) as u64
    }

    /// Returns the allocated parts of a range, ascending; the others read as zeros.
    pub fn allocated_in(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let page_bytes = PAGE_BYTES as u64;
        let numbers = range.start / page_bytes..range.end.div_ceil(page_bytes);
        let pages = self.pages.read();
        let numbers = pages.range(numbers).map(|(&number, _)| number);
        let within = |number: u64| {
            let start = number * page_bytes;
            range.start.max(start)..range.end.min(start + page_bytes)
        };
        numbers.map(within).collect()
    }
}

/// Splits `len` bytes at `offset` at page boundaries, into (page, offset in the page, range of the request).
fn page_parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let start = (at % PAGE_BYTES as u64) as usize;
        let part = (PAGE_BYTES - start).min(len - done);
        let range = done..done + part;
        done += part;
        Some((at / PAGE_BYTES as u64, start, range))
    })
}

impl BlockDevice for MemDevice {
    fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Relaxed)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        PastEnd::check(offset, buf.len() as u64, self.len_bytes())?;
        let pages = self.pages.read();
        for (page, start, range) in page_parts(offset, buf.len()) {
            let part = &mut buf[range];
            match pages.get(&page) {
                Some(page) => part.copy_from_slice(&page.0[start..start + part.len()]),
                None => part.fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        PastEnd::check(offset, buf.len() as u64, self.len_bytes())?;
        let mut pages = self.pages.write();
        for (page, start, range) in page_parts(offset, buf.len()) {
            let part = &buf[range];
            let page = pages
                .entry(page)
                .or_insert_with(|| Arc::new(Page([0; PAGE_BYTES])));
            Arc::make_mut(page).0[start..start + part.len()].copy_from_slice(part);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn resize(&self, len_bytes: u64) -> io::Result<()> {
        let mut pages = self.pages.write();
        if len_bytes < self.len_bytes() {
            let within = (len_bytes % PAGE_BYTES as u64) as usize;
            pages.split_off(&len_bytes.div_ceil(PAGE_BYTES as u64));
            if let Some(last) = pages.get_mut(&(len_bytes / PAGE_BYTES as u64)) {
                Arc::make_mut(last).0[within..].fill(0);
            }
        }
        self.len_bytes.store(len_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn discard_geometry(&self) -> Option<DiscardGeometry> {
        Some(DiscardGeometry::new(MIN_GRANULARITY, u64::MAX))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        PastEnd::check(offset, len, self.len_bytes())?;
        let page_bytes = PAGE_BYTES as u64;
        let first = offset.div_ceil(page_bytes);
        let end = (offset + len) / page_bytes;
        if first < end {
            let mut pages = self.pages.write();
            let mut tail = pages.split_off(&first);
            let mut kept = tail.split_off(&end);
            pages.append(&mut kept);
        }
        Ok(())
    }
}

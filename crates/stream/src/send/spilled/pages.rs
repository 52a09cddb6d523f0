//! An array of bytes in pages, initially zero. The least recently used pages are in a sparse file.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub(super) const PAGE_BYTES: usize = 4096;
/// 1 MiB.
const MAX_PAGES: usize = 256;

#[derive(Debug)]
pub(super) struct Pages {
    held: HashMap<u64, Page>,
    most: usize,
    spill: Option<File>,
    /// A use counter.
    now: u64,
}

#[derive(Debug)]
struct Page {
    bytes: Box<[u8; PAGE_BYTES]>,
    /// Value of the use counter at the last use.
    used: u64,
    is_changed: bool,
}

impl Default for Pages {
    fn default() -> Pages {
        Pages::of(MAX_PAGES)
    }
}

impl Pages {
    pub(super) fn of(most: usize) -> Pages {
        Pages {
            held: HashMap::new(),
            most,
            spill: None,
            now: 0,
        }
    }

    /// Returns whether no page was ever used.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.spill.is_none()
    }

    pub(super) fn read(&mut self, number: u64) -> io::Result<&[u8; PAGE_BYTES]> {
        Ok(&self.page(number)?.bytes)
    }

    pub(super) fn change(&mut self, number: u64) -> io::Result<&mut [u8; PAGE_BYTES]> {
        let page = self.page(number)?;
        page.is_changed = true;
        Ok(&mut page.bytes)
    }

    fn page(&mut self, number: u64) -> io::Result<&mut Page> {
        self.now += 1;
        if !self.held.contains_key(&number) {
            // SPILL-1
            if self.held.len() >= self.most {
                self.evict()?;
            }
            let page = self.load(number)?;
            self.held.insert(number, page);
        }
        let page = self.held.get_mut(&number);
        let page = page.ok_or(io::ErrorKind::NotFound)?;
        page.used = self.now;
        Ok(page)
    }

    fn load(&self, number: u64) -> io::Result<Page> {
        let mut bytes = Box::new([0; PAGE_BYTES]);
        if let Some(file) = &self.spill {
            let at = offset(number)?;
            let mut done = 0;
            // All bytes after the end of the file are zero.
            while done < PAGE_BYTES {
                match file.read_at(&mut bytes[done..], at + done as u64)? {
                    0 => break,
                    read => done += read,
                }
            }
        }
        Ok(Page {
            bytes,
            used: self.now,
            is_changed: false,
        })
    }

    /// Evicts the least recently used page.
    fn evict(&mut self) -> io::Result<()> {
        let oldest = self.held.iter().min_by_key(|(_, page)| page.used);
        let Some(number) = oldest.map(|(&number, _)| number) else {
            return Ok(());
        };
        if let Some(page) = self.held.remove(&number)
            && page.is_changed
        {
            let file = match &mut self.spill {
                Some(file) => file,
                None => self.spill.insert(tempfile::tempfile()?),
            };
            file.write_all_at(&page.bytes[..], offset(number)?)?;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }
}

fn offset(number: u64) -> io::Result<u64> {
    let at = number.checked_mul(PAGE_BYTES as u64);
    let at = at.filter(|at| i64::try_from(at + PAGE_BYTES as u64).is_ok());
    at.ok_or_else(|| io::ErrorKind::FileTooLarge.into())
}

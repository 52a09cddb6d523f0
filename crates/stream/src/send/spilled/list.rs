//! Inode numbers in insertion order.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const NUMBER_BYTES: usize = size_of::<u64>();
/// Maximum numbers in memory: 64 KiB.
const MAX_HELD: usize = 8192;

#[derive(Debug)]
pub(in crate::send) struct InodeList {
    /// The most recent numbers.
    held: Vec<u64>,
    most: usize,
    spill: Option<File>,
    spilled: u64,
}

impl Default for InodeList {
    fn default() -> InodeList {
        InodeList::of(MAX_HELD)
    }
}

impl InodeList {
    pub(super) fn of(most: usize) -> InodeList {
        InodeList {
            held: Vec::new(),
            most,
            spill: None,
            spilled: 0,
        }
    }

    pub(in crate::send) fn push(&mut self, ino: u64) -> io::Result<()> {
        // SPILL-1
        if self.held.len() >= self.most {
            let file = match &mut self.spill {
                Some(file) => file,
                None => self.spill.insert(tempfile::tempfile()?),
            };
            let bytes: Vec<u8> = self.held.iter().flat_map(|ino| ino.to_le_bytes()).collect();
            file.write_all_at(&bytes, self.spilled * NUMBER_BYTES as u64)?;
            self.spilled += self.held.len() as u64;
            self.held.clear();
        }
        self.held.push(ino);
        Ok(())
    }

    pub(in crate::send) fn iter(&self) -> Numbers<'_> {
        Numbers {
            list: self,
            block: Vec::new(),
            at_in_block: 0,
            read: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }
}

/// An iterator over a list.
#[derive(Debug)]
pub(in crate::send) struct Numbers<'l> {
    list: &'l InodeList,
    block: Vec<u64>,
    at_in_block: usize,
    /// Number of inode numbers in the blocks read so far.
    read: u64,
}

impl Numbers<'_> {
    fn next_block(&mut self) -> io::Result<bool> {
        let list = self.list;
        self.block.clear();
        self.at_in_block = 0;
        let left = list.spilled.saturating_sub(self.read);
        if let Some(file) = list.spill.as_ref().filter(|_| left > 0) {
            let count = left.min(list.most as u64) as usize;
            let mut bytes = vec![0; count * NUMBER_BYTES];
            file.read_exact_at(&mut bytes, self.read * NUMBER_BYTES as u64)?;
            let (numbers, _) = bytes.as_chunks::<NUMBER_BYTES>();
            self.block
                .extend(numbers.iter().copied().map(u64::from_le_bytes));
        } else if self.read == list.spilled {
            self.block.extend_from_slice(&list.held);
        }
        self.read += self.block.len() as u64;
        Ok(!self.block.is_empty())
    }
}

impl Iterator for Numbers<'_> {
    type Item = io::Result<u64>;

    fn next(&mut self) -> Option<io::Result<u64>> {
        if self.at_in_block == self.block.len() {
            match self.next_block() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        let ino = self.block[self.at_in_block];
        self.at_in_block += 1;
        Some(Ok(ino))
    }
}

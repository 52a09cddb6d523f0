//! The bytes of a file: a size and the blocks that were written.
//!
//! - CONTENT-1: bytes past the size are zero, so that growing exposes zeros, and no whole block is past the size.

use std::sync::{Arc, OnceLock};

use super::Map;
use crate::manifest::Digest;

const BLOCK: usize = 4096;
const BLOCK_BYTES: u64 = BLOCK as u64;

type Block = [u8; BLOCK];

#[derive(Clone, Default)]
pub(super) struct Content {
    size: u64,
    /// Missing blocks are zeros.
    blocks: Map<u64, Arc<Block>>,
    /// A cached digest of the contents. Each change replaces it by an empty one.
    digest: Arc<OnceLock<Digest>>,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes, {} blocks", self.size, self.blocks.size())
    }
}

impl Content {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Reads at most `len` bytes, or less at the end of the file.
    pub(super) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let len = (len as u64).min(self.size.saturating_sub(offset)) as usize;
        let mut bytes = vec![0; len];
        for (block, start, range) in parts(offset, len) {
            if let Some(block) = self.blocks.get(&block) {
                let part = &mut bytes[range];
                part.copy_from_slice(&block[start..start + part.len()]);
            }
        }
        bytes
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.digest = Arc::default();
        for (number, start, range) in parts(offset, bytes.len()) {
            let part = &bytes[range];
            let mut block = self.blocks.get(&number).map_or([0; BLOCK], |block| **block);
            block[start..start + part.len()].copy_from_slice(part);
            self.blocks.insert_mut(number, Arc::new(block));
        }
        if !bytes.is_empty() {
            self.size = self.size.max(offset + bytes.len() as u64);
        }
    }

    pub(super) fn truncate(&mut self, size: u64) {
        if size < self.size {
            // Up to a block boundary, so that no block of zeros is left past the new size.
            self.zero(size, self.size.next_multiple_of(BLOCK_BYTES));
        }
        self.digest = Arc::default();
        self.size = size;
    }

    pub(super) fn grow_to(&mut self, size: u64) {
        if size > self.size {
            self.truncate(size);
        }
    }

    /// Zeros [start, end) without changing the size.
    pub(super) fn zero(&mut self, start: u64, end: u64) {
        self.digest = Arc::default();
        let first = start / BLOCK_BYTES;
        let touched: Vec<u64> = self
            .blocks
            .range(first..end.div_ceil(BLOCK_BYTES))
            .map(|(number, _)| *number)
            .collect();
        for number in touched {
            let at = number * BLOCK_BYTES;
            let from = start.saturating_sub(at) as usize;
            let to = (end - at).min(BLOCK_BYTES) as usize;
            if (from, to) == (0, BLOCK) {
                self.blocks.remove_mut(&number);
            } else if let Some(old) = self.blocks.get(&number) {
                let mut block = **old;
                block[from..to].fill(0);
                self.blocks.insert_mut(number, Arc::new(block));
            }
        }
    }

    /// Clones a range of another file. Both offsets must be multiples of the block size. So must `len`, unless it
    /// reaches the end of `from` and past the end of this file.
    pub(super) fn clone_range(&mut self, from: &Content, from_offset: u64, len: u64, offset: u64) {
        let blocks = len.div_ceil(BLOCK_BYTES);
        let (source, target) = (from_offset / BLOCK_BYTES, offset / BLOCK_BYTES);
        self.zero(offset, offset + blocks * BLOCK_BYTES);
        for (number, block) in from.blocks.range(source..source + blocks) {
            self.blocks
                .insert_mut(target + (number - source), Arc::clone(block));
        }
        self.size = self.size.max(offset + len);
    }

    pub(super) fn digest(&self) -> Digest {
        let blocks = self.blocks.iter().map(|(number, block)| {
            let at = number * BLOCK_BYTES;
            let len = (self.size - at).min(BLOCK_BYTES) as usize;
            (at, &block[..len])
        });
        *self
            .digest
            .get_or_init(|| Digest::of_file(blocks, self.size))
    }
}

/// Splits a range at block boundaries, into (block, offset in the block, range of the request).
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let start = (at % BLOCK_BYTES) as usize;
        let part = (BLOCK - start).min(len - done);
        let range = done..done + part;
        done += part;
        (part > 0).then_some((at / BLOCK_BYTES, start, range))
    })
}

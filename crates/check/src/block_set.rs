//! A set of addresses of tree blocks: one bit a sector, in pages that exist where something is in them.
//!
//! 32 KiB a GiB of metadata, so that even large volumes fit into a few MiB.

use std::collections::HashMap;

const PAGE_WORDS: usize = 64;
const PAGE_BITS: u64 = PAGE_WORDS as u64 * 64;

#[derive(Debug)]
pub(crate) struct BlockSet {
    sector_shift: u32,
    pages: HashMap<u64, Box<[u64; PAGE_WORDS]>>,
}

impl BlockSet {
    pub(crate) fn new(sectorsize: u32) -> BlockSet {
        BlockSet {
            sector_shift: sectorsize.trailing_zeros(),
            pages: HashMap::new(),
        }
    }

    fn place(&self, bytenr: u64) -> (u64, usize, u64) {
        let sector = bytenr >> self.sector_shift;
        let bit = sector % PAGE_BITS;
        (sector / PAGE_BITS, (bit / 64) as usize, 1 << (bit % 64))
    }

    /// False if it was there already.
    pub(crate) fn insert(&mut self, bytenr: u64) -> bool {
        let (page, word, bit) = self.place(bytenr);
        let page = self
            .pages
            .entry(page)
            .or_insert_with(|| Box::new([0; PAGE_WORDS]));
        let new = page[word] & bit == 0;
        page[word] |= bit;
        new
    }

    pub(crate) fn contains(&self, bytenr: u64) -> bool {
        let (page, word, bit) = self.place(bytenr);
        self.pages
            .get(&page)
            .is_some_and(|page| page[word] & bit != 0)
    }

    pub(crate) fn clear(&mut self) {
        self.pages.clear();
    }
}

//! A set of tree block addresses: one bit per sector, in pages that are allocated on demand.
//!
//! It needs 32 KiB per GiB of metadata, so that even large volumes fit into a few MiB.

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

    /// Adds a block. Returns false if the set had it already.
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

    /// Returns the blocks that are in this set but not in the other, ascending.
    pub(crate) fn without(&self, other: &BlockSet) -> Vec<u64> {
        let mut rest = Vec::new();
        for (&number, page) in &self.pages {
            let others = other.pages.get(&number);
            for (index, &word) in page.iter().enumerate() {
                let mut left = word & !others.map_or(0, |page| page[index]);
                while left != 0 {
                    let bit = u64::from(left.trailing_zeros());
                    left &= left - 1;
                    let sector = number * PAGE_BITS + index as u64 * 64 + bit;
                    rest.push(sector << self.sector_shift);
                }
            }
        }
        rest.sort_unstable();
        rest
    }

    pub(crate) fn clear(&mut self) {
        self.pages.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_is_what_only_one_has() {
        let (mut one, mut other) = (BlockSet::new(4096), BlockSet::new(4096));
        for sector in [0, 1, 63, 64, 4095, 4096, 1 << 40] {
            assert!(one.insert(sector * 4096));
            assert!(!one.insert(sector * 4096));
        }
        other.insert(64 * 4096);
        other.insert(4096 * 4096);
        let rest: Vec<u64> = one.without(&other).iter().map(|b| b / 4096).collect();
        assert_eq!(rest, [0, 1, 63, 4095, 1 << 40]);
        assert!(one.contains(64 * 4096) && !one.contains(65 * 4096));
    }
}

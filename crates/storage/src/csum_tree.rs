//! The checksum tree: lookup and changes of the items with data checksums.
//!
//! Not here: computing checksums (`format::csum`).

mod join;
mod lookup;
mod moved;

use std::ops::Range;

use ubtrfs_format::ids::{Logical, objectid};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::{ITEM_HEAD_SIZE, leaf_data_size};
use ubtrfs_format::superblock::Superblock;

pub(crate) use join::join;
pub use join::remove;
pub use lookup::{RangeCsums, data_csums, data_csums_of, has_csums};
pub(crate) use moved::moved;

/// The shape of the items of a volume's checksum tree.
#[derive(Clone, Copy, Debug)]
pub struct CsumShape {
    sectorsize: u64,
    size_bytes: usize,
    /// The kernel's limit for one item.
    max_sums: usize,
}

impl CsumShape {
    pub fn of(superblock: &Superblock) -> CsumShape {
        let size_bytes = superblock.csum_type().size_bytes();
        let nodesize = superblock.nodesize.get() as usize;
        let room = leaf_data_size(nodesize).saturating_sub(2 * ITEM_HEAD_SIZE);
        CsumShape {
            sectorsize: u64::from(superblock.sectorsize.get()),
            size_bytes,
            max_sums: (room / size_bytes).saturating_sub(1).max(1),
        }
    }

    pub fn max_sums(&self) -> u64 {
        self.max_sums as u64
    }

    /// Returns the number of items that hold the sums of one extent.
    pub fn items_of(&self, sums: &[u8]) -> u64 {
        let sums = sums.len() / self.size_bytes;
        sums.div_ceil(self.max_sums) as u64
    }

    /// Returns the length of the data that `bytes` bytes of sums cover.
    pub fn covered(&self, bytes: usize) -> u64 {
        (bytes / self.size_bytes) as u64 * self.sectorsize
    }

    /// Returns the size of the sums of `data` bytes of data.
    pub fn bytes_for(&self, data: u64) -> usize {
        (data / self.sectorsize) as usize * self.size_bytes
    }

    /// Returns the sums within a range from an item at `at`, and the address of the first one.
    pub fn part<'s>(
        &self,
        at: u64,
        sums: &'s [u8],
        range: &Range<Logical>,
    ) -> Option<(Logical, &'s [u8])> {
        let end = at.saturating_add(self.covered(sums.len()));
        let (start, end) = (range.start.0.max(at), range.end.0.min(end));
        let index = |logical: u64| ((logical - at) / self.sectorsize) as usize * self.size_bytes;
        (start < end).then(|| (Logical(start), &sums[index(start)..index(end)]))
    }

    /// Returns the items for a run of sums whose first sector is at `logical`.
    pub fn items(self, logical: Logical, sums: &[u8]) -> impl Iterator<Item = (Key, &[u8])> {
        let item_bytes = self.max_sums * self.size_bytes;
        let items = sums.chunks(item_bytes).enumerate();
        items.map(move |(index, sums)| {
            let at = logical.0 + index as u64 * self.covered(item_bytes);
            (csum_key(at), sums)
        })
    }
}

fn csum_key(logical: u64) -> Key {
    Key::new(objectid::EXTENT_CSUM, KeyType::EXTENT_CSUM, logical)
}

//! Checksums of data, looked up for a range of sectors.

use ubtrfs_format::csum::CsumType;
use ubtrfs_format::ids::{Logical, RootId, objectid};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::{ITEM_HEAD_SIZE, leaf_data_size};

use crate::error::Result;
use crate::volume::Volume;

/// The sums of consecutive sectors; sectors without one are known as such.
#[derive(Debug)]
pub(super) struct RangeCsums {
    kind: CsumType,
    sums: Vec<u8>,
    present: Vec<bool>,
}

impl RangeCsums {
    /// The first sector that has no sum.
    pub(super) fn first_missing(&self) -> Option<usize> {
        self.present.iter().position(|present| !present)
    }

    /// Whether `sector` is what was written as the sector at `index`.
    pub(super) fn matches(&self, index: usize, sector: &[u8]) -> bool {
        let size = self.kind.size_bytes();
        let Some(stored) = self.sums.get(index * size..(index + 1) * size) else {
            return false;
        };
        self.kind.compute(sector).significant(self.kind) == stored
    }
}

/// What the items of a volume's checksum tree are like.
#[derive(Clone, Copy, Debug)]
pub(super) struct CsumShape {
    sectorsize: u64,
    size_bytes: usize,
    /// The most that the kernel puts into one item.
    max_sums: usize,
}

impl CsumShape {
    pub(super) fn max_sums(&self) -> u64 {
        self.max_sums as u64
    }

    /// How many items the sums of one extent are.
    pub(super) fn items_of(&self, sums: &[u8]) -> u64 {
        let sums = sums.len() / self.size_bytes;
        sums.div_ceil(self.max_sums) as u64
    }
}

/// The items for a run of sums whose first sector is at `logical`.
pub(super) fn csum_items(
    logical: Logical,
    sums: &[u8],
    shape: CsumShape,
) -> impl Iterator<Item = (Key, &[u8])> {
    let item_bytes = shape.max_sums * shape.size_bytes;
    let covered = shape.max_sums as u64 * shape.sectorsize;
    let items = sums.chunks(item_bytes).enumerate();
    items.map(move |(index, sums)| {
        let at = logical.0 + index as u64 * covered;
        let key = Key::new(objectid::EXTENT_CSUM, KeyType::EXTENT_CSUM, at);
        (key, sums)
    })
}

impl Volume {
    pub(super) fn csum_shape(&self) -> CsumShape {
        let superblock = self.superblock();
        let size_bytes = superblock.csum_type().size_bytes();
        let room = leaf_data_size(superblock.nodesize.get() as usize) - 2 * ITEM_HEAD_SIZE;
        CsumShape {
            sectorsize: u64::from(superblock.sectorsize.get()),
            size_bytes,
            max_sums: (room / size_bytes).saturating_sub(1).max(1),
        }
    }

    /// The sums of `sectors` sectors from `logical`, which is aligned to the sector.
    pub(super) fn data_csums(&self, logical: Logical, sectors: usize) -> Result<RangeCsums> {
        let kind = self.superblock().csum_type();
        let size = kind.size_bytes();
        let sectorsize = self.roots.sectorsize();
        let mut range = RangeCsums {
            kind,
            sums: vec![0; sectors * size],
            present: vec![false; sectors],
        };
        let Some(tree) = self.find_tree(RootId::CSUM_TREE)? else {
            return Ok(range);
        };
        let end = logical.0.saturating_add(sectors as u64 * sectorsize);
        let mut cursor = tree.view.cursor();
        let from = Key::new(objectid::EXTENT_CSUM, KeyType::EXTENT_CSUM, logical.0);
        let mut more = cursor.seek_floor(&from)? || cursor.seek(&from)?;
        while more {
            let Some((key, bytes)) = cursor.current() else {
                break;
            };
            if (key.objectid, key.item_type) > (from.objectid, from.item_type) || key.offset >= end
            {
                break;
            }
            if key.item_type == KeyType::EXTENT_CSUM {
                range.take(key.offset, bytes, logical.0, sectorsize);
            }
            more = cursor.advance()?;
        }
        Ok(range)
    }
}

impl RangeCsums {
    /// Copies the part of an item (sums from `start` on) that falls into the range from `from` on.
    fn take(&mut self, start: u64, item: &[u8], from: u64, sectorsize: u64) {
        let size = self.kind.size_bytes();
        let in_item = item.len() / size;
        let (skip, place) = if start < from {
            ((from - start) / sectorsize, 0)
        } else {
            (0, (start - from) / sectorsize)
        };
        let (Ok(skip), Ok(place)) = (usize::try_from(skip), usize::try_from(place)) else {
            return;
        };
        let count = in_item
            .saturating_sub(skip)
            .min(self.present.len().saturating_sub(place));
        if count == 0 {
            return;
        }
        self.sums[place * size..(place + count) * size]
            .copy_from_slice(&item[skip * size..(skip + count) * size]);
        self.present[place..place + count].fill(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(sectors: usize) -> RangeCsums {
        let kind = CsumType::Crc32c;
        RangeCsums {
            kind,
            sums: vec![0; sectors * 4],
            present: vec![false; sectors],
        }
    }

    #[test]
    fn item_that_begins_before_the_range_is_cut() {
        let mut range = range(2);
        range.take(0, &[1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3], 4096, 4096);
        assert_eq!(range.sums, [2, 2, 2, 2, 3, 3, 3, 3]);
        assert_eq!(range.first_missing(), None);
    }

    #[test]
    fn sector_between_two_items_is_missing() {
        let mut range = range(3);
        range.take(0, &[1; 4], 0, 4096);
        range.take(8192, &[3; 8], 0, 4096);
        assert_eq!(range.first_missing(), Some(1));
        assert_eq!(range.sums[8..], [3; 4]);
    }
}

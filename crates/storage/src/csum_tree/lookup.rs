//! Checksums of data, looked up for a range of sectors.

use ubtrfs_format::csum::CsumType;
use ubtrfs_format::ids::{Logical, RootId, objectid};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::View;

use crate::error::Result;
use crate::roots::{Roots, TreeSource};

/// The sums of consecutive sectors. Sectors without a sum are marked as missing.
#[derive(Debug)]
pub struct RangeCsums {
    kind: CsumType,
    sums: Vec<u8>,
    present: Vec<bool>,
}

impl RangeCsums {
    /// Returns the first sector that has no sum.
    pub fn first_missing(&self) -> Option<usize> {
        self.present.iter().position(|present| !present)
    }

    /// Returns whether the sector at `index` has a sum.
    pub fn has(&self, index: usize) -> bool {
        self.present.get(index).is_some_and(|present| *present)
    }

    /// Returns the sums, concatenated.
    pub fn bytes(&self) -> &[u8] {
        &self.sums
    }

    /// Returns whether `sector` matches the sum of the sector at `index`.
    pub fn matches(&self, index: usize, sector: &[u8]) -> bool {
        let size = self.kind.size_bytes();
        let Some(stored) = self.sums.get(index * size..(index + 1) * size) else {
            return false;
        };
        self.kind.compute(sector).significant(self.kind) == stored
    }
}

/// Looks up the sums of `sectors` sectors from `logical`, which is aligned to the sector.
pub fn data_csums(roots: &Roots, logical: Logical, sectors: usize) -> Result<RangeCsums> {
    let tree = roots.find_tree(RootId::CSUM_TREE)?;
    lookup(
        roots,
        tree.as_ref().map(|tree| &tree.view),
        logical,
        sectors,
    )
}

/// Looks up sums like [`data_csums`], in a given state of the trees of `roots`.
pub fn data_csums_of(
    roots: &Roots,
    trees: &dyn TreeSource,
    logical: Logical,
    sectors: usize,
) -> Result<RangeCsums> {
    let view = trees.find_view(RootId::CSUM_TREE)?;
    lookup(roots, view.as_ref(), logical, sectors)
}

fn lookup(
    roots: &Roots,
    view: Option<&View>,
    logical: Logical,
    sectors: usize,
) -> Result<RangeCsums> {
    let kind = roots.superblock().csum_type();
    let size = kind.size_bytes();
    let sectorsize = roots.sectorsize();
    let mut range = RangeCsums {
        kind,
        sums: vec![0; sectors * size],
        present: vec![false; sectors],
    };
    let Some(view) = view else {
        return Ok(range);
    };
    let end = logical.0.saturating_add(sectors as u64 * sectorsize);
    let mut cursor = view.cursor();
    let from = Key::new(objectid::EXTENT_CSUM, KeyType::EXTENT_CSUM, logical.0);
    let mut more = cursor.seek_floor(&from)? || cursor.seek(&from)?;
    while more {
        let Some((key, bytes)) = cursor.current() else {
            break;
        };
        if (key.objectid, key.item_type) > (from.objectid, from.item_type) || key.offset >= end {
            break;
        }
        if key.item_type == KeyType::EXTENT_CSUM {
            range.take(key.offset, bytes, logical.0, sectorsize);
        }
        more = cursor.advance()?;
    }
    Ok(range)
}

/// Returns whether any sector of a range has a checksum.
pub fn has_csums(roots: &Roots, logical: Logical, len: u64) -> Result<bool> {
    let Some(tree) = roots.find_tree(RootId::CSUM_TREE)? else {
        return Ok(false);
    };
    let key = |at: u64| Key::new(objectid::EXTENT_CSUM, KeyType::EXTENT_CSUM, at);
    let end = logical.0.saturating_add(len);
    let mut cursor = tree.view.cursor();
    if !cursor.seek_floor(&key(end.saturating_sub(1)))? {
        return Ok(false);
    }
    let Some((found, sums)) = cursor.current() else {
        return Ok(false);
    };
    let size = roots.csum_bytes();
    let covered = (sums.len() as u64 / size).saturating_mul(roots.sectorsize());
    Ok(found >= key(0) && found.offset.saturating_add(covered) > logical.0)
}

impl RangeCsums {
    /// Copies the part of an item (sums from `start` on) that is within the range, which begins at `from`.
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

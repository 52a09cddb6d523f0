//! The layout of a block group in the free-space tree: keys, thresholds, and the conversion of ranges to items.

use std::ops::Range;

use ubtrfs_format::ids::Logical;
use ubtrfs_format::item::{FREE_SPACE_BITMAP_BYTES, FREE_SPACE_USING_BITMAPS, FreeSpaceInfo};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::ITEM_HEAD_SIZE;
use zerocopy::IntoBytes;

use super::super::free_space::Bitmap;

/// Hysteresis: the difference between the thresholds for the conversions to and from bitmaps.
const RETURN_GAP: u64 = 100;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) start: Logical,
    pub(crate) len: u64,
    pub(crate) sectorsize: u32,
}

impl Shape {
    pub(super) fn end(&self) -> u64 {
        self.start.0.saturating_add(self.len)
    }

    /// Returns whether a range is within the group and consists of whole sectors.
    pub(super) fn holds(&self, range: &Range<u64>) -> bool {
        let sector = u64::from(self.sectorsize);
        let is_whole = |at: u64| at.wrapping_sub(self.start.0).is_multiple_of(sector);
        let is_within = self.start.0 <= range.start && range.end <= self.end();
        is_within && !range.is_empty() && is_whole(range.start) && is_whole(range.end)
    }

    /// Returns the lower bound of the group's keys. All of them have an objectid below the group's end.
    pub(super) fn first_key(&self) -> Key {
        Key::new(self.start.0, KeyType(0), 0)
    }

    pub(super) fn info_key(&self) -> Key {
        Key::new(self.start.0, KeyType::FREE_SPACE_INFO, self.len)
    }

    pub(super) fn info(&self, ranges: usize, bitmaps: bool) -> (Key, Option<Vec<u8>>) {
        let info = FreeSpaceInfo {
            extent_count: (ranges as u32).into(),
            flags: (if bitmaps { FREE_SPACE_USING_BITMAPS } else { 0 }).into(),
        };
        (self.info_key(), Some(info.as_bytes().to_vec()))
    }

    /// Returns the bytes that one bitmap covers.
    fn bitmap_range(&self) -> u64 {
        u64::from(self.sectorsize) * FREE_SPACE_BITMAP_BYTES as u64 * 8
    }

    /// Returns the key of the bitmap that begins at `at`, or None at the group's end.
    pub(super) fn bitmap_key(&self, at: u64) -> Option<Key> {
        let rest = self.end().checked_sub(at).filter(|&rest| rest > 0)?;
        let len = rest.min(self.bitmap_range());
        Some(Key::new(at, KeyType::FREE_SPACE_BITMAP, len))
    }

    /// Returns the number of ranges above which bitmaps are smaller.
    pub(super) fn most_ranges(&self) -> u64 {
        let bitmaps = self.len.div_ceil(self.bitmap_range());
        let item_bytes = ITEM_HEAD_SIZE as u64;
        bitmaps * (item_bytes + FREE_SPACE_BITMAP_BYTES as u64) / item_bytes
    }

    /// Returns the maximum size of a group's items while `used` bytes of it are used.
    pub(crate) fn most_bytes(&self, used: u64) -> u64 {
        let item_bytes = ITEM_HEAD_SIZE as u64;
        let ranges = self.len.saturating_sub(used) / u64::from(self.sectorsize);
        let bitmaps = self.len.div_ceil(self.bitmap_range());
        let as_bitmaps = bitmaps * (item_bytes + FREE_SPACE_BITMAP_BYTES as u64);
        item_bytes + size_of::<FreeSpaceInfo>() as u64 + as_bitmaps.min(ranges * item_bytes)
    }

    /// Returns the number of ranges below which a group is converted from bitmaps to extents. The gap to `most_ranges`
    /// prevents it from going back and forth.
    pub(super) fn least_ranges(&self) -> u64 {
        self.most_ranges().saturating_sub(RETURN_GAP)
    }

    /// Returns the items for free ranges, in the given form.
    pub(super) fn items(&self, free: &[Range<u64>], bitmaps: bool) -> Vec<(Key, Vec<u8>)> {
        if bitmaps {
            return self.bitmaps(free);
        }
        let item = |range: &Range<u64>| {
            let len = range.end - range.start;
            let key = Key::new(range.start, KeyType::FREE_SPACE_EXTENT, len);
            (key, Vec::new())
        };
        free.iter().map(item).collect()
    }

    /// Returns bitmaps for the whole group (FST-2).
    fn bitmaps(&self, free: &[Range<u64>]) -> Vec<(Key, Vec<u8>)> {
        let sector = u64::from(self.sectorsize);
        let mut bitmaps = Vec::new();
        let mut rest = free;
        let mut at = self.start.0;
        while let Some(key) = self.bitmap_key(at) {
            let end = at + key.offset;
            let mut bitmap = Bitmap::new(key.offset / sector);
            while let Some(run) = rest.first().filter(|run| run.start < end) {
                let (from, to) = (run.start.max(at), run.end.min(end));
                bitmap.set((from - at) / sector, (to - at) / sector);
                if run.end > end {
                    break;
                }
                rest = &rest[1..];
            }
            bitmaps.push((key, bitmap.to_le_bytes()));
            at = end;
        }
        bitmaps
    }
}

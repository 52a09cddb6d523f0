//! Conversion between free ranges and items of the free-space tree.
//!
//! A block group has an info item, and its free ranges, either as one item each or as bitmaps that cover the group. The
//! form depends on the number of ranges, with the kernel's thresholds. A group is converted to bitmaps when the extent
//! items would take more space.
//!
//! Pure functions over the items. A group is read as a whole; the thresholds bound its memory. The ranges are not
//! interpreted: superblock copies count as free here.
//!
//! Invariants
//! - FST-1: the ranges of a group never touch each other, and the info item counts them, even if they are stored as
//!   bitmaps.
//! - FST-2: bitmaps cover the whole group. All have the same length, except for the last.
//!
//! A violation is an error that names the key, as in the kernel. Ranges that touch are an exception: they are merged.

mod runs;
mod shape;

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::ops::Range;

use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::{FREE_SPACE_USING_BITMAPS, FreeSpaceInfo};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::View;
use zerocopy::FromBytes;

use super::free_space::Bitmap;
use crate::error::{CorruptItem, Error, Result};

pub(crate) use shape::Shape;

pub(crate) type Changes = Vec<(Key, Option<Vec<u8>>)>;

/// A source of items in key order.
pub(crate) trait Items {
    /// Calls `each` with the items from a key on, while it returns true.
    fn scan(&self, from: &Key, each: &mut dyn FnMut(Key, &[u8]) -> Result<bool>) -> Result<()>;
}

impl Items for View {
    fn scan(&self, from: &Key, each: &mut dyn FnMut(Key, &[u8]) -> Result<bool>) -> Result<()> {
        let mut cursor = self.cursor();
        let mut more = cursor.seek(from)?;
        while more && let Some((key, bytes)) = cursor.current() {
            more = each(key, bytes)? && cursor.advance()?;
        }
        Ok(())
    }
}

/// Calls `each` with the free ranges (start, length) of a group, ascending.
pub(crate) fn free_ranges(
    items: &impl Items,
    start: Logical,
    len: u64,
    sectorsize: u32,
    each: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let shape = Shape {
        start,
        len,
        sectorsize,
    };
    for run in Group::read(items, &shape)?.free {
        each(run.start, run.end - run.start);
    }
    Ok(())
}

/// Creates the items of a group that has no items yet, from its free ranges (start, length) in ascending order.
pub(crate) fn build(shape: &Shape, free: &[(u64, u64)]) -> Changes {
    let mut joined = Vec::new();
    for &(start, len) in free {
        runs::push(&mut joined, start..start.saturating_add(len));
    }
    let bitmaps = joined.len() as u64 > shape.most_ranges();
    let mut changes = vec![shape.info(joined.len(), bitmaps)];
    let items = shape.items(&joined, bitmaps).into_iter();
    changes.extend(items.map(|(key, value)| (key, Some(value))));
    changes
}

/// Creates the items of a completely free group.
pub(crate) fn new_group(shape: &Shape) -> Changes {
    build(shape, &[(shape.start.0, shape.len)])
}

/// Returns the changes that delete a group's items, including damaged ones.
pub(crate) fn remove_group(items: &impl Items, shape: &Shape) -> Result<Changes> {
    let mut changes = Changes::new();
    items.scan(&shape.first_key(), &mut |key, _| {
        let is_own = key.objectid < shape.end();
        if is_own {
            changes.push((key, None));
        }
        Ok(is_own)
    })?;
    Ok(changes)
}

/// Returns the changes of the tree for ranges (start, length) that were allocated or freed. The ranges do not overlap,
/// and both lists ascend.
///
/// Errors: a range in `freed` that is free already, or one in `used` that is not free; damaged items.
pub(crate) fn update(
    items: &impl Items,
    shape: &Shape,
    used: &[(u64, u64)],
    freed: &[(u64, u64)],
) -> Result<Changes> {
    if used.is_empty() && freed.is_empty() {
        return Ok(Changes::new());
    }
    let group = Group::read(items, shape)?;
    let free = runs::add(&group.free, &ranges_of(shape, freed)?)
        .map_err(|range| wrong_range(range, CorruptItem::AlreadyFree))?;
    let free = runs::subtract(&free, &ranges_of(shape, used)?)
        .map_err(|range| wrong_range(range, CorruptItem::NotFree))?;
    let count = free.len() as u64;
    // A group with bitmaps keeps them until it is well below the threshold, as in the kernel.
    let bitmaps = if group.bitmaps {
        count >= shape.least_ranges()
    } else {
        count > shape.most_ranges()
    };
    let mut changes = Changes::new();
    if (group.info_count, group.bitmaps) != (count, bitmaps) {
        changes.push(shape.info(free.len(), bitmaps));
    }
    changes.extend(differences(group.items, shape.items(&free, bitmaps)));
    Ok(changes)
}

/// Returns the changes that turn one list of items into another. Both lists ascend.
fn differences(old: Vec<(Key, Vec<u8>)>, new: Vec<(Key, Vec<u8>)>) -> Changes {
    let mut changes = Changes::new();
    let mut old = old.into_iter().peekable();
    let mut new = new.into_iter().peekable();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return changes,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((old, _)), Some((new, _))) => old.cmp(new),
        };
        let gone = if order.is_le() { old.next() } else { None };
        let come = if order.is_ge() { new.next() } else { None };
        match (gone, come) {
            (Some((key, _)), None) => changes.push((key, None)),
            (Some((_, before)), Some((_, value))) if before == value => {}
            (_, Some((key, value))) => changes.push((key, Some(value))),
            (None, None) => {}
        }
    }
}

fn ranges_of(shape: &Shape, ranges: &[(u64, u64)]) -> Result<Vec<Range<u64>>> {
    let range = |&(start, len): &(u64, u64)| {
        let range = start..start.saturating_add(len);
        if shape.holds(&range) {
            Ok(range)
        } else {
            Err(wrong_range(range, CorruptItem::FreeSpaceRange))
        }
    };
    ranges.iter().map(range).collect()
}

fn wrong_range(range: Range<u64>, what: CorruptItem) -> Error {
    let len = range.end - range.start;
    corrupt(Key::new(range.start, KeyType::FREE_SPACE_EXTENT, len), what)
}

fn corrupt(key: Key, what: CorruptItem) -> Error {
    Error::Corrupt {
        tree: RootId::FREE_SPACE_TREE,
        key,
        what,
    }
}

/// A group as stored in the tree.
struct Group {
    bitmaps: bool,
    info_count: u64,
    /// All items except for the info item.
    items: Vec<(Key, Vec<u8>)>,
    free: Vec<Range<u64>>,
}

impl Group {
    fn read(items: &impl Items, shape: &Shape) -> Result<Group> {
        let mut group = None;
        let info_key = shape.info_key();
        items.scan(&shape.first_key(), &mut |key, bytes| {
            if key.objectid >= shape.end() {
                return Ok(false);
            }
            match &mut group {
                None => group = Some(Group::begin(shape, key, bytes)?),
                Some(group) => group.push(shape, key, bytes)?,
            }
            Ok(true)
        })?;
        let group = group.ok_or_else(|| corrupt(info_key, CorruptItem::NoFreeSpaceInfo))?;
        group.check(shape)?;
        Ok(group)
    }

    /// Creates a group from its info item.
    fn begin(shape: &Shape, key: Key, bytes: &[u8]) -> Result<Group> {
        if key != shape.info_key() {
            return Err(corrupt(shape.info_key(), CorruptItem::NoFreeSpaceInfo));
        }
        let (info, _) = FreeSpaceInfo::ref_from_prefix(bytes)
            .map_err(|_| corrupt(key, CorruptItem::Undecodable))?;
        Ok(Group {
            bitmaps: info.flags.get() & FREE_SPACE_USING_BITMAPS != 0,
            info_count: info.extent_count.get().into(),
            items: Vec::new(),
            free: Vec::new(),
        })
    }

    fn push(&mut self, shape: &Shape, key: Key, bytes: &[u8]) -> Result<()> {
        let wanted = if self.bitmaps {
            KeyType::FREE_SPACE_BITMAP
        } else {
            KeyType::FREE_SPACE_EXTENT
        };
        let range = key.objectid..key.objectid.saturating_add(key.offset);
        let last = self.free.last().map_or(shape.start.0, |last| last.end);
        if key.item_type != wanted {
            return Err(corrupt(key, CorruptItem::FreeSpaceForm));
        }
        if !shape.holds(&range) {
            return Err(corrupt(key, CorruptItem::FreeSpaceRange));
        }
        if range.start < last {
            return Err(corrupt(key, CorruptItem::FreeSpaceOverlap));
        }
        if self.bitmaps {
            self.push_bitmap(shape, key, bytes)?;
        } else {
            runs::push(&mut self.free, range);
        }
        self.items.push((key, bytes.to_vec()));
        Ok(())
    }

    fn push_bitmap(&mut self, shape: &Shape, key: Key, bytes: &[u8]) -> Result<()> {
        let sector = u64::from(shape.sectorsize);
        let next = self.bitmap_end(shape);
        let bits = key.offset / sector;
        if Some(key) != shape.bitmap_key(next) || bytes.len() as u64 != bits.div_ceil(8) {
            return Err(corrupt(key, CorruptItem::FreeSpaceBitmap));
        }
        let bitmap = Bitmap::from_le_bytes(bytes, bits);
        let mut at = 0;
        while let Some((from, to)) = bitmap.run(at) {
            let run = key.objectid + from * sector..key.objectid + to * sector;
            runs::push(&mut self.free, run);
            at = to;
        }
        Ok(())
    }

    /// Returns the end of the bitmaps read so far.
    fn bitmap_end(&self, shape: &Shape) -> u64 {
        let last = self.items.last();
        last.map_or(shape.start.0, |(key, _)| key.objectid + key.offset)
    }

    /// Checks FST-1 and FST-2 after the last item.
    fn check(&self, shape: &Shape) -> Result<()> {
        let found = if self.bitmaps {
            self.free.len() as u64
        } else {
            self.items.len() as u64
        };
        if found != self.info_count {
            let said = self.info_count;
            let what = CorruptItem::FreeSpaceCount { said, found };
            return Err(corrupt(shape.info_key(), what));
        }
        let end = self.bitmap_end(shape);
        match shape.bitmap_key(end) {
            Some(missing) if self.bitmaps => Err(corrupt(missing, CorruptItem::FreeSpaceBitmap)),
            _ => Ok(()),
        }
    }
}

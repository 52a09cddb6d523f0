//! Free ranges to items of the free-space tree, and back.
//!
//! A block group has an info item and its free ranges, either as one item each or as bitmaps that cover
//! the group. Which of both follows from the number of ranges, with the kernel's thresholds: a group
//! turns to bitmaps when the items would take more room than those.
//!
//! Pure functions over a view of the tree; a group's ranges are read as a whole, their number is bounded
//! by the thresholds. What the ranges mean is the caller's affair: the superblocks' places are free here.
//!
//! Invariants
//! - FST-1: ranges of one group do not touch each other, and the info item counts them, also in bitmaps.
//! - FST-2: bitmaps cover the whole group, each a stretch of the same length but the last.

use std::collections::BTreeMap;

use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::{FREE_SPACE_BITMAP_BYTES, FREE_SPACE_USING_BITMAPS, FreeSpaceInfo};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::View;
use zerocopy::{FromBytes, IntoBytes};

use crate::error::{CorruptItem, Error, Result};

pub(crate) type Changes = Vec<(Key, Option<Vec<u8>>)>;

/// A block group as the tree sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) start: Logical,
    pub(crate) len: u64,
    pub(crate) sectorsize: u32,
}

/// Of the head of an item, which counts in the thresholds.
const ITEM_HEAD_BYTES: u64 = 25;

impl Shape {
    fn end(&self) -> u64 {
        self.start.0.saturating_add(self.len)
    }

    fn info_key(&self) -> Key {
        Key::new(self.start.0, KeyType::FREE_SPACE_INFO, self.len)
    }

    /// Bytes that one bitmap stands for.
    fn bitmap_range(&self) -> u64 {
        u64::from(self.sectorsize) * FREE_SPACE_BITMAP_BYTES as u64 * 8
    }

    /// The keys of all bitmaps (FST-2).
    fn bitmap_keys(&self) -> impl Iterator<Item = Key> {
        let (end, range) = (self.end(), self.bitmap_range());
        let mut at = self.start.0;
        std::iter::from_fn(move || {
            let len = range.min(end.checked_sub(at).filter(|&rest| rest > 0)?);
            let key = Key::new(at, KeyType::FREE_SPACE_BITMAP, len);
            at += len;
            Some(key)
        })
    }

    /// Above so many ranges bitmaps are smaller.
    fn most_ranges(&self) -> u64 {
        let bitmaps = self.len.div_ceil(self.bitmap_range());
        bitmaps * (ITEM_HEAD_BYTES + FREE_SPACE_BITMAP_BYTES as u64) / ITEM_HEAD_BYTES
    }

    /// Below so many ranges a group returns from bitmaps; the gap keeps it from going back and forth.
    fn least_ranges(&self) -> u64 {
        self.most_ranges().saturating_sub(100)
    }

    fn info(&self, ranges: usize, bitmaps: bool) -> (Key, Option<Vec<u8>>) {
        let info = FreeSpaceInfo {
            extent_count: (ranges as u32).into(),
            flags: (if bitmaps { FREE_SPACE_USING_BITMAPS } else { 0 }).into(),
        };
        (self.info_key(), Some(info.as_bytes().to_vec()))
    }
}

/// The ranges of one group and the form that they have in the tree.
struct Group {
    /// Start to end.
    free: BTreeMap<u64, u64>,
    bitmaps: bool,
}

/// Calls `each` with the free ranges (start, length) of a group, ascending.
pub(crate) fn free_ranges(
    view: &View,
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
    for (from, to) in read(view, &shape)?.free {
        each(from, to - from);
    }
    Ok(())
}

/// The items of a group that has no items yet, with these free ranges (start, length), which ascend.
pub(crate) fn build(shape: &Shape, free: &[(u64, u64)]) -> Changes {
    let mut group = Group {
        free: free
            .iter()
            .map(|&(start, len)| (start, start + len))
            .collect(),
        bitmaps: false,
    };
    group.bitmaps = group.free.len() as u64 > shape.most_ranges();
    let mut changes = vec![shape.info(group.free.len(), group.bitmaps)];
    changes.extend(
        group
            .items(shape)
            .into_iter()
            .map(|(key, value)| (key, Some(value))),
    );
    changes
}

/// The items of a group that is all free.
pub(crate) fn new_group(shape: &Shape) -> Changes {
    build(shape, &[(shape.start.0, shape.len)])
}

/// What deleting a group's items changes.
pub(crate) fn remove_group(view: &View, shape: &Shape) -> Result<Changes> {
    let group = read(view, shape)?;
    let keys = group.items(shape).into_keys();
    let mut changes = vec![(shape.info_key(), None)];
    changes.extend(keys.map(|key| (key, None)));
    changes.sort_by_key(|(key, _)| *key);
    Ok(changes)
}

/// What the tree must change for ranges (start, length) that became used and that became free. Neither
/// overlap the others, and both ascend.
///
/// Errors: a range that was not what it became from; items that are damaged.
pub(crate) fn update(
    view: &View,
    shape: &Shape,
    used: &[(u64, u64)],
    freed: &[(u64, u64)],
) -> Result<Changes> {
    if used.is_empty() && freed.is_empty() {
        return Ok(Changes::new());
    }
    let mut group = read(view, shape)?;
    let before = group.items(shape);
    let was = (group.free.len(), group.bitmaps);
    for &(start, len) in freed {
        group.add(shape, start, len)?;
    }
    for &(start, len) in used {
        group.take(shape, start, len)?;
    }
    let ranges = group.free.len() as u64;
    if ranges > shape.most_ranges() {
        group.bitmaps = true;
    } else if ranges < shape.least_ranges() {
        group.bitmaps = false;
    }
    let mut changes = Changes::new();
    if was != (group.free.len(), group.bitmaps) {
        changes.push(shape.info(group.free.len(), group.bitmaps));
    }
    let mut after = group.items(shape);
    for (key, old) in before {
        match after.remove(&key) {
            None => changes.push((key, None)),
            Some(new) if new != old => changes.push((key, Some(new))),
            Some(_) => {}
        }
    }
    changes.extend(after.into_iter().map(|(key, value)| (key, Some(value))));
    changes.sort_by_key(|(key, _)| *key);
    Ok(changes)
}

fn corrupt(key: Key, what: CorruptItem) -> Error {
    Error::Corrupt {
        tree: RootId::FREE_SPACE_TREE,
        key,
        what,
    }
}

/// All ranges of a group.
fn read(view: &View, shape: &Shape) -> Result<Group> {
    let info_key = shape.info_key();
    let undecodable = |key| corrupt(key, CorruptItem::Undecodable);
    let item = view.get(&info_key)?.ok_or_else(|| undecodable(info_key))?;
    let (info, _) = FreeSpaceInfo::ref_from_prefix(&item).map_err(|_| undecodable(info_key))?;
    let mut group = Group {
        free: BTreeMap::new(),
        bitmaps: info.flags.get() & FREE_SPACE_USING_BITMAPS != 0,
    };
    let end = shape.end();
    let mut cursor = view.cursor();
    let mut more = cursor.seek(&Key::new(shape.start.0, KeyType(0), 0))?;
    while more && let Some((key, bytes)) = cursor.current() {
        if key.objectid >= end {
            break;
        }
        match key.item_type {
            KeyType::FREE_SPACE_EXTENT => {
                let to = key.objectid.checked_add(key.offset).filter(|&to| to <= end);
                let to = to.ok_or_else(|| corrupt(key, CorruptItem::ExtentRange))?;
                group.push(key, key.objectid, to)?;
            }
            KeyType::FREE_SPACE_BITMAP => group.push_bitmap(shape, key, bytes)?,
            _ => {}
        }
        more = cursor.advance()?;
    }
    Ok(group)
}

impl Group {
    /// Adds a range behind all others; one that touches the last grows it.
    fn push(&mut self, key: Key, from: u64, to: u64) -> Result<()> {
        match self.free.last_entry() {
            Some(last) if *last.get() > from => Err(corrupt(key, CorruptItem::ExtentOverlap)),
            Some(mut last) if *last.get() == from => {
                last.insert(to);
                Ok(())
            }
            _ => {
                self.free.insert(from, to);
                Ok(())
            }
        }
    }

    fn push_bitmap(&mut self, shape: &Shape, key: Key, bytes: &[u8]) -> Result<()> {
        let sector = u64::from(shape.sectorsize);
        let end = key.objectid.checked_add(key.offset);
        let fits = end.is_some_and(|end| end <= shape.end());
        let sectors = key.offset / sector;
        if !fits || (bytes.len() as u64).saturating_mul(8) < sectors {
            return Err(corrupt(key, CorruptItem::ExtentRange));
        }
        for index in 0..sectors {
            if bytes[(index / 8) as usize] & (1 << (index % 8)) != 0 {
                let from = key.objectid + index * sector;
                self.push(key, from, from + sector)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, shape: &Shape, start: u64, len: u64) -> Result<()> {
        let (mut from, mut to) = (start, start.saturating_add(len));
        let next = self
            .free
            .range(from..)
            .next()
            .map(|(&next, &end)| (next, end));
        let before = self.free.range(..from).next_back().map(|(&a, &b)| (a, b));
        let overlaps = next.is_some_and(|(next, _)| next < to)
            || before.is_some_and(|(_, end)| end > from)
            || to > shape.end()
            || from < shape.start.0;
        if overlaps {
            let key = Key::new(start, KeyType::FREE_SPACE_EXTENT, len);
            return Err(corrupt(key, CorruptItem::ExtentOverlap));
        }
        if let Some((next, end)) = next
            && next == to
        {
            self.free.remove(&next);
            to = end;
        }
        if let Some((start, end)) = before
            && end == from
        {
            from = start;
        }
        self.free.insert(from, to);
        Ok(())
    }

    fn take(&mut self, shape: &Shape, start: u64, len: u64) -> Result<()> {
        let to = start.saturating_add(len);
        let holder = self.free.range(..=start).next_back().map(|(&a, &b)| (a, b));
        let Some((from, end)) = holder.filter(|&(_, end)| end >= to && to <= shape.end()) else {
            let key = Key::new(start, KeyType::FREE_SPACE_EXTENT, len);
            return Err(corrupt(key, CorruptItem::ExtentRange));
        };
        self.free.remove(&from);
        if from < start {
            self.free.insert(from, start);
        }
        if to < end {
            self.free.insert(to, end);
        }
        Ok(())
    }

    /// The items but the info, in the form that the group has.
    fn items(&self, shape: &Shape) -> BTreeMap<Key, Vec<u8>> {
        if !self.bitmaps {
            let ranges = self.free.iter();
            let item = |(&from, &to): (&u64, &u64)| {
                (
                    Key::new(from, KeyType::FREE_SPACE_EXTENT, to - from),
                    Vec::new(),
                )
            };
            return ranges.map(item).collect();
        }
        let sector = u64::from(shape.sectorsize);
        let mut bitmaps: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
        for key in shape.bitmap_keys() {
            let mut bits = vec![0; (key.offset / sector).div_ceil(8) as usize];
            let end = key.objectid + key.offset;
            let first = self.free.range(..=key.objectid).next_back();
            let rest = self.free.range(key.objectid + 1..end);
            for (&from, &to) in first.into_iter().chain(rest) {
                let (from, to) = (from.max(key.objectid), to.min(end));
                for index in (from.saturating_sub(key.objectid)) / sector
                    ..to.saturating_sub(key.objectid) / sector
                {
                    bits[(index / 8) as usize] |= 1 << (index % 8);
                }
            }
            bitmaps.insert(key, bits);
        }
        bitmaps
    }
}

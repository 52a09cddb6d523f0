//! The replacement of a file's extent items in some ranges.
//!
//! The items are loaded, which may do IO, then cut and joined in memory. Finally the difference enters a
//! transaction. Data references follow from the difference of the two states. A split adds a reference, and
//! only removing the last piece of an extent drops one.
//!
//! Invariants
//! - EXTENT-EDIT-1: extents of neither state overlap.
//! - EXTENT-EDIT-2: inline data is replaced as a whole or not at all.
//!
//! Locks: the caller holds the file's extents (`FileExtentsState`) from loading to entering, so that the
//! items do not change. It holds the inode's lock while entering.
//! Not here: the inode item (`inode_item`), the allocation of new extents (`store`).

use std::collections::BTreeMap;
use std::ops::Range;

use ubtrfs_format::ids::Logical;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::{DataRef, DiskExtent, EditTarget, FileId};
use ubtrfs_tree::Edit;

use super::extent::Extent;
use crate::error::{CorruptItem, Error, Result};
use crate::inode::Inode;

#[cfg(test)]
mod tests;

type Extents = BTreeMap<u64, Extent>;

/// Extents of one file by file offset, before and after the edit.
#[derive(Clone, Debug)]
pub(crate) struct ExtentEdit {
    file: FileId,
    sectorsize: u64,
    before: Extents,
    after: Extents,
}

/// Returns the key of the extent item at a file offset.
pub(super) fn extent_key(file: FileId, start: u64) -> Key {
    Key::new(file.ino.0, KeyType::EXTENT_DATA, start)
}

impl ExtentEdit {
    fn new(file: FileId, sectorsize: u64) -> ExtentEdit {
        ExtentEdit {
            file,
            sectorsize,
            before: Extents::new(),
            after: Extents::new(),
        }
    }

    /// Loads the extents that overlap or touch `range`, and the extent before it.
    pub(crate) fn load(inode: &Inode, sectorsize: u64, range: Range<u64>) -> Result<ExtentEdit> {
        ExtentEdit::load_all(inode, sectorsize, std::iter::once(range))
    }

    /// Loads the extents that overlap or touch some ranges, given in ascending order.
    pub(super) fn load_all(
        inode: &Inode,
        sectorsize: u64,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<ExtentEdit> {
        let mut extent_edit = ExtentEdit::new(inode.id, sectorsize);
        let mut cursor = inode.tree.view.cursor();
        let mut more = true;
        let mut loaded_to = None;
        for range in ranges {
            if loaded_to.is_none_or(|end| range.start > end) {
                let from = extent_key(inode.id, range.start.saturating_sub(1));
                more = cursor.seek_floor(&from)?;
                if !cursor
                    .current()
                    .is_some_and(|(key, _)| is_extent(key, inode.id))
                {
                    more = cursor.seek(&from)?;
                }
            }
            while more && let Some((key, bytes)) = cursor.current() {
                if !is_extent(key, inode.id) || key.offset > range.end {
                    break;
                }
                extent_edit.take(key, bytes)?;
                more = cursor.advance()?;
            }
            loaded_to = loaded_to.max(Some(range.end));
        }
        extent_edit.loaded()
    }

    /// Loads the first extents of `range`, at most `most`. Also returns the end of the part of `range` that
    /// they cover completely.
    pub(super) fn load_head(
        inode: &Inode,
        sectorsize: u64,
        range: Range<u64>,
        most: usize,
    ) -> Result<(ExtentEdit, u64)> {
        let mut extent_edit = ExtentEdit::new(inode.id, sectorsize);
        let mut cursor = inode.tree.view.cursor();
        let mut end = range.end;
        let from = extent_key(inode.id, range.start.saturating_sub(1));
        let mut more = cursor.seek_floor(&from)?;
        if !cursor
            .current()
            .is_some_and(|(key, _)| is_extent(key, inode.id))
        {
            more = cursor.seek(&from)?;
        }
        while more && let Some((key, bytes)) = cursor.current() {
            if !is_extent(key, inode.id) || key.offset > range.end {
                break;
            }
            if extent_edit.before.len() >= most && key.offset > range.start {
                end = key.offset.min(range.end);
                break;
            }
            extent_edit.take(key, bytes)?;
            more = cursor.advance()?;
        }
        Ok((extent_edit.loaded()?, end))
    }

    /// Loads the last extents of the file that reach beyond `from`, at most `most`. Also returns whether
    /// these are all.
    pub(crate) fn load_tail(
        inode: &Inode,
        sectorsize: u64,
        from: u64,
        most: usize,
    ) -> Result<(ExtentEdit, bool)> {
        let mut extent_edit = ExtentEdit::new(inode.id, sectorsize);
        let mut cursor = inode.tree.view.cursor();
        let mut more = cursor.seek_floor(&extent_key(inode.id, u64::MAX))?;
        let mut all = true;
        while more && let Some((key, bytes)) = cursor.current() {
            if !is_extent(key, inode.id) {
                break;
            }
            if extent_edit.before.len() == most {
                all = false;
                break;
            }
            extent_edit.take(key, bytes)?;
            let end = extent_edit
                .before
                .first_key_value()
                .map(|(start, e)| start + e.len(sectorsize));
            if end.is_some_and(|end| end <= from) {
                break;
            }
            more = cursor.retreat()?;
        }
        Ok((extent_edit.loaded()?, all))
    }

    fn take(&mut self, key: Key, bytes: &[u8]) -> Result<()> {
        let corrupt = |what| Error::Corrupt {
            tree: self.file.root,
            key,
            what,
        };
        let extent = Extent::decode(bytes).map_err(corrupt)?;
        let len = extent.len(self.sectorsize);
        if key.offset.checked_add(len).is_none() {
            return Err(corrupt(CorruptItem::ExtentRange));
        }
        self.before.insert(key.offset, extent);
        Ok(())
    }

    /// Checks EXTENT-EDIT-1 for the loaded extents.
    fn loaded(mut self) -> Result<ExtentEdit> {
        let mut end = 0;
        for (&start, extent) in &self.before {
            if start < end {
                return Err(Error::Corrupt {
                    tree: self.file.root,
                    key: extent_key(self.file, start),
                    what: CorruptItem::ExtentOverlap,
                });
            }
            end = start + extent.len(self.sectorsize);
        }
        self.after = self.before.clone();
        Ok(self)
    }

    /// Returns the extents after the edit.
    pub(crate) fn extents(&self) -> impl DoubleEndedIterator<Item = (Range<u64>, &Extent)> {
        self.after
            .iter()
            .map(|(&start, extent)| (start..start + extent.len(self.sectorsize), extent))
    }

    /// Returns the extents that overlap `range`, uncut.
    pub(super) fn overlapping(
        &self,
        range: Range<u64>,
    ) -> impl DoubleEndedIterator<Item = (Range<u64>, &Extent)> {
        let first = self.first_overlapping(range.start);
        self.after
            .range(first..range.end.max(first))
            .map(|(&start, extent)| (start..start + extent.len(self.sectorsize), extent))
            .filter(move |(place, _)| place.end > range.start)
    }

    /// Returns the start of the extent that contains `at`, or `at` itself.
    fn first_overlapping(&self, at: u64) -> u64 {
        match self.after.range(..=at).next_back() {
            Some((&start, extent)) if start + extent.len(self.sectorsize) > at => start,
            _ => at,
        }
    }

    /// Returns the parts of `range` that no extent covers, not even an explicit hole.
    pub(crate) fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for (place, _) in self.overlapping(range.clone()) {
            if place.start > at {
                gaps.push(at..place.start);
            }
            at = at.max(place.end);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// Removes `range` from the file's extents, cutting extents at its edges.
    ///
    /// Errors: the range cuts inline data (EXTENT-EDIT-2), which happens only in a damaged file.
    pub(crate) fn clear(&mut self, range: Range<u64>) -> Result<()> {
        let hit: Vec<u64> = self
            .overlapping(range.clone())
            .map(|(at, _)| at.start)
            .collect();
        for start in hit {
            let Some(extent) = self.after.remove(&start) else {
                continue;
            };
            let end = start + extent.len(self.sectorsize);
            let mut keep = |from: u64, to: u64| -> Result<()> {
                if from >= to {
                    return Ok(());
                }
                let part = extent.slice(from - start..to - start);
                let part = part.ok_or_else(|| Error::Corrupt {
                    tree: self.file.root,
                    key: extent_key(self.file, start),
                    what: CorruptItem::ExtentRange,
                })?;
                self.after.insert(from, part);
                Ok(())
            };
            keep(start, range.start)?;
            keep(range.end, end)?;
        }
        Ok(())
    }

    /// Inserts an extent into a gap, and joins it with contiguous neighbours.
    pub(super) fn put(&mut self, start: u64, extent: Extent) {
        let (mut start, mut extent) = (start, extent);
        let mut end = start + extent.len(self.sectorsize);
        debug_assert_eq!(self.overlapping(start..end).count(), 0, "EXTENT-EDIT-1");
        if let Some((&before, left)) = self.after.range(..start).next_back()
            && before + left.len(self.sectorsize) == start
            && let Some(joined) = left.joined(&extent)
        {
            (start, extent) = (before, joined);
            end = start + extent.len(self.sectorsize);
        }
        if let Some(right) = self.after.get(&end)
            && let Some(joined) = extent.joined(right)
        {
            self.after.remove(&end);
            extent = joined;
        }
        self.after.insert(start, extent);
    }

    /// Replaces the extent at `start` by one that is no longer.
    pub(crate) fn set(&mut self, start: u64, extent: Extent) {
        self.after.insert(start, extent);
    }

    /// Replaces all extents in the range of `extent`.
    pub(super) fn replace(&mut self, start: u64, extent: Extent) -> Result<()> {
        self.clear(start..start + extent.len(self.sectorsize))?;
        self.put(start, extent);
        Ok(())
    }

    /// Inserts explicit holes into the gaps of `range`.
    pub(super) fn fill_holes(&mut self, range: Range<u64>, generation: u64) {
        for gap in self.gaps(range) {
            let len = gap.end - gap.start;
            self.put(gap.start, Extent::Hole { generation, len });
        }
    }

    /// Returns the last extent that begins before `at`.
    pub(super) fn before(&self, at: u64) -> Option<&Extent> {
        self.after.range(..at).next_back().map(|(_, extent)| extent)
    }

    /// Returns whether the edit changes nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.before == self.after
    }

    /// Returns the change of the inode's `nbytes`.
    pub(crate) fn nbytes_delta(&self) -> i64 {
        let sum = |extents: &Extents| extents.values().map(Extent::nbytes).sum::<u64>();
        sum(&self.after).wrapping_sub(sum(&self.before)) as i64
    }

    /// Enters the difference of the two states: extent items and data references.
    pub(crate) fn enter(&self, target: &dyn EditTarget, inode: &Inode) {
        let edits = self.edits();
        if !edits.is_empty() {
            inode.note_extents_changed(self.span());
            target.edit_items(&inode.tree, edits, None);
        }
        for (disk, data, count) in self.ref_changes() {
            for _ in 0..count.unsigned_abs() {
                if count > 0 {
                    target.add_data_ref(disk, data)
                } else {
                    target.drop_data_ref(disk, data)
                }
            }
        }
    }

    /// Returns a range that covers all extents, before and after.
    fn span(&self) -> Range<u64> {
        let all = || self.before.iter().chain(&self.after);
        let start = all().map(|(&start, _)| start).min();
        let end = all().map(|(&start, extent)| start + extent.len(self.sectorsize));
        start.unwrap_or(0)..end.max().unwrap_or(0)
    }

    fn edits(&self) -> Vec<Edit> {
        let mut edits = Vec::new();
        for (&start, extent) in &self.after {
            let key = extent_key(self.file, start);
            match self.before.get(&start) {
                Some(before) if before == extent => {}
                Some(_) => edits.push(Edit::Put(key, extent.encode().into())),
                None => edits.push(Edit::Insert(key, extent.encode().into())),
            }
        }
        let gone = self
            .before
            .keys()
            .filter(|start| !self.after.contains_key(start));
        edits.extend(gone.map(|&start| Edit::Delete(extent_key(self.file, start))));
        edits
    }

    fn ref_changes(&self) -> Vec<(DiskExtent, DataRef, i64)> {
        let mut changes: BTreeMap<(Logical, u64, u64), i64> = BTreeMap::new();
        let mut count = |extents: &Extents, other: &Extents, delta: i64| {
            for (start, extent) in extents {
                let Extent::Disk(part) = extent else {
                    continue;
                };
                if other.get(start) == Some(extent) {
                    continue;
                }
                let offset = part.data_ref(self.file, *start).offset;
                let key = (part.disk.start, part.disk.len, offset);
                *changes.entry(key).or_insert(0) += delta;
            }
        };
        count(&self.after, &self.before, 1);
        count(&self.before, &self.after, -1);
        changes.retain(|_, delta| *delta != 0);
        let FileId { root, ino } = self.file;
        let change = |((start, len, offset), delta)| {
            let disk = DiskExtent { start, len };
            (disk, DataRef { root, ino, offset }, delta)
        };
        changes.into_iter().map(change).collect()
    }
}

fn is_extent(key: Key, file: FileId) -> bool {
    (key.objectid, key.item_type) == (file.ino.0, KeyType::EXTENT_DATA)
}

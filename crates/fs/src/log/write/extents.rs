//! File extents in a log, and the checksums of their data.
//!
//! Invariants
//! - LOG-WRITE-1: file extents in a log do not overlap, and cover all of the file that differs from the last
//!   commit.

use std::ops::Range;

use ubtrfs_format::ids::{InodeNr, Logical, objectid};
use ubtrfs_format::item::InodeFlags;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::FullCommitReason;
use ubtrfs_storage::csum_tree::{CsumShape, data_csums};
use ubtrfs_tree::View;

use super::Stop;
use super::edits::keys_of;
use super::gather::{Gather, Step, Subject};
use crate::error::{Error, Result};
use crate::file::Extent;
use crate::inode::{decode_inode, inode_key};

impl Gather<'_> {
    /// Adds the current extents of a file where it was changed, and those beyond its end. `logged_size` is
    /// the file's size in the log.
    pub(super) fn add_extents(
        &mut self,
        subject: &Subject,
        changed: Vec<Key>,
        logged_size: u64,
    ) -> Step {
        let sectorsize = self.inodes.roots.sectorsize();
        let end = subject.item.size.get().next_multiple_of(sectorsize);
        let mut extents = Vec::new();
        // If the file was truncated before it was logged and has grown again, the range in between is a hole.
        let grown = logged_size.min(end).next_multiple_of(sectorsize)..end;
        for range in self.changed_ranges(subject.ino, changed, grown)? {
            let at = |offset| Key::new(subject.ino, KeyType::EXTENT_DATA, offset);
            for (key, _) in self.log.items_in(at(range.start)..=at(range.end - 1)) {
                self.log.delete(key);
            }
            self.add_range_of_file(subject.ino, range, end, &mut extents)?;
        }
        // Replay first truncates the file to its size, which would drop preallocated extents beyond it.
        for (key, extent) in self.extents_across(&self.tree.view, subject.ino, end..u64::MAX)? {
            if matches!(extent, Extent::Disk(_)) {
                self.log.put(key, extent.encode());
                extents.push((key.offset, extent));
            }
        }
        if subject.item.flags().contains(InodeFlags::NODATASUM) {
            Ok(())
        } else {
            self.add_csums(&extents)
        }
    }

    /// Returns the changed parts of a file, in ascending order and merged. No part ends within a logged
    /// extent.
    fn changed_ranges(
        &self,
        ino: u64,
        changed: Vec<Key>,
        grown: Range<u64>,
    ) -> Result<Vec<Range<u64>>> {
        let sectorsize = self.inodes.roots.sectorsize();
        let mut ranges = vec![grown.clone()];
        for key in changed {
            if key.item_type != KeyType::EXTENT_DATA {
                // Include the old and the new extent at this key, as well as the logged one.
                continue;
            }
            ranges.push(self.to_next_extent(key, grown.end)?);
            let now = self.tree.view.get(&key)?;
            let before = self.committed.get(&key)?;
            let items = [now.as_deref(), before.as_deref()];
            for item in items.into_iter().flatten() {
                ranges.push(self.range(key, item, sectorsize)?);
            }
            if let Some(item) = self.log.get(&key) {
                ranges.push(self.range(key, item, sectorsize)?);
            }
        }
        ranges.retain(|range| !range.is_empty());
        let logged = keys_of(ino, KeyType::EXTENT_DATA..=KeyType::EXTENT_DATA);
        // Extend each range to whole logged extents, which are replaced as a whole.
        for range in &mut ranges {
            let at = |offset| Key {
                offset,
                ..*logged.start()
            };
            let last = at(range.end - 1);
            if let Some((key, item)) = self.log.last_in(*logged.start()..=last) {
                range.end = range.end.max(self.range(key, &item, sectorsize)?.end);
            }
            if let Some((key, item)) = self.log.last_in(*logged.start()..=at(range.start)) {
                let before = self.range(key, &item, sectorsize)?;
                if before.end > range.start {
                    range.start = before.start;
                }
            }
        }
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, range| {
            let touches = next.start <= range.end;
            if touches {
                range.end = range.end.max(next.end);
            }
            touches
        });
        Ok(ranges)
    }

    /// Returns the range from `key` to the next extent, or to `end`. It may be a hole that was cut out of a
    /// committed extent, for which no key was logged.
    fn to_next_extent(&self, key: Key, end: u64) -> Result<Range<u64>> {
        let mut cursor = self.tree.view.cursor();
        let mut more = cursor.seek(&key)?;
        if more && cursor.current().is_some_and(|(found, _)| found == key) {
            more = cursor.advance()?;
        }
        let next = match cursor.current() {
            Some((next, _))
                if more && (next.objectid, next.item_type) == (key.objectid, key.item_type) =>
            {
                next.offset.min(end)
            }
            _ => end,
        };
        Ok(key.offset..next)
    }

    fn range(&self, key: Key, item: &[u8], sectorsize: u64) -> Result<Range<u64>> {
        let len = self.decode(key, item)?.len(sectorsize);
        Ok(key.offset..key.offset.saturating_add(len))
    }

    fn decode(&self, key: Key, item: &[u8]) -> Result<Extent> {
        let tree = self.tree.id();
        Extent::decode(item).map_err(|what| Error::Corrupt { tree, key, what })
    }

    /// Adds the extents of a range, and explicit holes up to the end of the file (LOG-WRITE-1).
    fn add_range_of_file(
        &mut self,
        ino: u64,
        range: Range<u64>,
        end: u64,
        extents: &mut Vec<(u64, Extent)>,
    ) -> Step {
        let sectorsize = self.inodes.roots.sectorsize();
        let mut at = range.start;
        for (key, extent) in self.extents_across(&self.tree.view, ino, range.clone())? {
            self.add_hole(ino, at..key.offset.min(end));
            at = key.offset.saturating_add(extent.len(sectorsize));
            // Replay keeps the remainders of a committed extent around a newer write.
            if !self.is_committed(ino, key.offset, &extent)? {
                self.log.put(key, extent.encode());
                extents.push((key.offset, extent));
            }
        }
        self.add_hole(ino, at..range.end.min(end));
        Ok(())
    }

    fn add_hole(&mut self, ino: u64, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let hole = Extent::Hole {
            generation: 0,
            len: range.end - range.start,
        };
        let key = Key::new(ino, KeyType::EXTENT_DATA, range.start);
        self.log.put(key, hole.encode());
    }

    /// Returns the extents of a file that overlap a range.
    fn extents_across(
        &self,
        view: &View,
        ino: u64,
        range: Range<u64>,
    ) -> Result<Vec<(Key, Extent)>> {
        let sectorsize = self.inodes.roots.sectorsize();
        let keys = keys_of(ino, KeyType::EXTENT_DATA..=KeyType::EXTENT_DATA);
        let first = Key {
            offset: range.start,
            ..*keys.start()
        };
        let mut extents = Vec::new();
        let mut cursor = view.cursor();
        let mut more = cursor.seek_floor(&first)?;
        if !cursor.current().is_some_and(|(key, _)| keys.contains(&key)) {
            more = cursor.seek(&first)?;
        }
        while more
            && let Some((key, bytes)) = cursor.current()
            && keys.contains(&key)
            && key.offset < range.end
        {
            let extent = self.decode(key, bytes)?;
            if key.offset.saturating_add(extent.len(sectorsize)) > range.start {
                extents.push((key, extent));
            }
            more = cursor.advance()?;
        }
        Ok(extents)
    }

    /// Adds the extents beyond the end of a committed file, because replay would drop them.
    pub(super) fn keep_reserved_extents(&mut self, ino: u64) -> Step {
        let Some(bytes) = self.committed.get(&inode_key(InodeNr(ino)))? else {
            return Ok(());
        };
        let item = decode_inode(self.file(ino), &bytes)?;
        let sectorsize = self.inodes.roots.sectorsize();
        let end = item.size.get().next_multiple_of(sectorsize);
        for (key, extent) in self.extents_across(&self.committed, ino, end..u64::MAX)? {
            if matches!(extent, Extent::Disk(_)) {
                self.log.put(key, extent.encode());
            }
        }
        Ok(())
    }

    /// Adds the checksums of data that the last commit does not have at this place of the file.
    fn add_csums(&mut self, extents: &[(u64, Extent)]) -> Step {
        let roots = &*self.inodes.roots;
        for (_, extent) in extents {
            let Extent::Disk(part) = extent else { continue };
            if part.prealloc {
                continue;
            }
            let summed = part.summed();
            let sectors = (summed.end.0 - summed.start.0) / roots.sectorsize();
            let sums = data_csums(roots, summed.start, sectors as usize).map_err(Error::from)?;
            if sums.first_missing().is_some() {
                return Err(Stop::FullCommit(FullCommitReason::Item));
            }
            self.put_csums(summed.start, sums.bytes());
        }
        Ok(())
    }

    /// Returns whether the last commit has the same data at the same place of the file, and thus its
    /// checksums.
    fn is_committed(&self, ino: u64, start: u64, extent: &Extent) -> Result<bool> {
        let Extent::Disk(part) = extent else {
            return Ok(false);
        };
        if part.prealloc || part.generation >= self.log.transid() {
            return Ok(false);
        }
        let end = start.saturating_add(part.len);
        let mut at = start;
        for (key, before) in self.extents_across(&self.committed, ino, start..end)? {
            let Extent::Disk(old) = before else {
                return Ok(false);
            };
            // Both must be of the same extent, at the same distance between file offset and offset in the
            // extent.
            let is_same = !old.prealloc
                && old.disk == part.disk
                && old.offset.wrapping_sub(part.offset) == key.offset.wrapping_sub(start);
            if !is_same || key.offset > at {
                return Ok(false);
            }
            at = key.offset.saturating_add(old.len);
        }
        // A part that is shared with another file may be longer than before.
        Ok(at >= end)
    }

    /// Adds checksums, replacing logged ones of the same sectors, so that no two items overlap.
    fn put_csums(&mut self, start: Logical, sums: &[u8]) {
        let shape = CsumShape::of(&self.inodes.roots.superblock());
        let (mut start, mut sums) = (start, sums.to_vec());
        let key = |at: u64| Key::new(objectid::EXTENT_CSUM, KeyType::EXTENT_CSUM, at);
        let end = |at: u64, sums: &[u8]| at + shape.covered(sums.len());
        if let Some((old, item)) = self.log.last_in(key(0)..=key(start.0))
            && end(old.offset, &item) > start.0
        {
            let kept = shape.bytes_for(start.0 - old.offset);
            let behind = (kept + sums.len()).min(item.len());
            sums = [&item[..kept], &sums, &item[behind..]].concat();
            start = Logical(old.offset);
        }
        let last = key(end(start.0, &sums) - 1);
        for (old, item) in self.log.items_in(key(start.0)..=last) {
            let covered = shape.bytes_for(end(start.0, &sums).saturating_sub(old.offset));
            if covered < item.len() {
                sums.extend_from_slice(&item[covered..]);
            }
            self.log.delete(old);
        }
        for (key, sums) in shape.items(start, &sums) {
            self.log.put(key, sums);
        }
    }
}

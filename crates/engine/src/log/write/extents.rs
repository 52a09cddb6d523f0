//! File extents in a log, and the checksums of their data.
//!
//! Invariants
//! - LOG-WRITE-1: file extents in a log do not overlap, and cover all of the file that was changed.

use std::ops::Range;

use ubtrfs_format::ids::InodeNr;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_transaction::Unlogged;
use ubtrfs_transaction::csum_tree::{CsumShape, data_csums};
use ubtrfs_tree::View;

use super::Stop;
use super::edits::keys_of;
use super::gather::{Gather, Step, Subject};
use crate::error::{Error, Result};
use crate::file::Extent;
use crate::inode::{decode_inode, inode_key};

impl Gather<'_> {
    /// What a file has now where its extents were changed, and what is reserved beyond its end. `logged_size`: how large
    /// the log has it.
    pub(super) fn add_extents(
        &mut self,
        subject: &Subject,
        changed: Vec<Key>,
        logged_size: u64,
    ) -> Step {
        let sectorsize = self.inodes.roots.sectorsize();
        let end = subject.item.size.get().next_multiple_of(sectorsize);
        let mut extents = Vec::new();
        // What was cut off before the log was taken is a hole in a file that has grown since.
        let grown = logged_size.min(end).next_multiple_of(sectorsize)..end;
        for range in self.changed_ranges(subject.ino, changed, grown)? {
            let at = |offset| Key::new(subject.ino, KeyType::EXTENT_DATA, offset);
            for (key, _) in self.log.items_in(at(range.start)..=at(range.end - 1)) {
                self.log.delete(key);
            }
            self.add_range_of_file(subject.ino, range, end, &mut extents)?;
        }
        // A replay cuts the file at its end first.
        for (key, extent) in self.extents_across(&self.tree.view, subject.ino, end..u64::MAX)? {
            if matches!(extent, Extent::Disk(_)) {
                self.log.put(key, extent.encode());
                extents.push(extent);
            }
        }
        match subject.item.flags().contains(InodeFlags::NODATASUM) {
            true => Ok(()),
            false => self.add_csums(&extents),
        }
    }

    /// The parts of a file that were changed, ascending and apart. None ends within an extent that the log has.
    fn changed_ranges(
        &self,
        ino: u64,
        changed: Vec<Key>,
        grown: Range<u64>,
    ) -> Result<Vec<Range<u64>>> {
        let sectorsize = self.inodes.roots.sectorsize();
        let mut ranges = vec![grown];
        for key in changed {
            if key.item_type != KeyType::EXTENT_DATA {
                continue;
            }
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

    fn range(&self, key: Key, item: &[u8], sectorsize: u64) -> Result<Range<u64>> {
        let len = self.decode(key, item)?.len(sectorsize);
        Ok(key.offset..key.offset.saturating_add(len))
    }

    fn decode(&self, key: Key, item: &[u8]) -> Result<Extent> {
        let tree = self.tree.id();
        Extent::decode(item).map_err(|what| Error::Corrupt { tree, key, what })
    }

    /// The extents of a range, and holes where it has none before the end of the file (LOG-WRITE-1).
    fn add_range_of_file(
        &mut self,
        ino: u64,
        range: Range<u64>,
        end: u64,
        extents: &mut Vec<Extent>,
    ) -> Step {
        let sectorsize = self.inodes.roots.sectorsize();
        let mut at = range.start;
        for (key, extent) in self.extents_across(&self.tree.view, ino, range.clone())? {
            self.add_hole(ino, at..key.offset.min(end));
            at = key.offset.saturating_add(extent.len(sectorsize));
            self.log.put(key, extent.encode());
            extents.push(extent);
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

    /// The extents of a file that overlap a range.
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

    /// Extents beyond the end of a committed file, which a replay cuts off whatever the log has of the file.
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

    /// The checksums of extents that the last commit does not know.
    fn add_csums(&mut self, extents: &[Extent]) -> Step {
        let roots = &*self.inodes.roots;
        let shape = CsumShape::of(&roots.superblock());
        for extent in extents {
            let Extent::Disk(part) = extent else { continue };
            if part.prealloc || part.generation != self.log.transid() {
                continue;
            }
            // Of the whole extent, so that parts of it never overlap in the log.
            let sectors = part.disk.len / roots.sectorsize();
            let sums = data_csums(roots, part.disk.start, sectors as usize)?;
            if sums.first_missing().is_some() {
                return Err(Stop::Unlogged(Unlogged::Item));
            }
            for (key, sums) in shape.items(part.disk.start, sums.bytes()) {
                self.log.put(key, sums);
            }
        }
        Ok(())
    }
}

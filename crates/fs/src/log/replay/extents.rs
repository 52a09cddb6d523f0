//! File extents: logged extents replace the current ones, together with their checksums.

use std::ops::Range;

use ubtrfs_format::ids::{InodeNr, Logical, RootId, objectid};
use ubtrfs_format::item::{FileKind, InodeFlags};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::Edit;

use super::Replay;
use crate::error::{CorruptItem, Result};
use crate::file::{Extent, ExtentEdit};
use crate::inode::kind_of;
use ubtrfs_storage::FileId;
use ubtrfs_storage::csum_tree::{self, CsumShape};

/// The most extents that one step of a truncation drops.
const CUT_AT_ONCE: usize = 1024;

impl Replay<'_, '_> {
    /// Replays an EXTENT_DATA item.
    pub(super) fn replay_extent(&mut self, key: Key, bytes: &[u8]) -> Result<()> {
        if self.tree.view.get(&key)?.is_some_and(|old| *old == *bytes) {
            return Ok(());
        }
        let item = self.check_inode(key)?;
        let id = self.file(InodeNr(key.objectid));
        let kind = kind_of(id, &item)?;
        let extent = Extent::decode(bytes).map_err(|what| self.corrupt(key, what))?;
        let range = self.range_of(key, &extent)?;
        let may_have = match extent {
            Extent::Inline(_) => matches!(kind, FileKind::Regular | FileKind::Symlink),
            _ => kind == FileKind::Regular,
        };
        if !may_have {
            return Err(self.corrupt(key, CorruptItem::LogKind));
        }
        if let (Extent::Disk(part), Some(extents)) = (&extent, &mut self.extents)
            && !extents.make(part.disk)?
        {
            return Err(self.corrupt(key, CorruptItem::LogExtentInUse(part.disk.start)));
        }
        let inode = self.inodes.get(id)?;
        let mut edit = ExtentEdit::load(&inode, self.roots().sectorsize(), range.clone())?;
        edit.clear(range.clone())?;
        let is_needless = matches!(extent, Extent::Hole { .. }) && self.roots().has_no_holes();
        if !is_needless {
            edit.set(range.start, extent.clone());
        }
        self.enter(id, &edit)?;
        if let Extent::Disk(part) = &extent
            && !part.prealloc
            && !item.flags().contains(InodeFlags::NODATASUM)
        {
            self.replay_csums(part.summed())?;
        }
        Ok(())
    }

    /// Returns the range of the file that an extent covers.
    fn range_of(&self, key: Key, extent: &Extent) -> Result<Range<u64>> {
        let sectorsize = self.roots().sectorsize();
        let len = extent.len(sectorsize);
        let is_whole = key.offset.is_multiple_of(sectorsize) && len.is_multiple_of(sectorsize);
        let is_inside = !matches!(extent, Extent::Inline(_)) || key.offset == 0;
        match key.offset.checked_add(len) {
            Some(end) if is_whole && is_inside && len > 0 => Ok(key.offset..end),
            Some(_) if matches!(extent, Extent::Inline(_)) && is_inside => Ok(0..sectorsize),
            _ => Err(self.corrupt(key, CorruptItem::ExtentRange)),
        }
    }

    /// Drops the extents beyond `size`.
    pub(super) fn truncate_extents(&mut self, id: FileId, size: u64) -> Result<()> {
        let sectorsize = self.roots().sectorsize();
        let from = size.next_multiple_of(sectorsize);
        let inode = self.inodes.get(id)?;
        loop {
            let (mut edit, all) = ExtentEdit::load_tail(&inode, sectorsize, from, CUT_AT_ONCE)?;
            let last = edit.extents().next_back().map(|(range, _)| range.end);
            let Some(end) = last.filter(|end| *end > from) else {
                return Ok(());
            };
            let first = edit.extents().next().map_or(from, |(range, _)| range.start);
            // More extents precede the first loaded one.
            let loaded = if all { from } else { first.max(from) };
            edit.clear(loaded..end)?;
            self.enter(id, &edit)?;
            if loaded == from {
                return Ok(());
            }
        }
    }

    fn enter(&mut self, id: FileId, edit: &ExtentEdit) -> Result<()> {
        if edit.is_idle() {
            return Ok(());
        }
        let inode = self.inodes.get(id)?;
        edit.enter(self.target, &inode);
        if self.nbytes.is_some_and(|(ino, _)| ino != id.ino) {
            self.flush_nbytes()?;
        }
        let (_, nbytes) = self.nbytes.get_or_insert((id.ino, 0));
        *nbytes += edit.nbytes_delta();
        Ok(())
    }

    /// Adds the pending change of `nbytes` to the inode's item.
    pub(super) fn flush_nbytes(&mut self) -> Result<()> {
        let Some((ino, delta)) = self.nbytes.take() else {
            return Ok(());
        };
        if delta != 0
            && let Some(mut item) = self.find_inode(ino)?
        {
            item.nbytes = item.nbytes.get().saturating_add_signed(delta).into();
            self.put_inode(ino, &item);
        }
        Ok(())
    }

    /// Copies the logged checksums of a range of addresses. The log may cover only a part of the range. The
    /// rest was committed with its data, and its checksums stay.
    fn replay_csums(&mut self, range: Range<Logical>) -> Result<()> {
        let Some(tree) = self.roots().find_tree(RootId::CSUM_TREE)? else {
            return Ok(());
        };
        let shape = CsumShape::of(&self.roots().superblock());
        let (mut edits, mut logged) = (Vec::new(), Vec::new());
        let mut cursor = self.log.cursor();
        let first = Key::new(objectid::EXTENT_CSUM, KeyType::EXTENT_CSUM, range.start.0);
        let mut more = cursor.seek_floor(&first)? || cursor.seek(&first)?;
        while more
            && let Some((key, sums)) = cursor.current()
            && key < Key::new(first.objectid, first.item_type, range.end.0)
        {
            if key.item_type == KeyType::EXTENT_CSUM
                && let Some((start, sums)) = shape.part(key.offset, sums, &range)
            {
                logged.push((start.0, shape.covered(sums.len())));
                for (key, sums) in shape.items(start, sums) {
                    edits.push(Edit::Put(key, sums.into()));
                }
            }
            more = cursor.advance()?;
        }
        if edits.is_empty() {
            return Ok(());
        }
        let gone = csum_tree::remove(&tree.view, &logged, shape)?;
        let mut all: Vec<Edit> = gone
            .into_iter()
            .map(|(key, sums)| match sums {
                Some(sums) => Edit::Put(key, sums.into()),
                None => Edit::Delete(key),
            })
            .collect();
        all.append(&mut edits);
        self.target.edit_items(&tree, all, None);
        Ok(())
    }
}

//! SEEK_DATA and SEEK_HOLE. Unwritten preallocated space counts as a hole, and buffered data as data, in
//! whole sectors.

use ubtrfs_storage::roots::Tree;
use ubtrfs_storage::{FileId, lock};

use super::Files;
use super::extents::{FileExtents, FileRange};
use crate::error::Result;
use crate::inode::WriteBuffer;

impl Files {
    /// Returns the first offset at or above `offset` that holds data, or None if only a hole follows.
    pub(crate) fn seek_data(&self, id: FileId, offset: u64) -> Result<Option<u64>> {
        self.with_layout(id, |layout| {
            if offset >= layout.size {
                return Ok(None);
            }
            let stored = layout.stored_data(offset)?;
            let buffered = layout.buffered_data(offset);
            let first = match (stored, buffered) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            Ok(first.filter(|&at| at < layout.size))
        })
    }

    /// Returns the first offset at or above `offset` in a hole, at most the end of the file. Returns None if
    /// `offset` is not below the end.
    pub(crate) fn seek_hole(&self, id: FileId, offset: u64) -> Result<Option<u64>> {
        self.with_layout(id, |layout| {
            if offset >= layout.size {
                return Ok(None);
            }
            Ok(Some(layout.hole(offset)?.min(layout.size)))
        })
    }

    fn with_layout<T>(&self, id: FileId, look: impl FnOnce(&Layout<'_>) -> Result<T>) -> Result<T> {
        let inode = self.inodes.find(id);
        let state = inode
            .as_ref()
            .map(|inode| lock::read(&inode.lock))
            .transpose()?;
        let item_size = self.inodes.stored_attr(id)?.size;
        let tree = self.roots.tree_of(id)?;
        let none = WriteBuffer::default();
        let buffer = state.as_ref().map_or(&none, |state| &state.buffer);
        look(&Layout {
            files: self,
            tree: &tree,
            id,
            buffer,
            size: buffer.size_over(item_size),
            stored_end: buffer.size_on_disk(item_size),
        })
    }
}

/// The layout of a file: its extents and its buffered data.
struct Layout<'a> {
    files: &'a Files,
    tree: &'a Tree,
    id: FileId,
    buffer: &'a WriteBuffer,
    size: u64,
    /// Extents count only below this offset.
    stored_end: u64,
}

impl Layout<'_> {
    fn extents(&self, from: u64) -> Result<FileExtents<'_>> {
        FileExtents::from(self.files, self.tree, self.id, from)
    }

    fn end_of(&self, range: &FileRange<'_>) -> u64 {
        range.end_aligned(self.files.roots.sectorsize())
    }

    fn stored_data(&self, offset: u64) -> Result<Option<u64>> {
        let mut extents = self.extents(offset)?;
        let mut found = None;
        while found.is_none() {
            let more = extents.next(&mut |range| {
                if range.is_data() && self.end_of(&range) > offset {
                    found = Some(range.start.max(offset));
                }
                Ok(())
            })?;
            if !more {
                break;
            }
        }
        Ok(found.filter(|&at| at < self.stored_end))
    }

    /// Returns the first offset at or above `offset` without data. Walks the extents and the buffer in
    /// parallel, so that it looks at each extent once.
    fn hole(&self, offset: u64) -> Result<u64> {
        let mut extents = self.extents(offset)?;
        let mut at = offset;
        let mut is_hole = false;
        while !is_hole && at < self.stored_end {
            let more = extents.next(&mut |range| {
                while !is_hole && at < self.end_of(&range) {
                    if range.start <= at && range.is_data() {
                        at = self.end_of(&range);
                    } else {
                        let buffered = self.buffered_hole(at);
                        is_hole = buffered == at;
                        at = buffered;
                    }
                }
                Ok(())
            })?;
            if !more {
                break;
            }
        }
        Ok(self.buffered_hole(at))
    }

    fn buffered_data(&self, offset: u64) -> Option<u64> {
        let sectorsize = self.files.roots.sectorsize();
        let first = self.buffer.next_data(offset - offset % sectorsize)?;
        Some((first - first % sectorsize).max(offset))
    }

    /// Returns the first offset at or above `offset` whose sector has no buffered data.
    fn buffered_hole(&self, offset: u64) -> u64 {
        let sectorsize = self.files.roots.sectorsize();
        let mut at = offset;
        loop {
            let sector = at - at % sectorsize;
            if !self.buffer.touches(sector..sector + sectorsize) {
                return at;
            }
            let gap = self.buffer.next_gap(at.max(sector));
            at = gap.next_multiple_of(sectorsize).max(sector + sectorsize);
        }
    }
}

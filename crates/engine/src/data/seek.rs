//! SEEK_DATA and SEEK_HOLE. Preallocated space that was not written counts as a hole.

use super::extents::FileExtents;
use crate::error::Result;
use crate::fs::FileId;
use crate::volume::Volume;

impl Volume {
    /// The first offset at or above `offset` that holds data; None if there is none before the end.
    pub fn seek_data(&self, id: FileId, offset: u64) -> Result<Option<u64>> {
        let size = self.attr(id)?.size;
        let sectorsize = self.sectorsize();
        let tree = self.subvolume_tree(id.root)?;
        let mut extents = FileExtents::from(self, &tree, id, offset)?;
        let mut found = None;
        while found.is_none() {
            let more = extents.next(&mut |range| {
                if range.is_data() && range.end_aligned(sectorsize) > offset {
                    found = Some(range.start.max(offset));
                }
                Ok(())
            })?;
            if !more {
                break;
            }
        }
        Ok(found.filter(|&at| at < size))
    }

    /// The first offset at or above `offset` that holds none, the end of the file at the latest; None
    /// if `offset` is not below the end.
    pub fn seek_hole(&self, id: FileId, offset: u64) -> Result<Option<u64>> {
        let size = self.attr(id)?.size;
        if offset >= size {
            return Ok(None);
        }
        let sectorsize = self.sectorsize();
        let tree = self.subvolume_tree(id.root)?;
        let mut extents = FileExtents::from(self, &tree, id, offset)?;
        let mut at = offset;
        let mut hole = false;
        while !hole && at < size {
            let more = extents.next(&mut |range| {
                if range.start > at {
                    hole = true;
                } else if range.end_aligned(sectorsize) > at {
                    if range.is_data() {
                        at = range.end_aligned(sectorsize);
                    } else {
                        hole = true;
                    }
                }
                Ok(())
            })?;
            if !more {
                break;
            }
        }
        Ok(Some(at.min(size)))
    }
}

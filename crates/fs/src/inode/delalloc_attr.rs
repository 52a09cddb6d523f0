//! Attributes that include buffered data: the size, and sectors that have no extent yet.
//!
//! The number of these sectors is the later growth of the item's `nbytes`, so a write-back changes nothing
//! that `stat` displays.

use std::ops::Range;

use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::FileId;
use ubtrfs_tree::Cursor;

use super::{Attr, Inode, InodeState, Inodes};
use crate::error::Result;

impl Inodes {
    /// Returns `stored` with the size and the used bytes including buffered data.
    pub(crate) fn with_delalloc(
        &self,
        inode: &Inode,
        state: &InodeState,
        stored: Attr,
    ) -> Result<Attr> {
        if !state.buffer.is_dirty() {
            return Ok(Attr {
                size: state.buffer.size_over(stored.size),
                ..stored
            });
        }
        let sectorsize = self.roots.sectorsize();
        let mut count = state.buffer.count();
        count.note_changed(inode.take_changed_extents());
        let mut cursor = inode.tree.view.cursor();
        let more = count.bytes(|sectors| match stored.nbytes {
            0 => Ok(vec![sectors]),
            _ => without_extents(&mut cursor, inode.id, sectors, sectorsize),
        })?;
        Ok(Attr {
            size: state.buffer.size_over(stored.size),
            nbytes: stored.nbytes.saturating_add(more),
            ..stored
        })
    }
}

/// Returns the parts of `sectors` that no extent with space covers.
fn without_extents(
    cursor: &mut Cursor<'_>,
    file: FileId,
    sectors: Range<u64>,
    sectorsize: u64,
) -> Result<Vec<Range<u64>>> {
    let mut left = Vec::new();
    let mut at = sectors.start;
    let first = Key::new(file.ino.0, KeyType::EXTENT_DATA, sectors.start);
    let before = cursor.seek_floor(&first)?
        && cursor
            .current()
            .is_some_and(|(key, _)| is_extent(key, file));
    let mut more = before || cursor.seek(&first)?;
    while more
        && let Some((key, bytes)) = cursor.current()
        && is_extent(key, file)
        && key.offset < sectors.end
    {
        if let Some(len) = space_bytes(bytes) {
            let end = key.offset.saturating_add(len);
            let end = end.checked_next_multiple_of(sectorsize).unwrap_or(end);
            if key.offset > at {
                left.push(at..key.offset);
            }
            at = at.max(end.min(sectors.end));
        }
        more = cursor.advance()?;
    }
    if at < sectors.end {
        left.push(at..sectors.end);
    }
    Ok(left)
}

fn is_extent(key: Key, file: FileId) -> bool {
    (key.objectid, key.item_type) == (file.ino.0, KeyType::EXTENT_DATA)
}

/// Returns the length of an extent in the file, or None for a hole.
fn space_bytes(item: &[u8]) -> Option<u64> {
    let extent = FileExtent::decode(item)?;
    match &extent {
        FileExtent::Regular { body, .. } if body.disk().is_none() => None,
        _ => Some(extent.num_bytes()),
    }
}

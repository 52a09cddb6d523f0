//! Data of a file that its item does not count: sectors that are buffered and have no extent yet.
//!
//! Their number is what the item gains when they are stored, so that what users see does not change then.

use std::ops::Range;

use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_transaction::FileId;
use ubtrfs_transaction::roots::Tree;

use super::{Attr, Inode, InodeState, Inodes};
use crate::error::Result;

impl Inodes {
    /// Returns `stored` with the size and the bytes in use that include buffered data.
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
        let mut gaps = state.buffer.sectors(sectorsize);
        if stored.nbytes > 0 {
            gaps = without_extents(&inode.tree, inode.id, gaps, sectorsize)?;
        }
        let more: u64 = gaps.iter().map(|gap| gap.end - gap.start).sum();
        Ok(Attr {
            size: state.buffer.size_over(stored.size),
            nbytes: stored.nbytes.saturating_add(more),
            ..stored
        })
    }
}

/// Returns the parts of `gaps`, which ascend, that no extent with space covers.
fn without_extents(
    tree: &Tree,
    file: FileId,
    gaps: Vec<Range<u64>>,
    sectorsize: u64,
) -> Result<Vec<Range<u64>>> {
    let mut left = Vec::with_capacity(gaps.len());
    let mut cursor = tree.view.cursor();
    for gap in gaps {
        let mut at = gap.start;
        let first = Key::new(file.ino.0, KeyType::EXTENT_DATA, gap.start);
        let before = cursor.seek_floor(&first)?
            && cursor
                .current()
                .is_some_and(|(key, _)| is_extent(key, file));
        let mut more = before || cursor.seek(&first)?;
        while more
            && let Some((key, bytes)) = cursor.current()
            && is_extent(key, file)
            && key.offset < gap.end
        {
            if let Some(len) = space_bytes(bytes) {
                let end = key.offset.saturating_add(len);
                let end = end.checked_next_multiple_of(sectorsize).unwrap_or(end);
                if key.offset > at {
                    left.push(at..key.offset);
                }
                at = at.max(end.min(gap.end));
            }
            more = cursor.advance()?;
        }
        if at < gap.end {
            left.push(at..gap.end);
        }
    }
    Ok(left)
}

fn is_extent(key: Key, file: FileId) -> bool {
    (key.objectid, key.item_type) == (file.ino.0, KeyType::EXTENT_DATA)
}

/// Returns how much of the file an extent stands for; None for a hole.
fn space_bytes(item: &[u8]) -> Option<u64> {
    let extent = FileExtent::decode(item)?;
    match &extent {
        FileExtent::Regular { body, .. } if body.disk().is_none() => None,
        _ => Some(extent.num_bytes()),
    }
}

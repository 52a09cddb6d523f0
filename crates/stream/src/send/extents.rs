//! The extents of one file in a snapshot, at ascending offsets.
//!
//! Not here: the commands for sending them (`data`).

use std::ops::Range;

use ubtrfs_format::compress::{Compression, MAX_EXTENT_BYTES};
use ubtrfs_format::ids::Logical;
use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::{Cursor, Item};

use super::error::{CorruptFile, Result};
use super::file_tree::FileTree;

/// The contents of a file from some offset on.
#[derive(Clone, Debug)]
pub(super) enum Stored {
    /// Reads as zeros.
    Nothing,
    /// An inline extent that begins `skip` bytes earlier.
    Inline {
        item: Item,
        skip: u64,
    },
    Disk(DiskRange),
}

/// A part of an extent on disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct DiskRange {
    pub(super) extent: Logical,
    pub(super) disk_bytes: u64,
    pub(super) ram_bytes: u64,
    pub(super) compression: Compression,
    /// Offset of the part in the decompressed extent.
    pub(super) offset: u64,
}

impl DiskRange {
    /// Returns whether `next` directly follows this part, which covers `range`, in the same extent.
    pub(super) fn is_followed_by(&self, range: &Range<u64>, next: &DiskRange) -> bool {
        let behind = self.offset.checked_add(range.end - range.start);
        next.extent == self.extent && Some(next.offset) == behind
    }
}

impl Stored {
    /// Returns whether both certainly have equal contents.
    pub(super) fn is_same(&self, other: &Stored) -> bool {
        match (self, other) {
            (Stored::Nothing, Stored::Nothing) => true,
            (Stored::Disk(a), Stored::Disk(b)) => a.extent == b.extent && a.offset == b.offset,
            (
                Stored::Inline { item: a, skip },
                Stored::Inline {
                    item: b,
                    skip: other,
                },
            ) => {
                // Compares the bytes after the generation.
                skip == other && a.key() == b.key() && a.get(8..) == b.get(8..)
            }
            _ => false,
        }
    }
}

/// Returns whether an item's part is within its extent, and the extent within the volume.
fn is_within(tree: FileTree<'_>, extent: &FileExtent<'_>) -> bool {
    let (head, body) = match extent {
        FileExtent::Inline { head, .. } => return head.ram_bytes.get() <= MAX_EXTENT_BYTES as u64,
        FileExtent::Regular { head, body, .. } => (head, body),
    };
    if body.disk().is_none() {
        return true;
    }
    let disk_bytes = body.disk_num_bytes.get();
    let len = match head.compression {
        0 => disk_bytes,
        _ => head.ram_bytes.get().min(MAX_EXTENT_BYTES as u64),
    };
    let volume = tree.snapshot.volume().superblock();
    let end = body.offset.get().checked_add(body.num_bytes.get());
    disk_bytes <= volume.total_bytes.get() && end.is_some_and(|end| end <= len)
}

/// Returns the file range of an extent item.
pub(super) fn item_range(tree: FileTree<'_>, item: &Item) -> Result<(u64, u64)> {
    let key = item.key();
    let corrupt = |what| tree.corrupt(key.objectid, what);
    let extent = FileExtent::decode(item).ok_or_else(|| corrupt(CorruptFile::Undecodable))?;
    let end = key.offset.checked_add(extent.num_bytes());
    let end = end.filter(|&end| end <= i64::MAX as u64 && is_within(tree, &extent));
    Ok((
        key.offset,
        end.ok_or_else(|| corrupt(CorruptFile::ExtentRange))?,
    ))
}

/// A walk over the extents of one file.
pub(super) struct FileMap<'a> {
    tree: FileTree<'a>,
    ino: u64,
    cursor: Cursor<'a>,
    /// The extent that ends after all requested offsets, with its range.
    current: Option<(u64, u64, Item)>,
}

impl<'a> FileMap<'a> {
    /// Starts a walk over the extents from `offset` on.
    pub(super) fn new(tree: FileTree<'a>, ino: u64, offset: u64) -> Result<FileMap<'a>> {
        let mut cursor = tree.snapshot.view().cursor();
        let key = Key::new(ino, KeyType::EXTENT_DATA, offset);
        let is_extent = |cursor: &Cursor<'_>| {
            cursor.current().is_some_and(|(found, _)| {
                (found.objectid, found.item_type) == (ino, KeyType::EXTENT_DATA)
            })
        };
        if !cursor.seek_floor(&key)? || !is_extent(&cursor) {
            cursor.seek(&key)?;
        }
        let mut map = FileMap {
            tree,
            ino,
            cursor,
            current: None,
        };
        map.take()?;
        Ok(map)
    }

    fn take(&mut self) -> Result<()> {
        let item = self.cursor.item().filter(|item| {
            (item.key().objectid, item.key().item_type) == (self.ino, KeyType::EXTENT_DATA)
        });
        self.current = match item {
            Some(item) => {
                let (start, end) = item_range(self.tree, &item)?;
                Some((start, end, item))
            }
            None => None,
        };
        Ok(())
    }

    /// Returns the contents at `offset`, and their end. Offsets must ascend.
    pub(super) fn at(&mut self, offset: u64) -> Result<(Stored, u64)> {
        while let Some((_, end, _)) = &self.current
            && *end <= offset
        {
            self.cursor.advance()?;
            self.take()?;
        }
        let Some((start, end, item)) = &self.current else {
            return Ok((Stored::Nothing, u64::MAX));
        };
        if *start > offset {
            return Ok((Stored::Nothing, *start));
        }
        let corrupt = |what| self.tree.corrupt(self.ino, what);
        let extent = FileExtent::decode(item).ok_or_else(|| corrupt(CorruptFile::Undecodable))?;
        let skip = offset - start;
        let stored = match extent {
            FileExtent::Inline { .. } => Stored::Inline {
                item: item.clone(),
                skip,
            },
            FileExtent::Regular { prealloc: true, .. } => Stored::Nothing,
            FileExtent::Regular { head, body, .. } => match body.disk() {
                None => Stored::Nothing,
                Some(extent) => Stored::Disk(DiskRange {
                    extent,
                    disk_bytes: body.disk_num_bytes.get(),
                    ram_bytes: head.ram_bytes.get(),
                    compression: Compression::from_raw(head.compression)
                        .ok_or_else(|| corrupt(CorruptFile::Undecodable))?,
                    offset: body.offset.get() + skip,
                }),
            },
        };
        Ok((stored, *end))
    }
}

//! The file extents of an inode, in file order and checked. Gaps between them are skipped.

use ubtrfs_device::ChunkMap;
use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::Logical;
use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::FileId;
use ubtrfs_storage::roots::Tree;
use ubtrfs_tree::Cursor;

use super::Files;
use crate::error::{CorruptItem, Error, Result};

/// The most that the kernel compresses into one extent, and the largest compressed extent on disk.
pub(super) const MAX_COMPRESSED_BYTES: u64 = 128 << 10;

/// The source of a part of a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum ExtentSource<'a> {
    Inline {
        data: &'a [u8],
        compression: Compression,
    },
    /// An explicit hole or preallocated space: reads as zeros.
    Zeros,
    /// Uncompressed: the file range's first byte is at `logical`.
    Plain { logical: Logical },
    Compressed(
        CompressedExtent,
        /* offset in the decompressed bytes */ u64,
    ),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CompressedExtent {
    /// Distinguishes it from an older extent at the same address.
    pub(super) generation: u64,
    pub(super) logical: Logical,
    pub(super) disk_bytes: u64,
    pub(super) ram_bytes: u64,
    pub(super) compression: u8,
}

/// The part of a file that one extent item describes.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileRange<'a> {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) source: ExtentSource<'a>,
}

impl FileRange<'_> {
    pub(super) fn end(&self) -> u64 {
        self.start + self.len
    }

    /// Returns the lowest offset where the next extent may begin: inline data takes whole sectors of the
    /// file.
    pub(super) fn end_aligned(&self, sectorsize: u64) -> u64 {
        match self.source {
            ExtentSource::Inline { .. } => self.end().next_multiple_of(sectorsize),
            _ => self.end(),
        }
    }

    /// Returns whether SEEK_DATA stops here.
    pub(super) fn is_data(&self) -> bool {
        !matches!(self.source, ExtentSource::Zeros)
    }
}

/// Walks the extents of one inode that end above a given offset.
pub(super) struct FileExtents<'v> {
    chunks: &'v ChunkMap,
    file: FileId,
    cursor: Cursor<'v>,
    more: bool,
    /// The end of the previous range: extents never overlap.
    floor: u64,
}

impl<'v> FileExtents<'v> {
    /// Creates an iterator over the extents of `file` from `offset` on. `tree` is the tree of its subvolume.
    pub(super) fn from(
        files: &'v Files,
        tree: &'v Tree,
        file: FileId,
        offset: u64,
    ) -> Result<Self> {
        let mut cursor = tree.view.cursor();
        let key = Key::new(file.ino.0, KeyType::EXTENT_DATA, offset);
        let mut more = cursor.seek_floor(&key)?;
        if !more || !stands_on(&cursor, file) {
            more = cursor.seek(&key)?;
        }
        Ok(FileExtents {
            chunks: files.roots.pool().chunk_map(),
            file,
            cursor,
            more,
            floor: 0,
        })
    }

    /// Passes the next extent to `each`. Returns false after the last.
    pub(super) fn next(
        &mut self,
        each: &mut dyn FnMut(FileRange<'_>) -> Result<()>,
    ) -> Result<bool> {
        if !self.more || !stands_on(&self.cursor, self.file) {
            return Ok(false);
        }
        let Some((key, bytes)) = self.cursor.current() else {
            return Ok(false);
        };
        let range = decode(self.chunks, key, bytes)
            .and_then(|range| {
                if range.start < self.floor {
                    Err(CorruptItem::ExtentOverlap)
                } else {
                    Ok(range)
                }
            })
            .map_err(|what| Error::Corrupt {
                tree: self.file.root,
                key,
                what,
            })?;
        self.floor = range.end();
        each(range)?;
        self.more = self.cursor.advance()?;
        Ok(true)
    }
}

fn stands_on(cursor: &Cursor<'_>, file: FileId) -> bool {
    cursor
        .current()
        .is_some_and(|(key, _)| (key.objectid, key.item_type) == (file.ino.0, KeyType::EXTENT_DATA))
}

fn decode<'a>(
    chunks: &ChunkMap,
    key: Key,
    bytes: &'a [u8],
) -> std::result::Result<FileRange<'a>, CorruptItem> {
    let extent = FileExtent::decode(bytes).ok_or(CorruptItem::Undecodable)?;
    let head = extent.head();
    let compression = Compression::from_raw(head.compression)
        .ok_or(CorruptItem::Compression(head.compression))?;
    if head.encryption != 0 {
        return Err(CorruptItem::Encryption);
    }
    let start = key.offset;
    let len = extent.num_bytes();
    start.checked_add(len).ok_or(CorruptItem::ExtentRange)?;
    let source = match extent {
        FileExtent::Inline { head, data } => {
            let ram_bytes = head.ram_bytes.get();
            if ram_bytes > MAX_COMPRESSED_BYTES {
                let disk_bytes = data.len() as u64;
                return Err(CorruptItem::CompressedSize {
                    disk_bytes,
                    ram_bytes,
                });
            }
            ExtentSource::Inline { data, compression }
        }
        FileExtent::Regular {
            head,
            body,
            prealloc,
        } => match body.disk() {
            None => ExtentSource::Zeros,
            Some(_) if prealloc => ExtentSource::Zeros,
            Some(logical) => {
                let within = body
                    .offset
                    .get()
                    .checked_add(len)
                    .ok_or(CorruptItem::ExtentRange)?;
                // An extent that no chunk can hold is unreadable, and its length is not plausible.
                if !holds(chunks, logical, body.disk_num_bytes.get()) {
                    return Err(CorruptItem::ExtentUnmapped { logical });
                }
                let whole = CompressedExtent {
                    generation: head.generation.get(),
                    logical,
                    disk_bytes: body.disk_num_bytes.get(),
                    ram_bytes: head.ram_bytes.get(),
                    compression: head.compression,
                };
                regular(whole, body.offset.get(), within)?
            }
        },
    };
    Ok(FileRange { start, len, source })
}

/// Returns whether one chunk holds all of an extent.
fn holds(chunks: &ChunkMap, logical: Logical, len: u64) -> bool {
    let Some(chunk) = chunks.find(logical) else {
        return false;
    };
    len <= chunk.end().0 - logical.0
}

/// Returns the source of a regular extent, compressed or not. `within` is the end of the file's part, as an
/// offset in the extent.
fn regular(
    whole: CompressedExtent,
    offset: u64,
    within: u64,
) -> std::result::Result<ExtentSource<'static>, CorruptItem> {
    let CompressedExtent {
        logical,
        disk_bytes,
        ram_bytes,
        compression,
        ..
    } = whole;
    if compression == 0 {
        // Old kernels wrote uncompressed extents with a `ram_bytes` below their size on disk, so it is
        // ignored here.
        if within > disk_bytes {
            return Err(CorruptItem::ExtentRange);
        }
        let logical = logical
            .checked_add(offset)
            .ok_or(CorruptItem::ExtentRange)?;
        return Ok(ExtentSource::Plain { logical });
    }
    if within > ram_bytes {
        return Err(CorruptItem::ExtentRange);
    }
    if disk_bytes > MAX_COMPRESSED_BYTES || ram_bytes > MAX_COMPRESSED_BYTES {
        return Err(CorruptItem::CompressedSize {
            disk_bytes,
            ram_bytes,
        });
    }
    Ok(ExtentSource::Compressed(whole, offset))
}

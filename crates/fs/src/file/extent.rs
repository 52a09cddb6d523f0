//! A file extent item in a form for edits: owned, checked, and divisible.
//!
//! Not here: the items that an edit changes (`extent_edit`), reading the data of extents (`extents`).

use std::ops::Range;
use std::sync::Arc;

use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::Logical;
use ubtrfs_format::item::{FileExtent, FileExtentHead, FileExtentKind, FileExtentRegular};
use ubtrfs_storage::{DataRef, DiskExtent, FileId};
use zerocopy::IntoBytes;

use crate::error::CorruptItem;

/// The content of one file extent item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Inline(InlineExtent),
    Disk(DiskPart),
    /// An explicit hole of this many bytes.
    Hole {
        generation: u64,
        len: u64,
    },
}

/// Data within the item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InlineExtent {
    pub(crate) generation: u64,
    pub(crate) ram_bytes: u64,
    pub(crate) compression: Compression,
    pub(crate) stored: Arc<[u8]>,
}

/// A part of an extent on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiskPart {
    pub(crate) generation: u64,
    /// Decompressed length of the whole extent.
    pub(crate) ram_bytes: u64,
    pub(crate) compression: Compression,
    /// Preallocated and never written.
    pub(crate) prealloc: bool,
    pub(crate) disk: DiskExtent,
    /// Offset of this part in the decompressed extent.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Extent {
    /// Decodes an EXTENT_DATA item.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Extent, CorruptItem> {
        let extent = FileExtent::decode(bytes).ok_or(CorruptItem::Undecodable)?;
        let head = extent.head();
        let compression = Compression::from_raw(head.compression)
            .ok_or(CorruptItem::Compression(head.compression))?;
        if head.encryption != 0 {
            return Err(CorruptItem::Encryption);
        }
        let generation = head.generation.get();
        let ram_bytes = head.ram_bytes.get();
        let (body, prealloc) = match extent {
            FileExtent::Inline { data, .. } => {
                return Ok(Extent::Inline(InlineExtent {
                    generation,
                    ram_bytes,
                    compression,
                    stored: data.into(),
                }));
            }
            FileExtent::Regular { body, prealloc, .. } => (body, prealloc),
        };
        let len = body.num_bytes.get();
        let Some(start) = body.disk() else {
            return Ok(Extent::Hole { generation, len });
        };
        let part = DiskPart {
            generation,
            ram_bytes,
            compression,
            prealloc,
            disk: DiskExtent {
                start,
                len: body.disk_num_bytes.get(),
            },
            offset: body.offset.get(),
            len,
        };
        part.check()?;
        Ok(Extent::Disk(part))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let head =
            |kind: FileExtentKind, generation: u64, ram_bytes: u64, compression| FileExtentHead {
                generation: generation.into(),
                ram_bytes: ram_bytes.into(),
                compression,
                encryption: 0,
                other_encoding: 0.into(),
                type_: kind as u8,
            };
        match self {
            Extent::Inline(inline) => {
                let head = head(
                    FileExtentKind::Inline,
                    inline.generation,
                    inline.ram_bytes,
                    inline.compression.raw(),
                );
                [head.as_bytes(), &inline.stored].concat()
            }
            Extent::Disk(part) => {
                let kind = if part.prealloc {
                    FileExtentKind::Prealloc
                } else {
                    FileExtentKind::Regular
                };
                let head = head(
                    kind,
                    part.generation,
                    part.ram_bytes,
                    part.compression.raw(),
                );
                let body = FileExtentRegular {
                    disk_bytenr: part.disk.start.0.into(),
                    disk_num_bytes: part.disk.len.into(),
                    offset: part.offset.into(),
                    num_bytes: part.len.into(),
                };
                [head.as_bytes(), body.as_bytes()].concat()
            }
            Extent::Hole { generation, len } => {
                let head = head(FileExtentKind::Regular, *generation, *len, 0);
                let body = FileExtentRegular {
                    disk_bytenr: 0.into(),
                    disk_num_bytes: 0.into(),
                    offset: 0.into(),
                    num_bytes: (*len).into(),
                };
                [head.as_bytes(), body.as_bytes()].concat()
            }
        }
    }

    /// Returns the length of its range in the file; inline data takes whole sectors.
    pub(crate) fn len(&self, sectorsize: u64) -> u64 {
        match self {
            Extent::Inline(inline) => inline.ram_bytes.next_multiple_of(sectorsize),
            Extent::Disk(part) => part.len,
            Extent::Hole { len, .. } => *len,
        }
    }

    /// Returns its share of the inode's `nbytes`.
    pub(crate) fn nbytes(&self) -> u64 {
        match self {
            Extent::Inline(inline) => inline.ram_bytes,
            Extent::Disk(part) => part.len,
            Extent::Hole { .. } => 0,
        }
    }

    /// Returns whether it may hold anything but zeros.
    pub(crate) fn has_data(&self) -> bool {
        match self {
            Extent::Inline(_) => true,
            Extent::Disk(part) => !part.prealloc,
            Extent::Hole { .. } => false,
        }
    }

    /// Returns the part of it at `range`, relative to its start. Returns None for inline data, which cannot
    /// be cut.
    pub(crate) fn slice(&self, range: Range<u64>) -> Option<Extent> {
        match self {
            Extent::Inline(_) => None,
            Extent::Disk(part) => Some(Extent::Disk(DiskPart {
                offset: part.offset + range.start,
                len: range.end - range.start,
                ..part.clone()
            })),
            Extent::Hole { generation, .. } => Some(Extent::Hole {
                generation: *generation,
                len: range.end - range.start,
            }),
        }
    }

    /// Returns both as one extent if `next` continues `self`. The joined data gets the older generation,
    /// because a snapshot taken between the two shares the older part. A joined hole gets the newer one.
    pub(crate) fn joined(&self, next: &Extent) -> Option<Extent> {
        match (self, next) {
            (Extent::Disk(this), Extent::Disk(next)) => {
                let follows = this.disk == next.disk
                    && this.prealloc == next.prealloc
                    && this.compression == Compression::None
                    && next.compression == Compression::None
                    && this.offset.checked_add(this.len) == Some(next.offset);
                follows.then(|| {
                    Extent::Disk(DiskPart {
                        generation: this.generation.min(next.generation),
                        len: this.len + next.len,
                        ..this.clone()
                    })
                })
            }
            (
                Extent::Hole { generation: a, len },
                Extent::Hole {
                    generation: b,
                    len: more,
                },
            ) => Some(Extent::Hole {
                generation: *a.max(b),
                len: len.checked_add(*more)?,
            }),
            _ => None,
        }
    }
}

impl DiskPart {
    fn check(&self) -> Result<(), CorruptItem> {
        let within = match self.compression {
            Compression::None => self.disk.len,
            _ => self.ram_bytes,
        };
        match self.offset.checked_add(self.len) {
            Some(end) if end <= within => Ok(()),
            _ => Err(CorruptItem::ExtentRange),
        }
    }

    /// Returns the address of its first byte, if it is not compressed.
    pub(crate) fn logical(&self) -> Logical {
        Logical(self.disk.start.0.saturating_add(self.offset))
    }

    /// Returns the range of addresses whose checksums cover it.
    pub(crate) fn summed(&self) -> Range<Logical> {
        let (offset, len) = match self.compression {
            Compression::None => (self.offset, self.len),
            _ => (0, self.disk.len),
        };
        let start = self.disk.start.0.saturating_add(offset);
        Logical(start)..Logical(start.saturating_add(len))
    }

    /// Returns the address where contiguous space for the next extent would begin.
    pub(crate) fn end(&self) -> Logical {
        let end = match self.compression {
            Compression::None => self.offset.saturating_add(self.len),
            _ => self.disk.len,
        };
        Logical(self.disk.start.0.saturating_add(end))
    }

    /// Returns the data reference of the item at file offset `start`.
    pub(crate) fn data_ref(&self, file: FileId, start: u64) -> DataRef {
        DataRef {
            root: file.root,
            ino: file.ino,
            offset: start.wrapping_sub(self.offset),
        }
    }
}

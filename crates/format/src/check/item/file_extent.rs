//! EXTENT_DATA: the mapping of file ranges to extents.

use zerocopy::FromBytes;

use super::Slot;
use crate::check::{BlockContext, CorruptItem};
use crate::item::{
    FILE_EXTENT_INLINE_START, FileExtent, FileExtentHead, FileExtentKind, FileExtentRegular,
};
use crate::key::Key;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptFileExtent {
    #[error("file offset {0} is not aligned to the sector")]
    FileOffset(u64),
    #[error("kind {0} is unknown")]
    Kind(u8),
    #[error("compression {0} is unknown")]
    Compression(u8),
    #[error("encryption {0} is unknown")]
    Encryption(u8),
    /// Inline data is only allowed at the start of a file.
    #[error("inline extent at file offset {0}")]
    InlineOffset(u64),
    #[error("inline extent of {ram_bytes} bytes holds {held}")]
    InlineSize { ram_bytes: u64, held: u32 },
    #[error("{field} {value} is not aligned to the sector")]
    Alignment { field: ExtentField, value: u64 },
    #[error("{num_bytes} bytes at file offset {offset} pass the end of any file")]
    End { offset: u64, num_bytes: u64 },
    #[error("extent before it ends at file offset {before_end}, past {offset}")]
    Overlap { before_end: u64, offset: u64 },
}

/// A file extent field that must be a multiple of the sector size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentField {
    RamBytes,
    DiskBytenr,
    DiskNumBytes,
    Offset,
    NumBytes,
}

impl std::fmt::Display for ExtentField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ExtentField::RamBytes => "ram_bytes",
            ExtentField::DiskBytenr => "disk_bytenr",
            ExtentField::DiskNumBytes => "disk_num_bytes",
            ExtentField::Offset => "offset",
            ExtentField::NumBytes => "num_bytes",
        })
    }
}

/// Number of compression types: none, zlib, LZO, zstd.
const COMPRESSIONS: u8 = 4;

pub(super) fn check(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptItem> {
    let key = slot.key;
    if !context.is_sector_aligned(key.offset) {
        return Err(CorruptFileExtent::FileOffset(key.offset).into());
    }
    let (head, rest) = slot.view_prefix::<FileExtentHead>()?;
    let kind = FileExtentKind::from_raw(head.type_).ok_or(CorruptFileExtent::Kind(head.type_))?;
    if head.compression >= COMPRESSIONS {
        return Err(CorruptFileExtent::Compression(head.compression).into());
    }
    if head.encryption != 0 {
        return Err(CorruptFileExtent::Encryption(head.encryption).into());
    }
    if kind == FileExtentKind::Inline {
        check_inline(key, head, rest)?;
        return Ok(());
    }
    let Ok(body) = FileExtentRegular::ref_from_bytes(rest) else {
        let wanted = FILE_EXTENT_INLINE_START + size_of::<FileExtentRegular>();
        return Err(slot.wrong_size(wanted));
    };
    check_regular(key, head, body, context)?;
    if let Some((before, bytes)) = slot.before_alike()
        && before.objectid == key.objectid
    {
        check_overlap(before, bytes, key, context)?;
    }
    Ok(())
}

/// Checks an inline extent, except for the decompressed size of compressed data.
fn check_inline(key: Key, head: &FileExtentHead, data: &[u8]) -> Result<(), CorruptFileExtent> {
    if key.offset != 0 {
        return Err(CorruptFileExtent::InlineOffset(key.offset));
    }
    let ram_bytes = head.ram_bytes.get();
    if head.compression == 0 && ram_bytes != data.len() as u64 {
        return Err(CorruptFileExtent::InlineSize {
            ram_bytes,
            held: data.len() as u32,
        });
    }
    Ok(())
}

fn check_regular(
    key: Key,
    head: &FileExtentHead,
    body: &FileExtentRegular,
    context: &BlockContext<'_>,
) -> Result<(), CorruptFileExtent> {
    for (field, value) in [
        (ExtentField::RamBytes, head.ram_bytes.get()),
        (ExtentField::DiskBytenr, body.disk_bytenr.get()),
        (ExtentField::DiskNumBytes, body.disk_num_bytes.get()),
        (ExtentField::Offset, body.offset.get()),
        (ExtentField::NumBytes, body.num_bytes.get()),
    ] {
        if !context.is_sector_aligned(value) {
            return Err(CorruptFileExtent::Alignment { field, value });
        }
    }
    let num_bytes = body.num_bytes.get();
    if key.offset.checked_add(num_bytes).is_none() {
        return Err(CorruptFileExtent::End {
            offset: key.offset,
            num_bytes,
        });
    }
    Ok(())
}

/// Checks that an extent does not overlap the previous one. `before` has passed its own check, so that its end cannot
/// wrap unless it is inline and absurdly large.
fn check_overlap(
    before: Key,
    bytes: &[u8],
    key: Key,
    context: &BlockContext<'_>,
) -> Result<(), CorruptFileExtent> {
    let before_end = match FileExtent::decode(bytes) {
        Some(FileExtent::Inline { head, .. }) => head
            .ram_bytes
            .get()
            .checked_next_multiple_of(u64::from(context.sectorsize))
            .unwrap_or(u64::MAX),
        Some(FileExtent::Regular { body, .. }) => {
            before.offset.saturating_add(body.num_bytes.get())
        }
        None => before.offset,
    };
    if before_end > key.offset {
        return Err(CorruptFileExtent::Overlap {
            before_end,
            offset: key.offset,
        });
    }
    Ok(())
}

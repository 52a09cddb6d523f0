//! EXTENT_CSUM: checksums of consecutive sectors.

use super::{Slot, objectid};
use crate::check::{BlockContext, CorruptItem};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptCsumItem {
    #[error("objectid is {0}, not EXTENT_CSUM")]
    Objectid(u64),
    #[error("sums for {0}, which is not aligned to the sector")]
    Alignment(u64),
    #[error("{len} bytes are not whole sums of {csum_size}")]
    PartialSum { len: u32, csum_size: u32 },
    #[error("sums before it reach to {before_end}, past {start}")]
    Overlap { before_end: u64, start: u64 },
}

pub(super) fn check(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptItem> {
    check_fields(slot, context)?;
    Ok(())
}

fn check_fields(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptCsumItem> {
    if slot.key.objectid != objectid::EXTENT_CSUM {
        return Err(CorruptCsumItem::Objectid(slot.key.objectid));
    }
    let start = slot.key.offset;
    if !context.is_sector_aligned(start) {
        return Err(CorruptCsumItem::Alignment(start));
    }
    let csum_size = context.csum_type.size_bytes();
    if !slot.bytes.len().is_multiple_of(csum_size) {
        return Err(CorruptCsumItem::PartialSum {
            len: slot.bytes.len() as u32,
            csum_size: csum_size as u32,
        });
    }
    if let Some((before, bytes)) = slot.before_alike() {
        let covered = (bytes.len() / csum_size) as u64 * u64::from(context.sectorsize);
        let before_end = before.offset.saturating_add(covered);
        if before_end > start {
            return Err(CorruptCsumItem::Overlap { before_end, start });
        }
    }
    Ok(())
}

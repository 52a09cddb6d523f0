//! DEV_ITEM and DEV_EXTENT: devices and their allocated ranges.

use super::{Slot, objectid};
use crate::check::{BlockContext, CorruptItem};
use crate::ids::RootId;
use crate::item::{DevExtent, DevItem};
use zerocopy::FromBytes;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptDev {
    #[error("objectid is {0}, not DEV_ITEMS")]
    Objectid(u64),
    #[error("item is of device {found}, key of {wanted}")]
    Devid { wanted: u64, found: u64 },
    #[error("{used} of {total} bytes used")]
    BytesUsed { used: u64, total: u64 },
    #[error("extent's chunk tree {0} is not the chunk tree")]
    ChunkTree(u64),
    #[error("extent's chunk objectid is {0}, not FIRST_CHUNK_TREE")]
    ChunkObjectid(u64),
    #[error("extent at {0} is not aligned to the sector")]
    Physical(u64),
    #[error("extent's chunk at {0} is not aligned to the sector")]
    ChunkOffset(u64),
    #[error("extent of {0} bytes is not whole sectors")]
    Length(u64),
    #[error("extent before it ends at {before_end}, past {physical}")]
    Overlap { before_end: u64, physical: u64 },
}

/// Checks a device item. Does not check the device's size, which is 0 during a removal.
pub(super) fn check_item(slot: &Slot<'_>) -> Result<(), CorruptItem> {
    if slot.key.objectid != objectid::DEV_ITEMS {
        return Err(CorruptDev::Objectid(slot.key.objectid).into());
    }
    let item = slot.view::<DevItem>()?;
    if item.devid.get() != slot.key.offset {
        return Err(CorruptDev::Devid {
            wanted: slot.key.offset,
            found: item.devid.get(),
        }
        .into());
    }
    let (used, total) = (item.bytes_used.get(), item.total_bytes.get());
    if used > total {
        return Err(CorruptDev::BytesUsed { used, total }.into());
    }
    Ok(())
}

pub(super) fn check_extent(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptItem> {
    check_extent_fields(slot.view::<DevExtent>()?, slot.key.offset, context)?;
    if let Some((before, bytes)) = slot.before_alike()
        && before.objectid == slot.key.objectid
        && let Ok(extent) = DevExtent::ref_from_bytes(bytes)
    {
        let before_end = before.offset.saturating_add(extent.length.get());
        let physical = slot.key.offset;
        if before_end > physical {
            return Err(CorruptDev::Overlap {
                before_end,
                physical,
            }
            .into());
        }
    }
    Ok(())
}

fn check_extent_fields(
    extent: &DevExtent,
    physical: u64,
    context: &BlockContext<'_>,
) -> Result<(), CorruptDev> {
    if extent.chunk_tree.get() != RootId::CHUNK_TREE.0 {
        return Err(CorruptDev::ChunkTree(extent.chunk_tree.get()));
    }
    if extent.chunk_objectid.get() != objectid::FIRST_CHUNK_TREE {
        return Err(CorruptDev::ChunkObjectid(extent.chunk_objectid.get()));
    }
    if !context.is_sector_aligned(physical) {
        return Err(CorruptDev::Physical(physical));
    }
    if !context.is_sector_aligned(extent.chunk_offset.get()) {
        return Err(CorruptDev::ChunkOffset(extent.chunk_offset.get()));
    }
    if !context.is_sector_aligned(extent.length.get()) {
        return Err(CorruptDev::Length(extent.length.get()));
    }
    Ok(())
}

//! The free-space tree: FREE_SPACE_INFO, then extents or bitmaps of the block group.

use zerocopy::FromBytes;

use super::Slot;
use crate::check::{BlockContext, CorruptItem};
use crate::item::{FREE_SPACE_USING_BITMAPS, FreeSpaceInfo};
use crate::key::{Key, KeyType};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptFreeSpace {
    #[error("start is not aligned to the sector")]
    Start,
    #[error("length is 0 or not whole sectors")]
    Length,
    #[error("unknown flags {0:#x}")]
    Flags(u32),
    #[error("{count} extents in a block group of {sectors} sectors")]
    ExtentCount { count: u32, sectors: u64 },
    #[error("bitmap of {found} bytes, its range needs {wanted}")]
    BitmapSize { wanted: u64, found: u32 },
    /// A block group has either extents or bitmaps, according to its FREE_SPACE_INFO.
    #[error("{found} in a block group that uses {wanted}")]
    Form { wanted: KeyType, found: KeyType },
    #[error("range is not within the item before it, {before}")]
    Outside { before: Key },
    #[error("free space before it ends at {before_end}, past this one's start")]
    Overlap { before_end: u64 },
}

fn check_range(key: Key, context: &BlockContext<'_>) -> Result<(), CorruptFreeSpace> {
    if !context.is_sector_aligned(key.objectid) {
        return Err(CorruptFreeSpace::Start);
    }
    if key.offset == 0 || !context.is_sector_aligned(key.offset) {
        return Err(CorruptFreeSpace::Length);
    }
    Ok(())
}

pub(super) fn check_info(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptItem> {
    check_range(slot.key, context)?;
    let info = slot.view::<FreeSpaceInfo>()?;
    let unknown = info.flags.get() & !FREE_SPACE_USING_BITMAPS;
    if unknown != 0 {
        return Err(CorruptFreeSpace::Flags(unknown).into());
    }
    let count = info.extent_count.get();
    let sectors = slot.key.offset / u64::from(context.sectorsize);
    if u64::from(count) > sectors {
        return Err(CorruptFreeSpace::ExtentCount { count, sectors }.into());
    }
    Ok(())
}

pub(super) fn check_extent(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptItem> {
    check_range(slot.key, context)?;
    slot.sized(0)?;
    check_before(slot)?;
    Ok(())
}

pub(super) fn check_bitmap(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptItem> {
    check_range(slot.key, context)?;
    let sectors = slot.key.offset / u64::from(context.sectorsize);
    let wanted = sectors.div_ceil(8);
    if wanted != slot.bytes.len() as u64 {
        return Err(CorruptFreeSpace::BitmapSize {
            wanted,
            found: slot.bytes.len() as u32,
        }
        .into());
    }
    check_before(slot)?;
    Ok(())
}

/// Checks that free space is within its block group, has the group's form, and does not overlap.
fn check_before(slot: &Slot<'_>) -> Result<(), CorruptFreeSpace> {
    let Some((before, bytes)) = slot.before else {
        return Ok(());
    };
    let found = slot.key.item_type;
    let before_end = before.objectid.saturating_add(before.offset);
    if before.item_type != KeyType::FREE_SPACE_INFO {
        if before.item_type != found {
            return Err(CorruptFreeSpace::Form {
                wanted: before.item_type,
                found,
            });
        }
        if before_end > slot.key.objectid {
            return Err(CorruptFreeSpace::Overlap { before_end });
        }
        return Ok(());
    }
    let end = slot.key.objectid.saturating_add(slot.key.offset);
    if end > before_end {
        return Err(CorruptFreeSpace::Outside { before });
    }
    let bitmaps = FreeSpaceInfo::ref_from_bytes(bytes)
        .is_ok_and(|info| info.flags.get() & FREE_SPACE_USING_BITMAPS != 0);
    let wanted = if bitmaps {
        KeyType::FREE_SPACE_BITMAP
    } else {
        KeyType::FREE_SPACE_EXTENT
    };
    if found != wanted {
        return Err(CorruptFreeSpace::Form { wanted, found });
    }
    Ok(())
}

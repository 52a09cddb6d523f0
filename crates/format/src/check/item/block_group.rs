//! BLOCK_GROUP_ITEM: the used bytes of a chunk.

use super::{Slot, objectid};
use crate::block_group_flags::BlockGroupFlags;
use crate::check::{BlockContext, CorruptItem};
use crate::features::Incompat;
use crate::item::BlockGroupItem;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptBlockGroup {
    #[error("length is 0")]
    NoLength,
    #[error("chunk objectid is {0}, not FIRST_CHUNK_TREE")]
    ChunkObjectid(u64),
    #[error("{used} of {length} bytes used")]
    Used { used: u64, length: u64 },
    #[error("flags {0:#x} have two profiles")]
    Profile(u64),
    #[error("flags {0:#x} have no type, or types that cannot mix")]
    Type(u64),
}

pub(super) fn check(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptItem> {
    let length = slot.key.offset;
    if length == 0 {
        return Err(CorruptBlockGroup::NoLength.into());
    }
    check_fields(slot.view::<BlockGroupItem>()?, length, context)?;
    Ok(())
}

fn check_fields(
    item: &BlockGroupItem,
    length: u64,
    context: &BlockContext<'_>,
) -> Result<(), CorruptBlockGroup> {
    let chunk_objectid = item.chunk_objectid.get();
    // With extent-tree-v2 the field is the number of the group's extent tree.
    if chunk_objectid != objectid::FIRST_CHUNK_TREE
        && !context.incompat.contains(Incompat::EXTENT_TREE_V2)
    {
        return Err(CorruptBlockGroup::ChunkObjectid(chunk_objectid));
    }
    let used = item.used.get();
    if used > length {
        return Err(CorruptBlockGroup::Used { used, length });
    }
    let flags = item.flags();
    if flags.profile().is_none() {
        return Err(CorruptBlockGroup::Profile(flags.bits()));
    }
    let kind = flags & BlockGroupFlags::TYPE_MASK;
    let mixed = BlockGroupFlags::DATA | BlockGroupFlags::METADATA;
    let sound = kind == BlockGroupFlags::DATA
        || kind == BlockGroupFlags::METADATA
        || kind == BlockGroupFlags::SYSTEM
        || kind == mixed;
    if !sound {
        return Err(CorruptBlockGroup::Type(flags.bits()));
    }
    Ok(())
}

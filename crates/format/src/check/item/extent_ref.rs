//! Keyed references to extents, and the checks that they share with inline references.

use super::Slot;
use crate::check::{BlockContext, CorruptItem};
use crate::ids::{InodeNr, RootId};
use crate::item::{ExtentDataRef, SharedDataRef};
use crate::key::KeyType;
use zerocopy::FromBytes;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptExtentRef {
    #[error("extent at {0} is not aligned to the sector")]
    Extent(u64),
    #[error("parent at {0} is not aligned to the sector")]
    Parent(u64),
    #[error("tree {0} holds no files")]
    Root(u64),
    #[error("no file has the inode number {0}")]
    Inode(u64),
    #[error("offset {0} is not aligned to the sector")]
    Offset(u64),
    #[error("count is 0")]
    NoCount,
}

pub(super) fn check(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptItem> {
    if !context.is_sector_aligned(slot.key.objectid) {
        return Err(CorruptExtentRef::Extent(slot.key.objectid).into());
    }
    match slot.key.item_type {
        KeyType::TREE_BLOCK_REF => slot.sized(0),
        KeyType::SHARED_BLOCK_REF => {
            slot.sized(0)?;
            check_parent(slot.key.offset, context)?;
            Ok(())
        }
        KeyType::SHARED_DATA_REF => {
            let shared = slot.view::<SharedDataRef>()?;
            check_parent(slot.key.offset, context)?;
            check_shared_data(shared.count.get())?;
            Ok(())
        }
        _ => check_data_refs(slot, context),
    }
}

/// Checks data references. Does not check the key's offset: it is the hash of a reference, or a higher number after a
/// collision.
fn check_data_refs(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptItem> {
    let Ok(refs) = <[ExtentDataRef]>::ref_from_bytes(slot.bytes) else {
        return Err(slot.wrong_size(size_of::<ExtentDataRef>()));
    };
    for data in refs {
        check_data_ref(data, context)?;
    }
    Ok(())
}

pub(super) fn check_parent(
    parent: u64,
    context: &BlockContext<'_>,
) -> Result<(), CorruptExtentRef> {
    if context.is_sector_aligned(parent) {
        Ok(())
    } else {
        Err(CorruptExtentRef::Parent(parent))
    }
}

pub(super) fn check_shared_data(count: u32) -> Result<(), CorruptExtentRef> {
    if count == 0 {
        return Err(CorruptExtentRef::NoCount);
    }
    Ok(())
}

pub(super) fn check_data_ref(
    data: &ExtentDataRef,
    context: &BlockContext<'_>,
) -> Result<(), CorruptExtentRef> {
    let root = RootId(data.root.get());
    // The root tree contains the inodes of version 1 free-space caches.
    if !root.holds_files() && root != RootId::ROOT_TREE {
        return Err(CorruptExtentRef::Root(root.0));
    }
    let inode = data.objectid.get();
    if !(InodeNr::FIRST_FREE.0..=RootId::LAST_FREE).contains(&inode) {
        return Err(CorruptExtentRef::Inode(inode));
    }
    if !context.is_sector_aligned(data.offset.get()) {
        return Err(CorruptExtentRef::Offset(data.offset.get()));
    }
    if data.count.get() == 0 {
        return Err(CorruptExtentRef::NoCount);
    }
    Ok(())
}

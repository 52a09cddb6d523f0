//! Leaves: key order and the packing of items, then each item by its family.

use super::item::{Slot, check_item};
use super::{BlockContext, CorruptBlock, CorruptItem};
use crate::features::Incompat;
use crate::ids::RootId;
use crate::key::{Key, KeyType};
use crate::node::{HEADER_SIZE, ITEM_HEAD_SIZE, Node, header_flags, leaf_data_size};

#[inline]
pub(super) fn check_leaf(node: Node<'_>, context: &BlockContext<'_>) -> Result<(), CorruptBlock> {
    let nritems = node.header().nritems.get();
    if nritems == 0 {
        return check_may_be_empty(node, context);
    }
    let data_size = leaf_data_size(node.block().len());
    let max = data_size / ITEM_HEAD_SIZE;
    if nritems as usize > max {
        return Err(CorruptBlock::Slots {
            nritems,
            max: max as u32,
        });
    }
    check_slots(node, data_size as u32, context)
}

/// Checks that a leaf is allowed to be empty. Trees that have items on every volume have no empty leaf. The owner of
/// a relocated block is its subvolume and not its tree, so that it may be empty.
fn check_may_be_empty(node: Node<'_>, context: &BlockContext<'_>) -> Result<(), CorruptBlock> {
    if node.header().flags.get() & header_flags::RELOC != 0 {
        return Ok(());
    }
    let owner = node.owner();
    let never = match owner {
        RootId::ROOT_TREE
        | RootId::CHUNK_TREE
        | RootId::DEV_TREE
        | RootId::FS_TREE
        | RootId::DATA_RELOC_TREE => true,
        RootId::EXTENT_TREE => !context.incompat.contains(Incompat::EXTENT_TREE_V2),
        _ => false,
    };
    if never {
        Err(CorruptBlock::EmptyLeaf { owner })
    } else {
        Ok(())
    }
}

/// Checks the slots of a leaf. Keys must ascend strictly, and items must be packed from the end of the block without
/// overlapping the heads. Each item must be valid.
fn check_slots(
    node: Node<'_>,
    data_size: u32,
    context: &BlockContext<'_>,
) -> Result<(), CorruptBlock> {
    let heads = node.heads();
    let heads_end = (heads.len() * ITEM_HEAD_SIZE) as u32;
    let data = &node.block()[HEADER_SIZE..];
    let owner = node.owner();
    let mut before: Option<(Key, &[u8])> = None;
    let mut wanted_end = data_size;
    for (slot, head) in (0u32..).zip(heads) {
        let key = head.key.get();
        // CHECK-2, CHECK-3: the first defect in slot order ends the check.
        if let Some((before, _)) = before
            && before >= key
        {
            return Err(CorruptBlock::KeyOrder { slot, before, key });
        }
        let offset = head.offset.get();
        let end = u64::from(offset) + u64::from(head.size.get());
        if end != u64::from(wanted_end) {
            return Err(CorruptBlock::ItemEnd {
                slot,
                wanted: wanted_end,
                found: end,
            });
        }
        if offset < heads_end {
            return Err(CorruptBlock::ItemOverHeads {
                slot,
                offset,
                heads_end,
            });
        }
        // CHECK-1: the range is after the heads and before the previous item's data.
        let item = Slot {
            key,
            bytes: &data[offset as usize..wanted_end as usize],
            before,
            owner,
        };
        check_one(&item, context).map_err(|defect| CorruptBlock::Item { slot, key, defect })?;
        before = Some((key, item.bytes));
        wanted_end = offset;
    }
    Ok(())
}

pub(super) fn check_one(item: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptItem> {
    let key = item.key;
    if let Some((before, _)) = item.before
        && before.objectid != key.objectid
        && belongs_to_inode(key.item_type)
        && item.owner.is_subvolume()
    {
        return Err(CorruptItem::NoInode { before });
    }
    check_item(item, context)
}

/// Returns whether items of this type follow the INODE_ITEM of the same inode. In log trees the INODE_ITEM may be
/// missing.
fn belongs_to_inode(item_type: KeyType) -> bool {
    matches!(
        item_type,
        KeyType::INODE_REF
            | KeyType::INODE_EXTREF
            | KeyType::XATTR_ITEM
            | KeyType::DIR_ITEM
            | KeyType::DIR_INDEX
            | KeyType::EXTENT_DATA
    )
}

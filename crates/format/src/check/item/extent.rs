//! EXTENT_ITEM and METADATA_ITEM: an allocated extent with its inline references.

use super::Slot;
use super::extent_ref::{check_data_ref, check_parent, check_shared_data};
use crate::check::{BlockContext, CorruptExtentRef, CorruptItem};
use crate::features::Incompat;
use crate::item::decode_extent;
use crate::item::{DecodedExtent, ExtentFlags, ExtentHead, InlineRef, InlineRefs, TreeBlockInfo};
use crate::key::{Key, KeyType};
use crate::superblock::MAX_LEVEL;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptExtent {
    #[error("METADATA_ITEM without the feature skinny-metadata")]
    NotSkinny,
    #[error("start is not aligned to the sector")]
    Alignment,
    #[error("level {0} is out of range")]
    Level(u64),
    #[error("generation {found} is above the volume's {limit}")]
    Generation { found: u64, limit: u64 },
    /// An extent is either data or a tree block.
    #[error("flags {0:#x} name no kind of extent, or two")]
    Kind(u64),
    #[error("tree block of {found} bytes, nodesize is {wanted}")]
    TreeBlockLength { wanted: u32, found: u64 },
    #[error("METADATA_ITEM with flags of data")]
    DataIsMetadata,
    #[error("data extent of {0} bytes is not whole sectors")]
    DataLength(u64),
    /// FULL_BACKREF is about the children of a tree block, which data does not have.
    #[error("data extent with FULL_BACKREF")]
    DataFullBackref,
    #[error("inline reference of the unknown type {0}")]
    RefType(u8),
    #[error("{rest} bytes at the end hold no whole inline reference")]
    RefCrossesEnd { rest: u32 },
    /// References ascend by type and descend by sequence.
    #[error("inline {after} follows {before} out of order")]
    RefOrder { before: KeyType, after: KeyType },
    #[error("inline reference: {0}")]
    Ref(#[from] CorruptExtentRef),
    #[error("{refs} references in all, {inline} of them inline")]
    RefCount { refs: u64, inline: u64 },
    #[error("extent before it ends at {before_end}, past this one's start")]
    Overlap { before_end: u64 },
}

pub(super) fn check(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptItem> {
    check_key(slot.key, context)?;
    let (head, _) = slot.view_prefix::<ExtentHead>()?;
    check_head(slot.key, head, context)?;
    let Some(extent) = decode_extent(slot.key.item_type, slot.bytes) else {
        return Err(slot.wrong_size(size_of::<ExtentHead>() + size_of::<TreeBlockInfo>()));
    };
    check_refs(extent, context)?;
    check_overlap(slot, context)?;
    Ok(())
}

fn check_key(key: Key, context: &BlockContext<'_>) -> Result<(), CorruptExtent> {
    let skinny = key.item_type == KeyType::METADATA_ITEM;
    if skinny && !context.incompat.contains(Incompat::SKINNY_METADATA) {
        return Err(CorruptExtent::NotSkinny);
    }
    if !context.is_sector_aligned(key.objectid) {
        return Err(CorruptExtent::Alignment);
    }
    if skinny && key.offset > u64::from(MAX_LEVEL) {
        return Err(CorruptExtent::Level(key.offset));
    }
    Ok(())
}

fn check_head(
    key: Key,
    head: &ExtentHead,
    context: &BlockContext<'_>,
) -> Result<(), CorruptExtent> {
    let generation = head.generation.get();
    if generation > context.max_generation() {
        return Err(CorruptExtent::Generation {
            found: generation,
            limit: context.max_generation(),
        });
    }
    let flags = head.flags();
    let skinny = key.item_type == KeyType::METADATA_ITEM;
    match flags & (ExtentFlags::DATA | ExtentFlags::TREE_BLOCK) {
        ExtentFlags::TREE_BLOCK => {
            if !skinny && key.offset != u64::from(context.nodesize) {
                return Err(CorruptExtent::TreeBlockLength {
                    wanted: context.nodesize,
                    found: key.offset,
                });
            }
        }
        ExtentFlags::DATA => {
            if skinny {
                return Err(CorruptExtent::DataIsMetadata);
            }
            if !context.is_sector_aligned(key.offset) {
                return Err(CorruptExtent::DataLength(key.offset));
            }
            if flags.contains(ExtentFlags::FULL_BACKREF) {
                return Err(CorruptExtent::DataFullBackref);
            }
        }
        _ => return Err(CorruptExtent::Kind(flags.bits())),
    }
    Ok(())
}

fn check_refs(
    mut extent: DecodedExtent<'_>,
    context: &BlockContext<'_>,
) -> Result<(), CorruptExtent> {
    if let Some(info) = extent.tree_block
        && info.level > MAX_LEVEL
    {
        return Err(CorruptExtent::Level(u64::from(info.level)));
    }
    let mut inline: u64 = 0;
    let mut before: Option<InlineRef> = None;
    for reference in extent.refs.by_ref() {
        check_ref(&reference, context)?;
        if let Some(before) = before {
            check_order(&before, &reference)?;
        }
        inline = inline.saturating_add(reference.count());
        before = Some(reference);
    }
    check_end(&extent.refs)?;
    let refs = extent.head.refs.get();
    if inline > refs {
        return Err(CorruptExtent::RefCount { refs, inline });
    }
    Ok(())
}

fn check_ref(reference: &InlineRef, context: &BlockContext<'_>) -> Result<(), CorruptExtentRef> {
    match reference {
        InlineRef::TreeBlock { .. } | InlineRef::Owner { .. } => Ok(()),
        InlineRef::SharedBlock { parent } => check_parent(*parent, context),
        InlineRef::ExtentData(data) => check_data_ref(data, context),
        InlineRef::SharedData { parent, count } => {
            check_parent(*parent, context)?;
            check_shared_data(*count)
        }
    }
}

/// Checks the order of two references. Computes hashes only for two adjacent data references.
fn check_order(before: &InlineRef, after: &InlineRef) -> Result<(), CorruptExtent> {
    let (before_type, after_type) = (before.key_type(), after.key_type());
    let sound = after_type > before_type
        || (after_type == before_type && after.sequence() <= before.sequence());
    if sound {
        Ok(())
    } else {
        Err(CorruptExtent::RefOrder {
            before: before_type,
            after: after_type,
        })
    }
}

fn check_end(refs: &InlineRefs<'_>) -> Result<(), CorruptExtent> {
    match refs.rest() {
        [] => Ok(()),
        [raw, rest @ ..] => Err(match KeyType(*raw) {
            KeyType::TREE_BLOCK_REF
            | KeyType::SHARED_BLOCK_REF
            | KeyType::EXTENT_DATA_REF
            | KeyType::SHARED_DATA_REF
            | KeyType::EXTENT_OWNER_REF => CorruptExtent::RefCrossesEnd {
                rest: rest.len() as u32 + 1,
            },
            _ => CorruptExtent::RefType(*raw),
        }),
    }
}

fn check_overlap(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptExtent> {
    let Some((before, _)) = slot.before else {
        return Ok(());
    };
    let len = match before.item_type {
        KeyType::EXTENT_ITEM => before.offset,
        KeyType::METADATA_ITEM => u64::from(context.nodesize),
        _ => return Ok(()),
    };
    let before_end = before.objectid.saturating_add(len);
    if before_end > slot.key.objectid {
        return Err(CorruptExtent::Overlap { before_end });
    }
    Ok(())
}

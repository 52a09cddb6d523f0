//! ROOT_ITEM: the location of a tree's root.

use zerocopy::FromZeros;
use zerocopy::IntoBytes;

use super::Slot;
use crate::check::{BlockContext, CorruptItem};
use crate::ids::RootId;
use crate::item::{ROOT_ITEM_V0_SIZE, RootItem, RootItemFlags};
use crate::key::Key;
use crate::maker::root_flags;
use crate::superblock::MAX_LEVEL;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptRoot {
    #[error("no tree has the id 0")]
    NoId,
    /// Only subvolumes have relocation trees.
    #[error("relocation tree of tree {0}, which is no subvolume")]
    RelocatedTree(u64),
    #[error("{field} {found} is above the volume's generation {limit}")]
    Generation {
        field: RootGeneration,
        found: u64,
        limit: u64,
    },
    #[error("root at {0} is not aligned to the sector")]
    Bytenr(u64),
    #[error("level {0} is out of range")]
    Level(u8),
    #[error("drop_level {0} is out of range")]
    DropLevel(u8),
    #[error("unknown flags {0:#x}")]
    Flags(u64),
}

/// A field of a root item with a transaction id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootGeneration {
    Generation,
    GenerationV2,
    LastSnapshot,
}

impl std::fmt::Display for RootGeneration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RootGeneration::Generation => "generation",
            RootGeneration::GenerationV2 => "generation_v2",
            RootGeneration::LastSnapshot => "last_snapshot",
        })
    }
}

pub(super) fn check(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptItem> {
    check_key(slot.key)?;
    let mut root = RootItem::new_zeroed();
    let len = slot.bytes.len();
    if len != size_of::<RootItem>() && len != ROOT_ITEM_V0_SIZE {
        return Err(slot.wrong_size(size_of::<RootItem>()));
    }
    root.as_mut_bytes()[..len].copy_from_slice(slot.bytes);
    check_fields(&root, context)?;
    Ok(())
}

fn check_key(key: Key) -> Result<(), CorruptRoot> {
    if key.objectid == 0 {
        return Err(CorruptRoot::NoId);
    }
    if RootId(key.objectid) == RootId::TREE_RELOC && !RootId(key.offset).is_subvolume() {
        return Err(CorruptRoot::RelocatedTree(key.offset));
    }
    Ok(())
}

fn check_fields(root: &RootItem, context: &BlockContext<'_>) -> Result<(), CorruptRoot> {
    let limit = context.max_generation();
    for (field, found) in [
        (RootGeneration::Generation, root.generation.get()),
        (RootGeneration::GenerationV2, root.generation_v2.get()),
        (RootGeneration::LastSnapshot, root.last_snapshot.get()),
    ] {
        if found > limit {
            return Err(CorruptRoot::Generation {
                field,
                found,
                limit,
            });
        }
    }
    if !context.is_sector_aligned(root.bytenr.get()) {
        return Err(CorruptRoot::Bytenr(root.bytenr.get()));
    }
    if root.level > MAX_LEVEL {
        return Err(CorruptRoot::Level(root.level));
    }
    if root.drop_level > MAX_LEVEL {
        return Err(CorruptRoot::DropLevel(root.drop_level));
    }
    let of_makers = RootItemFlags::from_bits_retain(root_flags());
    let unknown = root.flags() - (RootItemFlags::RDONLY | RootItemFlags::DEAD | of_makers);
    if !unknown.is_empty() && !context.ignore_flags {
        return Err(CorruptRoot::Flags(unknown.bits()));
    }
    Ok(())
}

//! Checks a block's header against the volume and against the pointer to the block.

use super::{BlockContext, CorruptBlock, Expect};
use crate::ids::{Logical, RootId, Transid};
use crate::node::{Node, header_flags};
use crate::superblock::MAX_LEVEL;

/// Checks address and fsid. They are reported before the checksum, because they identify the kind of wrong block.
pub(super) fn check_place(
    node: Node<'_>,
    context: &BlockContext<'_>,
    expect: &Expect,
) -> Result<(), CorruptBlock> {
    let header = node.header();
    if header.bytenr.get() != expect.bytenr.0 {
        return Err(CorruptBlock::Bytenr {
            wanted: expect.bytenr,
            found: Logical(header.bytenr.get()),
        });
    }
    if header.fsid != *context.fsid && !context.seed_fsids.contains(&header.fsid) {
        return Err(CorruptBlock::Fsid {
            wanted: *context.fsid,
            found: header.fsid,
        });
    }
    Ok(())
}

pub(super) fn check_header(
    node: Node<'_>,
    context: &BlockContext<'_>,
    expect: &Expect,
) -> Result<(), CorruptBlock> {
    let header = node.header();
    if header.level > MAX_LEVEL {
        return Err(CorruptBlock::LevelRange(header.level));
    }
    if let Some(wanted) = expect.level
        && wanted != header.level
    {
        return Err(CorruptBlock::Level {
            wanted,
            found: header.level,
        });
    }
    let generation = Transid(header.generation.get());
    if let Some(wanted) = expect.generation
        && wanted != generation
    {
        return Err(CorruptBlock::Generation {
            wanted,
            found: generation,
        });
    }
    if generation.0 > context.max_generation() {
        return Err(CorruptBlock::FutureGeneration {
            limit: context.max_generation(),
            found: generation,
        });
    }
    if let Some(wanted) = context.chunk_tree_uuid
        && *wanted != header.chunk_tree_uuid
    {
        return Err(CorruptBlock::ChunkTreeUuid {
            wanted: *wanted,
            found: header.chunk_tree_uuid,
        });
    }
    let flags = header.flags.get();
    if flags & header_flags::WRITTEN == 0 {
        return Err(CorruptBlock::NotWritten { flags });
    }
    check_owner(node.owner(), expect.owner)
}

/// Checks the owner. Subvolumes share blocks with each other; blocks of other trees are never shared. The owner of
/// log and relocation tree blocks may be their subvolume, so that the kernel does not compare it there.
fn check_owner(found: RootId, wanted: Option<RootId>) -> Result<(), CorruptBlock> {
    if found == RootId(0) {
        return Err(CorruptBlock::NoOwner);
    }
    let sound = match wanted {
        None | Some(RootId::TREE_LOG | RootId::TREE_RELOC) => true,
        Some(wanted) if wanted.is_subvolume() => found.is_subvolume(),
        Some(wanted) => wanted == found,
    };
    match wanted {
        Some(wanted) if !sound => Err(CorruptBlock::Owner { wanted, found }),
        _ => Ok(()),
    }
}

pub(super) fn check_first_key(node: Node<'_>, expect: &Expect) -> Result<(), CorruptBlock> {
    match expect.first_key {
        Some(wanted) if node.key(0) != Some(wanted) => Err(CorruptBlock::FirstKey {
            wanted,
            found: node.key(0),
        }),
        _ => Ok(()),
    }
}

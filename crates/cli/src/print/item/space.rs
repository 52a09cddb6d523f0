//! Block groups and free space.

use std::io::{self, Write};

use ubtrfs_format::ids::objectid;
use ubtrfs_format::item::{BlockGroupItem, FreeSpaceHeader, FreeSpaceInfo};
use ubtrfs_format::key::Key;
use zerocopy::FromBytes;

use crate::print::flags::ChunkType;
use crate::print::key::KeyText;

pub(super) fn block_group(out: &mut dyn Write, item: &[u8]) -> io::Result<()> {
    let Ok((group, _)) = BlockGroupItem::ref_from_prefix(item) else {
        return Ok(());
    };
    let (used, objectid, flags) = (group.used, group.chunk_objectid, ChunkType(group.flags()));
    writeln!(
        out,
        "\t\tblock group used {used} chunk_objectid {objectid} flags {flags}"
    )
}

pub(super) fn free_space_info(out: &mut dyn Write, item: &[u8]) -> io::Result<()> {
    let Ok((info, _)) = FreeSpaceInfo::ref_from_prefix(item) else {
        return Ok(());
    };
    let (count, flags) = (info.extent_count, info.flags);
    writeln!(
        out,
        "\t\tfree space info extent count {count} flags {flags}"
    )
}

/// Prints an item of type 0. Only the headers of version 1 caches are known.
pub(super) fn cache_header(out: &mut dyn Write, key: Key, item: &[u8]) -> io::Result<()> {
    let Ok((header, _)) = FreeSpaceHeader::ref_from_prefix(item) else {
        return Ok(());
    };
    if key.objectid != objectid::FREE_SPACE {
        return Ok(());
    }
    writeln!(out, "\t\tlocation key {}", KeyText(header.location.get()))?;
    let (generation, entries, bitmaps) =
        (header.generation, header.num_entries, header.num_bitmaps);
    writeln!(
        out,
        "\t\tcache generation {generation} entries {entries} bitmaps {bitmaps}"
    )
}

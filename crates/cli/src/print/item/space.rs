//! Block groups and free space.

use std::io::{self, Write};

use ubtrfs_format::ids::objectid;
use ubtrfs_format::item::{BlockGroupItem, FreeSpaceHeader, FreeSpaceInfo};
use ubtrfs_format::key::Key;

use super::fields::line;
use crate::print::flags::ChunkType;
use crate::print::key::KeyText;

pub(super) fn block_group(out: &mut dyn Write, group: &BlockGroupItem) -> io::Result<()> {
    let flags = ChunkType(group.flags());
    line!(out, group: "block group used" = group.used, chunk_objectid, "flags" = flags)
}

pub(super) fn free_space_info(out: &mut dyn Write, info: &FreeSpaceInfo) -> io::Result<()> {
    line!(out, info: "free space info extent count" = info.extent_count, flags)
}

/// Prints an item of type 0. Only the headers of version 1 caches are known.
pub(super) fn cache_header(
    out: &mut dyn Write,
    key: Key,
    header: &FreeSpaceHeader,
) -> io::Result<()> {
    if key.objectid != objectid::FREE_SPACE {
        return Ok(());
    }
    line!(out, header: "location key" = KeyText(header.location.get()))?;
    line!(
        out, header:
        "cache generation" = header.generation,
        "entries" = header.num_entries,
        "bitmaps" = header.num_bitmaps,
    )
}

//! Extents, the references to them, and the checksums of data.

use std::io::{self, Write};

use ubtrfs_format::item::{
    ExtentDataRef, ExtentFlags, ExtentOwnerRef, InlineRef, SharedDataRef, decode_extent,
};
use ubtrfs_format::key::{Key, KeyType};

use super::fields::{line, whole};
use crate::print::PrintOptions;
use crate::print::bytes::Hex;
use crate::print::flags::{Flags, Table};
use crate::print::key::{KeyText, Objectid};

const EXTENT_FLAGS: Table = &[
    (ExtentFlags::DATA.bits(), "DATA"),
    (ExtentFlags::TREE_BLOCK.bits(), "TREE_BLOCK"),
    (ExtentFlags::FULL_BACKREF.bits(), "FULL_BACKREF"),
];
/// Checksum bytes per line.
const CSUM_LINE_BYTES: usize = 16;

fn tree(id: u64) -> Objectid {
    Objectid(id, KeyType::UNTYPED)
}

pub(super) fn extent(out: &mut dyn Write, key: Key, item: &[u8]) -> io::Result<()> {
    let Some(extent) = decode_extent(key.item_type, item) else {
        return Ok(());
    };
    let head = extent.head;
    let flags = Flags {
        bits: head.flags.get(),
        table: EXTENT_FLAGS,
        none: "none",
    };
    line!(out, head: refs, "gen" = head.generation, "flags" = flags)?;
    if let Some(info) = extent.tree_block {
        line!(out, info: "tree block key" = KeyText(info.key.get()), level)?;
    }
    if key.item_type == KeyType::METADATA_ITEM {
        writeln!(out, "\t\ttree block skinny level {}", key.offset)?;
    }
    extent
        .refs
        .into_iter()
        .try_for_each(|reference| inline_ref(out, &reference))
}

fn inline_ref(out: &mut dyn Write, reference: &InlineRef) -> io::Result<()> {
    let raw = reference.key_type().0;
    let sequence = reference.sequence();
    let indent = match reference {
        InlineRef::Owner { .. } => "\t",
        _ => "\t\t",
    };
    write!(out, "{indent}({raw} {sequence:#x}) ")?;
    match reference {
        InlineRef::TreeBlock { root } => writeln!(out, "tree block backref root {}", tree(*root)),
        InlineRef::SharedBlock { parent } => writeln!(out, "shared block backref parent {parent}"),
        InlineRef::ExtentData(data) => data_ref(out, data),
        InlineRef::SharedData { parent, count } => {
            writeln!(out, "shared data backref parent {parent} count {count}")
        }
        InlineRef::Owner { root } => writeln!(out, "textent owner root {root}"),
    }
}

fn data_ref(out: &mut dyn Write, data: &ExtentDataRef) -> io::Result<()> {
    let root = tree(data.root.get());
    let (inode, offset, count) = (data.objectid, data.offset, data.count);
    writeln!(
        out,
        "extent data backref root {root} objectid {inode} offset {offset} count {count}"
    )
}

pub(super) fn keyed_ref(out: &mut dyn Write, key: Key, item: &[u8]) -> io::Result<()> {
    match key.item_type {
        KeyType::TREE_BLOCK_REF => writeln!(out, "\t\ttree block backref"),
        KeyType::SHARED_BLOCK_REF => writeln!(out, "\t\tshared block backref"),
        KeyType::EXTENT_DATA_REF => whole(item, |data: &ExtentDataRef| {
            out.write_all(b"\t\t")?;
            data_ref(out, data)
        }),
        KeyType::SHARED_DATA_REF => whole(
            item,
            |shared: &SharedDataRef| line!(out, shared: "shared data backref count" = shared.count),
        ),
        _ => whole(
            item,
            |owner: &ExtentOwnerRef| line!(out, owner: "extent owner root" = owner.root_id),
        ),
    }
}

pub(super) fn csums(
    out: &mut dyn Write,
    key: Key,
    item: &[u8],
    options: &PrintOptions,
) -> io::Result<()> {
    let size = options.csum_type.size_bytes();
    let sectorsize = u64::from(options.sectorsize);
    let sectors = (item.len() / size) as u64;
    let (start, length) = (key.offset, sectors * sectorsize);
    let end = start.wrapping_add(length);
    writeln!(out, "\t\trange start {start} end {end} length {length}")?;
    if !options.csum_items {
        return Ok(());
    }
    let a_line = (CSUM_LINE_BYTES / size).max(1);
    for (number, csum) in (0u64..).zip(item.chunks_exact(size)) {
        let first = number % a_line as u64 == 0;
        let separator = match (number, first) {
            (0, _) => "\t\t",
            (_, true) => "\n\t\t",
            (_, false) => " ",
        };
        let place = start.wrapping_add(number * sectorsize);
        write!(out, "{separator}[{place}] {}", Hex(csum))?;
    }
    writeln!(out)
}

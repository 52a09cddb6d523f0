//! A tree block: its header, followed by its slots.

use std::fmt;
use std::io::{self, Write};

use ubtrfs_format::key::KeyType;
use ubtrfs_format::node::{ITEM_HEAD_SIZE, Node, header_flags, leaf_data_size, max_key_ptrs};

use super::PrintOptions;
use super::bytes::Hex;
use super::flags::{Flags, Table};
use super::item::print_item;
use super::key::{KeyText, Objectid};

const HEADER_FLAGS: Table = &[
    (header_flags::WRITTEN, "WRITTEN"),
    (header_flags::RELOC, "RELOC"),
];

/// Prints a leaf with its items, or an interior node with its children.
pub(crate) fn print_block(
    out: &mut dyn Write,
    node: Node<'_>,
    options: &PrintOptions,
) -> io::Result<()> {
    print_header(out, node, options)?;
    if !node.is_leaf() {
        for ptr in node.ptrs() {
            let (key, block, generation) = (KeyText(ptr.key.get()), ptr.blockptr, ptr.generation);
            writeln!(out, "\tkey {key} block {block} gen {generation}")?;
        }
        return Ok(());
    }
    for (slot, head) in node.heads().iter().enumerate() {
        let key = head.key.get();
        let (offset, size) = (head.offset, head.size);
        let text = KeyText(key);
        writeln!(
            out,
            "\titem {slot} key {text} itemoff {offset} itemsize {size}"
        )?;
        if let Some((key, bytes)) = node.item(slot) {
            print_item(out, key, bytes, options)?;
        }
    }
    Ok(())
}

fn print_header(out: &mut dyn Write, node: Node<'_>, options: &PrintOptions) -> io::Result<()> {
    let header = node.header();
    let (bytenr, nritems) = (header.bytenr, header.nritems);
    let free = free_space(node);
    let generation = header.generation;
    let owner = Objectid(header.owner.get(), KeyType::UNTYPED);
    let kind = Kind(node);
    write!(out, "{kind} {bytenr}")?;
    if !node.is_leaf() {
        write!(out, " level {}", header.level)?;
    }
    writeln!(
        out,
        " items {nritems} free space {free} generation {generation} owner {owner}"
    )?;
    let raw = header.flags.get();
    let bits = raw & ((1 << header_flags::BACKREF_REV_SHIFT) - 1);
    let flags = Flags {
        bits,
        table: HEADER_FLAGS,
        none: "",
    };
    let revision = raw >> header_flags::BACKREF_REV_SHIFT;
    write!(
        out,
        "{kind} {bytenr} flags {bits:#x}({flags}) backref revision {revision}"
    )?;
    if options.csum_headers {
        let csum = &header.csum[..options.csum_type.size_bytes()];
        write!(out, " csum {}", Hex(csum))?;
    }
    writeln!(out)?;
    writeln!(out, "fs uuid {}", header.fsid)?;
    writeln!(out, "chunk uuid {}", header.chunk_tree_uuid)
}

/// Returns the free bytes of a leaf, or the number of children that an interior node has room for.
fn free_space(node: Node<'_>) -> usize {
    let size = node.block().len();
    if node.is_leaf() {
        let heads = node.heads();
        let items: usize = heads.iter().map(|head| head.size.get() as usize).sum();
        leaf_data_size(size).saturating_sub(heads.len() * ITEM_HEAD_SIZE + items)
    } else {
        max_key_ptrs(size).saturating_sub(node.len())
    }
}

#[derive(Clone, Copy)]
struct Kind<'a>(Node<'a>);

impl fmt::Display for Kind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_leaf() { "leaf" } else { "node" })
    }
}

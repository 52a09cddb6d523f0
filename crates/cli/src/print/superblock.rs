//! A copy of the superblock: fields, the system chunk array, the backup roots.

mod fields;
mod json;
mod sys_array;

use std::io::{self, Write};

use ubtrfs_format::superblock::{SYS_CHUNK_ARRAY_SIZE, Superblock};

use super::item::print_chunk;
use super::key::KeyText;
use fields::{backup_fields, device_fields, fields};
use sys_array::{SysArrayError, sys_entries};

pub(crate) use json::superblock_json;

/// A copy of the superblock, as read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy<'a> {
    pub(crate) superblock: &'a Superblock,
    /// Includes the system chunk array and the backup roots.
    pub(crate) full: bool,
}

/// Prints a copy. The caller reports an error in the system chunk array.
pub(crate) fn print_superblock(
    out: &mut dyn Write,
    copy: &Copy<'_>,
) -> io::Result<Result<(), SysArrayError>> {
    let superblock = copy.superblock;
    for field in fields(superblock) {
        print_line(out, field.name, &field.text)?;
    }
    for field in device_fields(superblock) {
        print_line(out, &format!("dev_item.{}", field.name), &field.text)?;
    }
    if !copy.full {
        return Ok(Ok(()));
    }
    writeln!(out, "sys_chunk_array[{SYS_CHUNK_ARRAY_SIZE}]:")?;
    let (entries, end) = sys_entries(superblock);
    for (number, entry) in entries.iter().enumerate() {
        writeln!(out, "\titem {number} key {}", KeyText(entry.key))?;
        if let Some((chunk, stripes)) = entry.chunk {
            print_chunk(out, chunk, stripes)?;
        }
    }
    writeln!(out, "backup_roots[{}]:", superblock.super_roots.len())?;
    for (slot, backup) in superblock.super_roots.iter().enumerate() {
        writeln!(out, "\tbackup {slot}:")?;
        for field in backup_fields(backup, superblock.incompat()) {
            out.write_all(b"\t\t")?;
            match field.name {
                // As in btrfs-progs: without the prefix, and not aligned.
                "csum_root" => writeln!(out, "csum_root:\t{}", field.text)?,
                name => print_line(out, &format!("backup_{name}:"), &field.text)?,
            }
        }
        writeln!(out)?;
    }
    Ok(end)
}

/// Prints a value in the third column of tabs, or after one tab.
fn print_line(out: &mut dyn Write, name: &str, text: &str) -> io::Result<()> {
    let tabs = 3usize.saturating_sub(name.len() / 8).max(1);
    writeln!(out, "{name}{:\t<tabs$}{text}", "")
}

//! Items of subvolume trees: inodes, names, attributes, file extents, the log's directory ranges.

use std::io::{self, Write};

use ubtrfs_format::item::{
    DirEntries, DirLogItem, FileExtent, FileKind, InodeExtrefs, InodeFlags, InodeItem, InodeRefs,
};
use ubtrfs_format::maker::{Marks, inode_flags};

use super::fields::line;
use crate::print::PrintOptions;
use crate::print::bytes::Name;
use crate::print::flags::{Flags, Table, unknown, with_marks};
use crate::print::key::KeyText;
use crate::print::time::Stamp;

const HIDDEN: &[u8] = b"HIDDEN";

/// The most displayed bytes of an attribute's value.
const SHOWN_DATA_BYTES: usize = 255;

const INODE_FLAGS: Table = &[
    (InodeFlags::NODATASUM.bits(), "NODATASUM"),
    (InodeFlags::NODATACOW.bits(), "NODATACOW"),
    (InodeFlags::READONLY.bits(), "READONLY"),
    (InodeFlags::NOCOMPRESS.bits(), "NOCOMPRESS"),
    (InodeFlags::PREALLOC.bits(), "PREALLOC"),
    (InodeFlags::SYNC.bits(), "SYNC"),
    (InodeFlags::IMMUTABLE.bits(), "IMMUTABLE"),
    (InodeFlags::APPEND.bits(), "APPEND"),
    (InodeFlags::NODUMP.bits(), "NODUMP"),
    (InodeFlags::NOATIME.bits(), "NOATIME"),
    (InodeFlags::DIRSYNC.bits(), "DIRSYNC"),
    (InodeFlags::COMPRESS.bits(), "COMPRESS"),
    (InodeFlags::ROOT_ITEM_INIT.bits(), "ROOT_ITEM_INIT"),
];

pub(super) fn inode(
    out: &mut dyn Write,
    inode: &InodeItem,
    options: &PrintOptions,
) -> io::Result<()> {
    line!(out, inode: generation, transid, size, nbytes)?;
    line!(
        out, inode:
        "block group" = inode.block_group,
        "mode" = format_args!("{:o}", inode.mode.get()),
        "links" = inode.nlink,
        uid,
        gid,
        rdev,
    )?;
    let bits = inode.flags.get();
    let (known, unknown) = (bits, unknown(bits, INODE_FLAGS) & !inode_flags());
    let none = if unknown == 0 { "none" } else { "" };
    let names = Flags {
        bits: known,
        table: INODE_FLAGS,
        none,
    };
    let names = with_marks(names, Marks::of_inode_flags(inode.flags()));
    write!(
        out,
        "\t\tsequence {} flags {bits:#x}({names}",
        inode.sequence
    )?;
    if unknown != 0 {
        let bar = if bits == unknown { "" } else { "|" };
        write!(out, "{bar}UNKNOWN: {unknown:#x}")?;
    }
    writeln!(out, ")")?;
    let zone = &options.time_zone;
    line!(out, inode: "atime" = Stamp(&inode.atime, zone))?;
    line!(out, inode: "ctime" = Stamp(&inode.ctime, zone))?;
    line!(out, inode: "mtime" = Stamp(&inode.mtime, zone))?;
    line!(out, inode: "otime" = Stamp(&inode.otime, zone))
}

fn shown<'a>(name: &'a [u8], options: &PrintOptions) -> Name<'a> {
    Name(if options.hide_names { HIDDEN } else { name })
}

pub(super) fn inode_refs(
    out: &mut dyn Write,
    item: &[u8],
    options: &PrintOptions,
) -> io::Result<()> {
    for entry in InodeRefs::new(item) {
        let (len, name) = (entry.name.len(), shown(entry.name, options));
        line!(out, entry: index, "namelen" = len, "name:" = name)?;
    }
    Ok(())
}

pub(super) fn inode_extrefs(
    out: &mut dyn Write,
    item: &[u8],
    options: &PrintOptions,
) -> io::Result<()> {
    for entry in InodeExtrefs::new(item) {
        let (len, name) = (entry.name.len(), shown(entry.name, options));
        line!(out, entry: index, parent, "namelen" = len, "name:" = name)?;
    }
    Ok(())
}

fn kind_name(raw: u8) -> Option<&'static str> {
    if raw == FileKind::RAW_XATTR {
        return Some("XATTR");
    }
    Some(match FileKind::from_raw(raw)? {
        FileKind::Regular => "FILE",
        FileKind::Directory => "DIR",
        FileKind::CharDevice => "CHRDEV",
        FileKind::BlockDevice => "BLKDEV",
        FileKind::Fifo => "FIFO",
        FileKind::Socket => "SOCK",
        FileKind::Symlink => "SYMLINK",
    })
}

pub(super) fn dir_entries(
    out: &mut dyn Write,
    item: &[u8],
    options: &PrintOptions,
) -> io::Result<()> {
    for entry in DirEntries::new(item) {
        let head = entry.head;
        write!(out, "\t\tlocation key {} type ", KeyText(entry.location()))?;
        match kind_name(head.type_) {
            Some(name) => writeln!(out, "{name}")?,
            None => writeln!(out, "DIR_ITEM.{}", head.type_)?,
        }
        line!(out, head: transid, data_len, name_len)?;
        writeln!(out, "\t\tname: {}", shown(entry.name, options))?;
        if !entry.data.is_empty() {
            let len = entry.data.len().min(SHOWN_DATA_BYTES);
            writeln!(out, "\t\tdata {}", shown(&entry.data[..len], options))?;
        }
    }
    Ok(())
}

pub(super) fn dir_log(out: &mut dyn Write, range: &DirLogItem) -> io::Result<()> {
    line!(out, range: "dir log end" = range.end)
}

/// A compression as number and name.
struct Compression(u8);

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let raw = self.0;
        match ["none", "zlib", "lzo", "zstd"].get(usize::from(raw)) {
            Some(name) => write!(f, "{raw} ({name})"),
            None => write!(f, "{raw} (UNKNOWN.{raw})"),
        }
    }
}

pub(super) fn extent_data(out: &mut dyn Write, item: &[u8]) -> io::Result<()> {
    let Some(extent) = FileExtent::decode(item) else {
        return Ok(());
    };
    let head = extent.head();
    let (generation, kind, ram) = (head.generation, head.type_, head.ram_bytes);
    let compression = Compression(head.compression);
    let name = ["inline", "regular", "prealloc"][usize::from(kind.min(2))];
    writeln!(out, "\t\tgeneration {generation} type {kind} ({name})")?;
    match extent {
        FileExtent::Inline { data, .. } => {
            let size = data.len();
            writeln!(
                out,
                "\t\tinline extent data size {size} ram_bytes {ram} compression {compression}"
            )
        }
        FileExtent::Regular { body, prealloc, .. } => {
            let word = if prealloc { "prealloc" } else { "extent" };
            let (disk, disk_len) = (body.disk_bytenr, body.disk_num_bytes);
            let (offset, len) = (body.offset, body.num_bytes);
            writeln!(out, "\t\t{word} data disk byte {disk} nr {disk_len}")?;
            if prealloc {
                return writeln!(out, "\t\t{word} data offset {offset} nr {len}");
            }
            writeln!(out, "\t\t{word} data offset {offset} nr {len} ram {ram}")?;
            writeln!(out, "\t\textent compression {compression}")
        }
    }
}

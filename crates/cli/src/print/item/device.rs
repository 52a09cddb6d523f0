//! Chunks and devices: their positions, error counts, and a replacement in progress.

use std::fmt;
use std::io::{self, Write};

use ubtrfs_format::ids::objectid;
use ubtrfs_format::item::{
    Chunk, DevExtent, DevItem, DevReplaceItem, DevStatsItem, RaidStride, Stripe,
};
use ubtrfs_format::key::Key;
use zerocopy::FromBytes;

use super::fields::line;
use crate::print::PrintOptions;
use crate::print::flags::ChunkType;
use crate::print::key::Objectid;
use crate::print::time::LocalTime;

pub(super) fn chunk_item(out: &mut dyn Write, item: &[u8]) -> io::Result<()> {
    match Chunk::split(item) {
        Some((chunk, stripes, _)) => print_chunk(out, chunk, stripes),
        None => Ok(()),
    }
}

/// Prints a chunk of the chunk tree or of the superblock.
pub(in crate::print) fn print_chunk(
    out: &mut dyn Write,
    chunk: &Chunk,
    stripes: &[Stripe],
) -> io::Result<()> {
    line!(out, chunk: length, owner, stripe_len, "type" = ChunkType(chunk.flags()))?;
    line!(out, chunk: io_align, io_width, sector_size)?;
    line!(out, chunk: num_stripes, sub_stripes)?;
    for (number, stripe) in stripes.iter().enumerate() {
        let (devid, offset) = (stripe.devid, stripe.offset);
        writeln!(out, "\t\t\tstripe {number} devid {devid} offset {offset}")?;
        writeln!(out, "\t\t\tdev_uuid {}", stripe.dev_uuid)?;
    }
    Ok(())
}

pub(super) fn dev_item(out: &mut dyn Write, dev: &DevItem) -> io::Result<()> {
    line!(out, dev: devid, total_bytes, bytes_used)?;
    line!(out, dev: io_align, io_width, sector_size, "type" = dev.type_)?;
    line!(out, dev: generation, start_offset, dev_group)?;
    line!(out, dev: seek_speed, bandwidth)?;
    line!(out, dev: uuid)?;
    line!(out, dev: fsid)
}

pub(super) fn dev_extent(out: &mut dyn Write, extent: &DevExtent) -> io::Result<()> {
    line!(out, extent: "dev extent chunk_tree" = extent.chunk_tree)?;
    line!(out, extent: chunk_objectid, chunk_offset, length)?;
    line!(out, extent: chunk_tree_uuid)
}

pub(super) fn raid_stripe(out: &mut dyn Write, item: &[u8]) -> io::Result<()> {
    let (strides, _) = item.as_chunks::<{ size_of::<RaidStride>() }>();
    for (number, stride) in strides.iter().enumerate() {
        if let Ok(stride) = RaidStride::ref_from_bytes(stride) {
            let (devid, physical) = (stride.devid, stride.physical);
            writeln!(
                out,
                "\t\t\tstripe {number} devid {devid} physical {physical}"
            )?;
        }
    }
    Ok(())
}

pub(super) fn persistent(out: &mut dyn Write, key: Key, item: &[u8]) -> io::Result<()> {
    let (object, offset) = (Objectid(key.objectid, key.item_type), key.offset);
    writeln!(out, "\t\tpersistent item objectid {object} offset {offset}")?;
    if key.objectid != objectid::DEV_STATS {
        return writeln!(out, "\t\tunknown persistent item objectid {}", key.objectid);
    }
    writeln!(out, "\t\tdevice stats")?;
    let [write, read, flush, corruption, generation] = DevStatsItem::of(item).values;
    writeln!(
        out,
        "\t\twrite_errs {write} read_errs {read} flush_errs {flush} corruption_errs {corruption} generation {generation}"
    )
}

/// A number displayed by its name.
struct Named(u64, &'static [&'static str]);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Named(number, names) = *self;
        let name = usize::try_from(number)
            .ok()
            .and_then(|index| names.get(index));
        match name {
            Some(name) => f.write_str(name),
            None => write!(f, "unknown({number})"),
        }
    }
}

const MODES: &[&str] = &["ALWAYS", "AVOID"];
const STATES: &[&str] = &[
    "NEVER_STARTED",
    "STARTED",
    "FINISHED",
    "CANCELED",
    "SUSPENDED",
];

/// Prints the item of a device replacement, with the stop time. btrfs-progs 6.14 displays the start time
/// there.
pub(super) fn dev_replace(
    out: &mut dyn Write,
    replace: &DevReplaceItem,
    options: &PrintOptions,
) -> io::Result<()> {
    line!(
        out, replace:
        "src devid" = replace.src_devid,
        "cursor left" = replace.cursor_left,
        "cursor right" = replace.cursor_right,
        "mode" = Named(replace.cont_reading_from_srcdev_mode.get(), MODES),
    )?;
    line!(
        out, replace:
        "state" = Named(replace.replace_state.get(), STATES),
        "write errors" = replace.num_write_errors,
        "uncorrectable read errors" = replace.num_uncorrectable_read_errors,
    )?;
    for (word, time) in [
        ("start", replace.time_started.get()),
        ("stop", replace.time_stopped.get()),
    ] {
        writeln!(
            out,
            "\t\t{word} time {time} ({})",
            LocalTime(time as i64, &options.time_zone)
        )?;
    }
    Ok(())
}

//! Chunks and devices: their positions, error counts, and a replacement in progress.

use std::fmt;
use std::io::{self, Write};

use ubtrfs_format::ids::objectid;
use ubtrfs_format::item::{
    Chunk, DevExtent, DevItem, DevReplaceItem, DevStatsItem, RaidStride, Stripe,
};
use ubtrfs_format::key::Key;
use zerocopy::FromBytes;

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
    let (length, owner, stripe_len) = (chunk.length, chunk.owner, chunk.stripe_len);
    let kind = ChunkType(chunk.flags());
    writeln!(
        out,
        "\t\tlength {length} owner {owner} stripe_len {stripe_len} type {kind}"
    )?;
    let (align, width, sector) = (chunk.io_align, chunk.io_width, chunk.sector_size);
    writeln!(
        out,
        "\t\tio_align {align} io_width {width} sector_size {sector}"
    )?;
    let (count, sub) = (chunk.num_stripes, chunk.sub_stripes);
    writeln!(out, "\t\tnum_stripes {count} sub_stripes {sub}")?;
    for (number, stripe) in stripes.iter().enumerate() {
        let (devid, offset) = (stripe.devid, stripe.offset);
        writeln!(out, "\t\t\tstripe {number} devid {devid} offset {offset}")?;
        writeln!(out, "\t\t\tdev_uuid {}", stripe.dev_uuid)?;
    }
    Ok(())
}

pub(super) fn dev_item(out: &mut dyn Write, item: &[u8]) -> io::Result<()> {
    let Ok((dev, _)) = DevItem::ref_from_prefix(item) else {
        return Ok(());
    };
    let (devid, total, used) = (dev.devid, dev.total_bytes, dev.bytes_used);
    writeln!(
        out,
        "\t\tdevid {devid} total_bytes {total} bytes_used {used}"
    )?;
    let (align, width, sector, kind) = (dev.io_align, dev.io_width, dev.sector_size, dev.type_);
    writeln!(
        out,
        "\t\tio_align {align} io_width {width} sector_size {sector} type {kind}"
    )?;
    let (generation, start, group) = (dev.generation, dev.start_offset, dev.dev_group);
    writeln!(
        out,
        "\t\tgeneration {generation} start_offset {start} dev_group {group}"
    )?;
    let (speed, bandwidth) = (dev.seek_speed, dev.bandwidth);
    writeln!(out, "\t\tseek_speed {speed} bandwidth {bandwidth}")?;
    writeln!(out, "\t\tuuid {}", dev.uuid)?;
    writeln!(out, "\t\tfsid {}", dev.fsid)
}

pub(super) fn dev_extent(out: &mut dyn Write, item: &[u8]) -> io::Result<()> {
    let Ok((extent, _)) = DevExtent::ref_from_prefix(item) else {
        return Ok(());
    };
    writeln!(out, "\t\tdev extent chunk_tree {}", extent.chunk_tree)?;
    let (objectid, offset, length) = (extent.chunk_objectid, extent.chunk_offset, extent.length);
    writeln!(
        out,
        "\t\tchunk_objectid {objectid} chunk_offset {offset} length {length}"
    )?;
    writeln!(out, "\t\tchunk_tree_uuid {}", extent.chunk_tree_uuid)
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
    item: &[u8],
    options: &PrintOptions,
) -> io::Result<()> {
    let Ok((replace, _)) = DevReplaceItem::ref_from_prefix(item) else {
        return Ok(());
    };
    let (devid, left, right) = (replace.src_devid, replace.cursor_left, replace.cursor_right);
    let mode = Named(replace.cont_reading_from_srcdev_mode.get(), MODES);
    writeln!(
        out,
        "\t\tsrc devid {devid} cursor left {left} cursor right {right} mode {mode}"
    )?;
    let state = Named(replace.replace_state.get(), STATES);
    let (writes, reads) = (
        replace.num_write_errors,
        replace.num_uncorrectable_read_errors,
    );
    writeln!(
        out,
        "\t\tstate {state} write errors {writes} uncorrectable read errors {reads}"
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

//! Quota groups, and the saved state of a balance.

use std::io::{self, Write};

use ubtrfs_format::ids::objectid;
use ubtrfs_format::item::{
    BalanceItem, DiskBalanceArgs, QgroupInfoItem, QgroupLimitItem, QgroupStatusItem,
};
use ubtrfs_format::key::Key;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::fields::line;
use crate::print::PrintOptions;
use crate::print::flags::{Flags, Table, unknown};
use crate::print::key::Objectid;

const STATUS_ON: u64 = 1;
const STATUS_FLAGS: Table = &[
    (STATUS_ON, "ON"),
    (2, "SCANNING"),
    (4, "INCONSISTENT"),
    (8, "SIMPLE_MODE"),
];

pub(super) fn status(out: &mut dyn Write, item: &[u8], options: &PrintOptions) -> io::Result<()> {
    let mut status = QgroupStatusItem::new_zeroed();
    let len = item.len().min(size_of::<QgroupStatusItem>());
    if len < size_of::<QgroupStatusItem>() - size_of::<u64>() {
        return Ok(());
    }
    status.as_mut_bytes()[..len].copy_from_slice(&item[..len]);
    let (version, generation, bits) = (status.version, status.generation, status.flags.get());
    write!(out, "\t\tversion {version} generation {generation} flags ")?;
    if bits & STATUS_ON == 0 {
        let bar = if bits == 0 { "" } else { "|" };
        write!(out, "OFF{bar}")?;
    }
    let names = Flags {
        bits,
        table: STATUS_FLAGS,
        none: "",
    };
    write!(out, "{names}")?;
    let unknown = unknown(bits, STATUS_FLAGS);
    if unknown != 0 {
        let bar = if bits == unknown { "" } else { "|" };
        write!(out, "{bar}UNKNOWN({unknown:#x})")?;
    }
    write!(out, " scan {}", status.rescan)?;
    if options.simple_quota {
        write!(out, " enable_gen {}", status.enable_gen)?;
    }
    writeln!(out)
}

pub(super) fn info(out: &mut dyn Write, info: &QgroupInfoItem) -> io::Result<()> {
    line!(out, info: generation)?;
    line!(out, info: "referenced" = info.rfer, "referenced_compressed" = info.rfer_cmpr)?;
    line!(out, info: "exclusive" = info.excl, "exclusive_compressed" = info.excl_cmpr)
}

pub(super) fn limit(out: &mut dyn Write, limit: &QgroupLimitItem) -> io::Result<()> {
    writeln!(out, "\t\tflags {:x}", limit.flags.get())?;
    // btrfs-progs prints these as signed. Fields without a flag hold whatever the memory of its makers had.
    let signed = |number: U64| number.get().cast_signed();
    let (referenced, exclusive) = (signed(limit.max_rfer), signed(limit.max_excl));
    writeln!(
        out,
        "\t\tmax_referenced {referenced} max_exclusive {exclusive}"
    )?;
    let (referenced, exclusive) = (signed(limit.rsv_rfer), signed(limit.rsv_excl));
    writeln!(
        out,
        "\t\trsv_referenced {referenced} rsv_exclusive {exclusive}"
    )
}

pub(super) fn temporary(out: &mut dyn Write, key: Key, item: &[u8]) -> io::Result<()> {
    let (object, offset) = (Objectid(key.objectid, key.item_type), key.offset);
    writeln!(out, "\t\ttemporary item objectid {object} offset {offset}")?;
    if key.objectid != objectid::BALANCE {
        return writeln!(out, "\t\tunknown temporary item objectid {}", key.objectid);
    }
    let Ok((balance, _)) = BalanceItem::ref_from_prefix(item) else {
        return Ok(());
    };
    line!(out, balance: "balance status flags" = balance.flags)?;
    for (kind, args) in [
        ("DATA", &balance.data),
        ("METADATA", &balance.meta),
        ("SYSTEM", &balance.sys),
    ] {
        writeln!(out, "\t\t{kind}")?;
        balance_args(out, args)?;
    }
    Ok(())
}

/// Splits a number into a minimum and a maximum of 4 bytes each.
fn range(number: U64) -> (u32, u32) {
    (number.get() as u32, (number.get() >> 32) as u32)
}

fn balance_args(out: &mut dyn Write, args: &DiskBalanceArgs) -> io::Result<()> {
    let (usage, limit) = (range(args.usage), range(args.limit));
    line!(out, args: profiles, devid, target, flags)?;
    line!(out, args: "usage_min" = usage.0, "usage_max" = usage.1, pstart, pend)?;
    line!(out, args: vstart, vend, "limit_min" = limit.0, "limit_max" = limit.1)?;
    line!(out, args: stripes_min, stripes_max)
}

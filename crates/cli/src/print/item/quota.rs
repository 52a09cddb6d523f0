//! Quota groups, and the saved state of a balance.

use std::io::{self, Write};

use ubtrfs_format::ids::objectid;
use ubtrfs_format::item::{
    BalanceItem, DiskBalanceArgs, QgroupInfoItem, QgroupLimitItem, QgroupStatusItem,
};
use ubtrfs_format::key::Key;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

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

pub(super) fn info(out: &mut dyn Write, item: &[u8]) -> io::Result<()> {
    let Ok((info, _)) = QgroupInfoItem::ref_from_prefix(item) else {
        return Ok(());
    };
    let (rfer, rfer_cmpr, excl, excl_cmpr) = (info.rfer, info.rfer_cmpr, info.excl, info.excl_cmpr);
    writeln!(out, "\t\tgeneration {}", info.generation)?;
    writeln!(
        out,
        "\t\treferenced {rfer} referenced_compressed {rfer_cmpr}"
    )?;
    writeln!(out, "\t\texclusive {excl} exclusive_compressed {excl_cmpr}")
}

pub(super) fn limit(out: &mut dyn Write, item: &[u8]) -> io::Result<()> {
    let Ok((limit, _)) = QgroupLimitItem::ref_from_prefix(item) else {
        return Ok(());
    };
    let (max_rfer, max_excl, rsv_rfer, rsv_excl) = (
        limit.max_rfer,
        limit.max_excl,
        limit.rsv_rfer,
        limit.rsv_excl,
    );
    writeln!(out, "\t\tflags {:x}", limit.flags.get())?;
    writeln!(
        out,
        "\t\tmax_referenced {max_rfer} max_exclusive {max_excl}"
    )?;
    writeln!(
        out,
        "\t\trsv_referenced {rsv_rfer} rsv_exclusive {rsv_excl}"
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
    writeln!(out, "\t\tbalance status flags {}", balance.flags)?;
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
    let (profiles, devid, target, flags) = (args.profiles, args.devid, args.target, args.flags);
    writeln!(
        out,
        "\t\tprofiles {profiles} devid {devid} target {target} flags {flags}"
    )?;
    let ((usage_min, usage_max), pstart, pend) = (range(args.usage), args.pstart, args.pend);
    writeln!(
        out,
        "\t\tusage_min {usage_min} usage_max {usage_max} pstart {pstart} pend {pend}"
    )?;
    let ((limit_min, limit_max), vstart, vend) = (range(args.limit), args.vstart, args.vend);
    writeln!(
        out,
        "\t\tvstart {vstart} vend {vend} limit_min {limit_min} limit_max {limit_max}"
    )?;
    let (min, max) = (args.stripes_min, args.stripes_max);
    writeln!(out, "\t\tstripes_min {min} stripes_max {max}")
}

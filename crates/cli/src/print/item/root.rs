//! Roots of trees, the places of subvolumes, and subvolumes by UUID.

use std::io::{self, Write};

use ubtrfs_format::item::{ROOT_ITEM_V0_SIZE, RootItem, RootItemFlags, RootRefHead};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::print::PrintOptions;
use crate::print::bytes::write_raw;
use crate::print::flags::{Flags, Table};
use crate::print::key::KeyText;
use crate::print::time::Stamp;

const ROOT_FLAGS: Table = &[(RootItemFlags::RDONLY.bits(), "RDONLY")];

/// Prints a root item. Newer fields are displayed only if a kernel that knows them wrote the item last.
pub(super) fn root_item(
    out: &mut dyn Write,
    item: &[u8],
    options: &PrintOptions,
) -> io::Result<()> {
    if item.len() < ROOT_ITEM_V0_SIZE {
        return Ok(());
    }
    let mut root = RootItem::new_zeroed();
    let len = item.len().min(size_of::<RootItem>());
    root.as_mut_bytes()[..len].copy_from_slice(&item[..len]);
    let (generation, dir, bytenr) = (root.generation, root.root_dirid, root.bytenr);
    let (limit, used) = (root.byte_limit, root.bytes_used);
    writeln!(
        out,
        "\t\tgeneration {generation} root_dirid {dir} bytenr {bytenr} byte_limit {limit} bytes_used {used}"
    )?;
    let bits = root.flags.get();
    let flags = Flags {
        bits,
        table: ROOT_FLAGS,
        none: "none",
    };
    let (last_snapshot, refs) = (root.last_snapshot, root.refs);
    writeln!(
        out,
        "\t\tlast_snapshot {last_snapshot} flags {bits:#x}({flags}) refs {refs}"
    )?;
    let (progress, drop_level) = (KeyText(root.drop_progress.get()), root.drop_level);
    writeln!(
        out,
        "\t\tdrop_progress key {progress} drop_level {drop_level}"
    )?;
    let (level, generation_v2) = (root.level, root.generation_v2);
    writeln!(out, "\t\tlevel {level} generation_v2 {generation_v2}")?;
    if generation_v2 != generation {
        return Ok(());
    }
    writeln!(out, "\t\tuuid {}", root.uuid)?;
    writeln!(out, "\t\tparent_uuid {}", root.parent_uuid)?;
    writeln!(out, "\t\treceived_uuid {}", root.received_uuid)?;
    let (ctransid, otransid) = (root.ctransid, root.otransid);
    let (stransid, rtransid) = (root.stransid, root.rtransid);
    writeln!(
        out,
        "\t\tctransid {ctransid} otransid {otransid} stransid {stransid} rtransid {rtransid}"
    )?;
    let zone = &options.time_zone;
    writeln!(out, "\t\tctime {}", Stamp(&root.ctime, zone))?;
    writeln!(out, "\t\totime {}", Stamp(&root.otime, zone))?;
    writeln!(out, "\t\tstime {}", Stamp(&root.stime, zone))?;
    writeln!(out, "\t\trtime {}", Stamp(&root.rtime, zone))
}

/// Prints a root reference or back reference. As in btrfs-progs, these names are displayed even if other
/// names are hidden.
pub(super) fn root_ref(
    out: &mut dyn Write,
    word: &str,
    item: &[u8],
    options: &PrintOptions,
) -> io::Result<()> {
    let Ok((head, rest)) = RootRefHead::ref_from_prefix(item) else {
        return Ok(());
    };
    let (dir, sequence) = (head.dirid, head.sequence);
    write!(
        out,
        "\t\troot {word} key dirid {dir} sequence {sequence} name "
    )?;
    let len = usize::from(head.name_len.get()).min(rest.len());
    write_raw(out, &rest[..len], options.for_terminal)?;
    writeln!(out)
}

pub(super) fn uuid(out: &mut dyn Write, item: &[u8]) -> io::Result<()> {
    let (ids, _) = item.as_chunks::<8>();
    for id in ids {
        writeln!(out, "\t\tsubvol_id {}", U64::from_bytes(*id))?;
    }
    Ok(())
}

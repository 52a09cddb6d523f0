//! Roots of trees, the places of subvolumes, and subvolumes by UUID.

use std::io::{self, Write};

use ubtrfs_format::item::{ROOT_ITEM_V0_SIZE, RootItem, RootItemFlags, RootRefHead};
use ubtrfs_format::maker::Marks;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::fields::line;
use crate::print::PrintOptions;
use crate::print::bytes::write_raw;
use crate::print::flags::{Flags, Table, with_marks};
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
    line!(out, root: generation, root_dirid, bytenr, byte_limit, bytes_used)?;
    let bits = root.flags.get();
    let flags = Flags {
        bits,
        table: ROOT_FLAGS,
        none: "none",
    };
    let flags = with_marks(flags, Marks::of_root_flags(root.flags()));
    let flags = format_args!("{bits:#x}({flags})");
    line!(out, root: last_snapshot, "flags" = flags, refs)?;
    line!(out, root: "drop_progress key" = KeyText(root.drop_progress.get()), drop_level)?;
    line!(out, root: level, generation_v2)?;
    if root.generation_v2 != root.generation {
        return Ok(());
    }
    line!(out, root: uuid)?;
    line!(out, root: parent_uuid)?;
    line!(out, root: received_uuid)?;
    line!(out, root: ctransid, otransid, stransid, rtransid)?;
    let zone = &options.time_zone;
    line!(out, root: "ctime" = Stamp(&root.ctime, zone))?;
    line!(out, root: "otime" = Stamp(&root.otime, zone))?;
    line!(out, root: "stime" = Stamp(&root.stime, zone))?;
    line!(out, root: "rtime" = Stamp(&root.rtime, zone))
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

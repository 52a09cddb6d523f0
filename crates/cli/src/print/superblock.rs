//! A copy of the superblock: fields, the system chunk array, the backup roots.

use std::fmt;
use std::io::{self, Write};

use ubtrfs_format::csum::CsumType;
use ubtrfs_format::features::{CompatRo, Incompat};
use ubtrfs_format::item::{Chunk, Stripe};
use ubtrfs_format::key::{DiskKey, Key, KeyType};
use ubtrfs_format::superblock::{MAGIC, RootBackup, SYS_CHUNK_ARRAY_SIZE, Superblock, flags};
use zerocopy::{FromBytes, IntoBytes};

use super::block::Hex;
use super::flags::{Table, unknown};
use super::item::print_chunk;
use super::key::KeyText;

pub(super) const SUPER_FLAGS: Table = &[
    (flags::WRITTEN, "WRITTEN"),
    (flags::RELOC, "RELOC"),
    (flags::CHANGING_FSID, "CHANGING_FSID"),
    (flags::CHANGING_FSID_V2, "CHANGING_FSID_V2"),
    (flags::SEEDING, "SEEDING"),
    (flags::METADUMP, "METADUMP"),
    (flags::METADUMP_V2, "METADUMP_V2"),
    (flags::CHANGING_BG_TREE, "CHANGING_BG_TREE"),
    (flags::CHANGING_DATA_CSUM, "CHANGING_DATA_CSUM"),
    (flags::CHANGING_META_CSUM, "CHANGING_META_CSUM"),
];

pub(super) const COMPAT_RO_FLAGS: Table = &[
    (CompatRo::FREE_SPACE_TREE.bits(), "FREE_SPACE_TREE"),
    (
        CompatRo::FREE_SPACE_TREE_VALID.bits(),
        "FREE_SPACE_TREE_VALID",
    ),
    (CompatRo::BLOCK_GROUP_TREE.bits(), "BLOCK_GROUP_TREE"),
];

pub(super) const INCOMPAT_FLAGS: Table = &[
    (Incompat::MIXED_BACKREF.bits(), "MIXED_BACKREF"),
    (Incompat::DEFAULT_SUBVOL.bits(), "DEFAULT_SUBVOL"),
    (Incompat::MIXED_GROUPS.bits(), "MIXED_GROUPS"),
    (Incompat::COMPRESS_LZO.bits(), "COMPRESS_LZO"),
    (Incompat::COMPRESS_ZSTD.bits(), "COMPRESS_ZSTD"),
    (Incompat::BIG_METADATA.bits(), "BIG_METADATA"),
    (Incompat::EXTENDED_IREF.bits(), "EXTENDED_IREF"),
    (Incompat::RAID56.bits(), "RAID56"),
    (Incompat::SKINNY_METADATA.bits(), "SKINNY_METADATA"),
    (Incompat::NO_HOLES.bits(), "NO_HOLES"),
    (Incompat::METADATA_UUID.bits(), "METADATA_UUID"),
    (Incompat::RAID1C34.bits(), "RAID1C34"),
    (Incompat::ZONED.bits(), "ZONED"),
    (Incompat::EXTENT_TREE_V2.bits(), "EXTENT_TREE_V2"),
    (Incompat::RAID_STRIPE_TREE.bits(), "RAID_STRIPE_TREE"),
    (Incompat::SIMPLE_QUOTA.bits(), "SIMPLE_QUOTA"),
];

/// A fault in the system chunk array. The rest of the superblock is still printed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SysArrayError {
    #[error("sys_array_size {0} shouldn't exceed {SYS_CHUNK_ARRAY_SIZE} bytes")]
    TooLarge(u32),
    #[error("sys_array too short to read {len} bytes at offset {offset}")]
    TooShort { len: usize, offset: usize },
    #[error("unexpected item type {item_type} in sys_array at offset {offset}")]
    ItemType { item_type: u8, offset: usize },
    #[error("invalid number of stripes 0 in sys_array at offset {0}")]
    NoStripes(usize),
}

/// Whether a value is as expected.
struct Verdict(bool);

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "[match]" } else { "[DON'T MATCH]" })
    }
}

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
    print_identity(out, superblock)?;
    print_fields(out, superblock)?;
    print_features(out, superblock)?;
    print_device(out, superblock)?;
    if !copy.full {
        return Ok(Ok(()));
    }
    writeln!(out, "sys_chunk_array[{SYS_CHUNK_ARRAY_SIZE}]:")?;
    let array = print_sys_chunk_array(out, superblock)?;
    writeln!(out, "backup_roots[{}]:", superblock.super_roots.len())?;
    for (slot, backup) in superblock.super_roots.iter().enumerate() {
        print_backup(out, slot, backup, superblock.incompat())?;
    }
    Ok(array)
}

fn print_identity(out: &mut dyn Write, superblock: &Superblock) -> io::Result<()> {
    let raw = superblock.csum_type.get();
    let csum_type = CsumType::from_raw(raw);
    let name = csum_type.map_or("INVALID", CsumType::name);
    let size = csum_type.map_or(superblock.csum.len(), CsumType::size_bytes);
    let csum = Hex(&superblock.csum[..size]);
    writeln!(out, "csum_type\t\t{raw} ({name})")?;
    writeln!(out, "csum_size\t\t{size}")?;
    write!(out, "csum\t\t\t{csum} ")?;
    match csum_type {
        Some(csum_type) => {
            let sound = csum_type.verify_block(superblock.as_bytes()).is_ok();
            writeln!(out, "{}", Verdict(sound))?;
        }
        None => writeln!(out, "[UNKNOWN CSUM TYPE OR SIZE]")?,
    }
    writeln!(out, "bytenr\t\t\t{}", superblock.bytenr)?;
    print_flags(out, "flags\t\t\t", superblock.flags.get(), SUPER_FLAGS)?;
    let magic = Printable(&superblock.magic);
    let verdict = Verdict(superblock.magic == MAGIC);
    writeln!(out, "magic\t\t\t{magic} {verdict}")?;
    writeln!(out, "fsid\t\t\t{}", superblock.fsid)?;
    writeln!(out, "metadata_uuid\t\t{}", superblock.metadata_uuid)?;
    writeln!(out, "label\t\t\t{}", Printable(superblock.label()))
}

fn print_fields(out: &mut dyn Write, sb: &Superblock) -> io::Result<()> {
    writeln!(out, "generation\t\t{}", sb.generation)?;
    writeln!(out, "root\t\t\t{}", sb.root)?;
    writeln!(out, "sys_array_size\t\t{}", sb.sys_chunk_array_size)?;
    writeln!(out, "chunk_root_generation\t{}", sb.chunk_root_generation)?;
    writeln!(out, "root_level\t\t{}", sb.root_level)?;
    writeln!(out, "chunk_root\t\t{}", sb.chunk_root)?;
    writeln!(out, "chunk_root_level\t{}", sb.chunk_root_level)?;
    writeln!(out, "log_root\t\t{}", sb.log_root)?;
    writeln!(
        out,
        "log_root_transid (deprecated)\t{}",
        sb.log_root_transid
    )?;
    writeln!(out, "log_root_level\t\t{}", sb.log_root_level)?;
    writeln!(out, "total_bytes\t\t{}", sb.total_bytes)?;
    writeln!(out, "bytes_used\t\t{}", sb.bytes_used)?;
    writeln!(out, "sectorsize\t\t{}", sb.sectorsize)?;
    writeln!(out, "nodesize\t\t{}", sb.nodesize)?;
    writeln!(out, "leafsize (deprecated)\t{}", sb.unused_leafsize)?;
    writeln!(out, "stripesize\t\t{}", sb.stripesize)?;
    writeln!(out, "root_dir\t\t{}", sb.root_dir_objectid)?;
    writeln!(out, "num_devices\t\t{}", sb.num_devices)
}

fn print_features(out: &mut dyn Write, sb: &Superblock) -> io::Result<()> {
    writeln!(out, "compat_flags\t\t{:#x}", sb.compat_flags.get())?;
    let (compat_ro, incompat) = (sb.compat_ro_flags.get(), sb.incompat_flags.get());
    print_flags(out, "compat_ro_flags\t\t", compat_ro, COMPAT_RO_FLAGS)?;
    print_flags(out, "incompat_flags\t\t", incompat, INCOMPAT_FLAGS)?;
    writeln!(out, "cache_generation\t{}", sb.cache_generation)?;
    writeln!(out, "uuid_tree_generation\t{}", sb.uuid_tree_generation)
}

fn print_device(out: &mut dyn Write, sb: &Superblock) -> io::Result<()> {
    let dev = &sb.dev_item;
    let verdict = Verdict(dev.fsid == *sb.metadata_fsid());
    writeln!(out, "dev_item.uuid\t\t{}", dev.uuid)?;
    writeln!(out, "dev_item.fsid\t\t{} {verdict}", dev.fsid)?;
    writeln!(out, "dev_item.type\t\t{}", dev.type_)?;
    writeln!(out, "dev_item.total_bytes\t{}", dev.total_bytes)?;
    writeln!(out, "dev_item.bytes_used\t{}", dev.bytes_used)?;
    writeln!(out, "dev_item.io_align\t{}", dev.io_align)?;
    writeln!(out, "dev_item.io_width\t{}", dev.io_width)?;
    writeln!(out, "dev_item.sector_size\t{}", dev.sector_size)?;
    writeln!(out, "dev_item.devid\t\t{}", dev.devid)?;
    writeln!(out, "dev_item.dev_group\t{}", dev.dev_group)?;
    writeln!(out, "dev_item.seek_speed\t{}", dev.seek_speed)?;
    writeln!(out, "dev_item.bandwidth\t{}", dev.bandwidth)?;
    writeln!(out, "dev_item.generation\t{}", dev.generation)
}

/// Prints one flag per line, in parentheses.
fn print_flags(out: &mut dyn Write, name: &str, bits: u64, table: Table) -> io::Result<()> {
    writeln!(out, "{name}{bits:#x}")?;
    if bits == 0 {
        return Ok(());
    }
    let mut before = "( ";
    for (_, flag) in table.iter().filter(|(bit, _)| bits & bit != 0) {
        write!(out, "\t\t\t{before}{flag}")?;
        before = "  ";
        if unknown(bits, table) != 0 || !is_last(bits, table, flag) {
            writeln!(out, " |")?;
        }
    }
    let unknown = unknown(bits, table);
    if unknown != 0 {
        write!(out, "\t\t\t{before}unknown flag: {unknown:#x}")?;
    }
    writeln!(out, " )")
}

fn is_last(bits: u64, table: Table, flag: &str) -> bool {
    let last = table.iter().rfind(|(bit, _)| bits & bit != 0);
    last.is_some_and(|(_, name)| *name == flag)
}

/// Displays bytes up to the first NUL, with dots for unprintable ones.
pub(super) struct Printable<'a>(pub(super) &'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        let bytes = self.0.iter().take_while(|byte| **byte != 0);
        bytes.copied().try_for_each(|byte| {
            let plain = byte.is_ascii_graphic() || byte == b' ';
            f.write_char(if plain { char::from(byte) } else { '.' })
        })
    }
}

fn print_sys_chunk_array(
    out: &mut dyn Write,
    superblock: &Superblock,
) -> io::Result<Result<(), SysArrayError>> {
    let mut printed = Ok(());
    let array = walk_sys_chunk_array(superblock, &mut |entry| {
        if printed.is_ok() {
            printed = match entry {
                SysEntry::Key { number, key } => {
                    writeln!(out, "\titem {number} key {}", KeyText(key))
                }
                SysEntry::Chunk { chunk, stripes, .. } => print_chunk(out, chunk, stripes),
            };
        }
    });
    printed.map(|()| array)
}

/// Calls `each` for each chunk of the array with its logical address, up to the first fault.
pub(super) fn for_each_sys_chunk(
    superblock: &Superblock,
    each: &mut dyn FnMut(u64, &Chunk, &[Stripe]),
) -> Result<(), SysArrayError> {
    walk_sys_chunk_array(superblock, &mut |entry| {
        if let SysEntry::Chunk {
            logical,
            chunk,
            stripes,
        } = entry
        {
            each(logical, chunk, stripes);
        }
    })
}

/// The elements of the system chunk array, which alternate.
enum SysEntry<'a> {
    Key {
        number: usize,
        key: Key,
    },
    Chunk {
        logical: u64,
        chunk: &'a Chunk,
        stripes: &'a [Stripe],
    },
}

fn walk_sys_chunk_array(
    superblock: &Superblock,
    each: &mut dyn FnMut(SysEntry<'_>),
) -> Result<(), SysArrayError> {
    let size = superblock.sys_chunk_array_size.get();
    let array = superblock.sys_chunk_array.get(..size as usize);
    let array = array.ok_or(SysArrayError::TooLarge(size))?;
    let mut at = 0;
    for number in 0.. {
        if at >= array.len() {
            break;
        }
        let Ok((key, _)) = DiskKey::ref_from_prefix(&array[at..]) else {
            let len = size_of::<DiskKey>();
            return Err(SysArrayError::TooShort { len, offset: at });
        };
        let key = key.get();
        each(SysEntry::Key { number, key });
        at += size_of::<DiskKey>();
        if key.item_type != KeyType::CHUNK_ITEM {
            let item_type = key.item_type.0;
            return Err(SysArrayError::ItemType {
                item_type,
                offset: at,
            });
        }
        let (chunk, stripes) = sys_chunk(&array[at..], at)?;
        each(SysEntry::Chunk {
            logical: key.offset,
            chunk,
            stripes,
        });
        at += size_of::<Chunk>() + size_of_val(stripes);
    }
    Ok(())
}

fn sys_chunk(rest: &[u8], offset: usize) -> Result<(&Chunk, &[Stripe]), SysArrayError> {
    let too_short = |stripes: usize| SysArrayError::TooShort {
        len: size_of::<Chunk>() + stripes * size_of::<Stripe>(),
        offset,
    };
    // A chunk has at least one stripe.
    if rest.len() < size_of::<Chunk>() + size_of::<Stripe>() {
        return Err(too_short(1));
    }
    let (chunk, _) = Chunk::ref_from_prefix(rest).map_err(|_| too_short(1))?;
    let count = usize::from(chunk.num_stripes.get());
    if count == 0 {
        return Err(SysArrayError::NoStripes(offset));
    }
    let (chunk, stripes, _) = Chunk::split(rest).ok_or_else(|| too_short(count))?;
    Ok((chunk, stripes))
}

fn print_backup(
    out: &mut dyn Write,
    slot: usize,
    backup: &RootBackup,
    incompat: Incompat,
) -> io::Result<()> {
    let extent = if incompat.contains(Incompat::EXTENT_TREE_V2) {
        "backup_block_group_root:\t"
    } else {
        "backup_extent_root:\t"
    };
    writeln!(out, "\tbackup {slot}:")?;
    for (name, root, generation, level) in [
        (
            "backup_tree_root:\t",
            backup.tree_root,
            backup.tree_root_gen,
            backup.tree_root_level,
        ),
        (
            "backup_chunk_root:\t",
            backup.chunk_root,
            backup.chunk_root_gen,
            backup.chunk_root_level,
        ),
        (
            extent,
            backup.extent_root,
            backup.extent_root_gen,
            backup.extent_root_level,
        ),
        (
            "backup_fs_root:\t\t",
            backup.fs_root,
            backup.fs_root_gen,
            backup.fs_root_level,
        ),
        (
            "backup_dev_root:\t",
            backup.dev_root,
            backup.dev_root_gen,
            backup.dev_root_level,
        ),
        (
            "csum_root:\t",
            backup.csum_root,
            backup.csum_root_gen,
            backup.csum_root_level,
        ),
    ] {
        writeln!(out, "\t\t{name}{root}\tgen: {generation}\tlevel: {level}")?;
    }
    writeln!(out, "\t\tbackup_total_bytes:\t{}", backup.total_bytes)?;
    writeln!(out, "\t\tbackup_bytes_used:\t{}", backup.bytes_used)?;
    writeln!(out, "\t\tbackup_num_devices:\t{}", backup.num_devices)?;
    writeln!(out)
}

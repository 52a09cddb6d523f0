//! The fields of a superblock, in the order of the text.

use std::fmt::Display;

use serde::Serialize;
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::features::{CompatRo, Incompat};
use ubtrfs_format::maker::{MadeBy, SuperblockEnd};
use ubtrfs_format::superblock::{MAGIC, RootBackup, Superblock, flags};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use crate::presentation::json;
use crate::print::bytes::{Hex, Printable};
use crate::print::flags::{Table, unknown};

const SUPER_FLAGS: Table = &[
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

const COMPAT_RO_FLAGS: Table = &[
    (CompatRo::FREE_SPACE_TREE.bits(), "FREE_SPACE_TREE"),
    (
        CompatRo::FREE_SPACE_TREE_VALID.bits(),
        "FREE_SPACE_TREE_VALID",
    ),
    (CompatRo::BLOCK_GROUP_TREE.bits(), "BLOCK_GROUP_TREE"),
];

const INCOMPAT_FLAGS: Table = &[
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

/// A field in both forms.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) text: String,
    /// The members of the JSON object.
    pub(super) members: Vec<(&'static str, Json)>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Json {
    Number(u64),
    Bool(bool),
    Text(String),
    Flags {
        value: u64,
        names: Vec<&'static str>,
    },
    Root {
        bytenr: u64,
        generation: u64,
        level: u8,
    },
}

impl Field {
    fn new(name: &'static str, text: impl Display, json: Json) -> Field {
        Field {
            name,
            text: text.to_string(),
            members: vec![(name, json)],
        }
    }

    fn number(name: &'static str, value: impl Into<u64>) -> Field {
        let value = value.into();
        Field::new(name, value, Json::Number(value))
    }

    fn text(name: &'static str, value: impl Display) -> Field {
        let text = value.to_string();
        Field::new(name, &text, Json::Text(text.clone()))
    }

    fn flags(name: &'static str, value: impl Into<u64>, table: Table) -> Field {
        let value = value.into();
        let set = table.iter().filter(|(bit, _)| value & bit != 0);
        let names = set.map(|(_, name)| *name).collect();
        Field::new(name, flag_lines(value, table), Json::Flags { value, names })
    }

    fn root(name: &'static str, bytenr: U64, generation: U64, level: u8) -> Field {
        let text = format_args!("{bytenr}\tgen: {generation}\tlevel: {level}");
        let (bytenr, generation) = (bytenr.get(), generation.get());
        let json = Json::Root {
            bytenr,
            generation,
            level,
        };
        Field::new(name, text, json)
    }

    /// Adds to the text only.
    fn noted(mut self, note: impl Display) -> Field {
        self.text = format!("{} {note}", self.text);
        self
    }

    /// Adds a member to the JSON object.
    fn with(mut self, name: &'static str, json: Json) -> Field {
        self.members.push((name, json));
        self
    }

    fn text_only(mut self) -> Field {
        self.members.clear();
        self
    }
}

/// Returns the fields of a NAS maker's system, if it has written the volume.
fn maker_fields(sb: &Superblock) -> Vec<Field> {
    let mut fields = Vec::new();
    if let Some(made_by) = MadeBy::of(sb) {
        fields.push(Field::text("made_by", made_by));
    }
    if let Some(end) = SuperblockEnd::of(sb) {
        fields.extend([
            Field::number("syno_locker_clock", end.locker_clock),
            Field::number("syno_rbd_table", end.rbd_table),
            Field::number("syno_capabilities", end.capabilities[0]),
            Field::number("syno_capabilities2", end.capabilities[1]),
            Field::number("syno_log_tree_reserved", end.log_tree_reserved),
            Field::number("syno_generation", end.syno_generation),
        ]);
    }
    fields
}

/// Returns all fields before the device item.
pub(super) fn fields(sb: &Superblock) -> Vec<Field> {
    let raw = sb.csum_type.get();
    let csum_type = CsumType::from_raw(raw);
    let csum_name = csum_type.map_or("INVALID", CsumType::name);
    let csum_size = csum_type.map_or(sb.csum.len(), CsumType::size_bytes);
    let csum_match = csum_type.map(|kind| kind.verify_block(sb.as_bytes()).is_ok());
    let magic_match = sb.magic == MAGIC;
    let (compat, label) = (sb.compat_flags.get(), sb.label());
    let mut fields = vec![
        Field::number("csum_type", raw)
            .noted(format_args!("({csum_name})"))
            .with("csum_name", Json::Text(csum_name.to_owned())),
        Field::number("csum_size", csum_size as u64).text_only(),
        Field::text("csum", Hex(&sb.csum[..csum_size]))
            .noted(csum_match.map_or("[UNKNOWN CSUM TYPE OR SIZE]", verdict))
            .with("csum_match", Json::Bool(csum_match == Some(true))),
        Field::number("bytenr", sb.bytenr).text_only(),
        Field::flags("flags", sb.flags, SUPER_FLAGS),
        Field::text("magic", Printable(&sb.magic))
            .noted(verdict(magic_match))
            .with("magic_match", Json::Bool(magic_match)),
        Field::text("fsid", sb.fsid),
        Field::text("metadata_uuid", sb.metadata_uuid),
        Field::new("label", Printable(label), Json::Text(json::text(label))),
        Field::number("generation", sb.generation),
        Field::number("root", sb.root),
        Field::number("sys_array_size", sb.sys_chunk_array_size),
        Field::number("chunk_root_generation", sb.chunk_root_generation),
        Field::number("root_level", sb.root_level),
        Field::number("chunk_root", sb.chunk_root),
        Field::number("chunk_root_level", sb.chunk_root_level),
        Field::number("log_root", sb.log_root),
        Field::number("log_root_transid (deprecated)", sb.log_root_transid).text_only(),
        Field::number("log_root_level", sb.log_root_level),
        Field::number("total_bytes", sb.total_bytes),
        Field::number("bytes_used", sb.bytes_used),
        Field::number("sectorsize", sb.sectorsize),
        Field::number("nodesize", sb.nodesize),
        Field::number("leafsize (deprecated)", sb.unused_leafsize).text_only(),
        Field::number("stripesize", sb.stripesize),
        Field::number("root_dir", sb.root_dir_objectid),
        Field::number("num_devices", sb.num_devices),
        Field::new(
            "compat_flags",
            format_args!("{compat:#x}"),
            Json::Number(compat),
        ),
        Field::flags("compat_ro_flags", sb.compat_ro_flags, COMPAT_RO_FLAGS),
        Field::flags("incompat_flags", sb.incompat_flags, INCOMPAT_FLAGS),
        Field::number("cache_generation", sb.cache_generation),
        Field::number("uuid_tree_generation", sb.uuid_tree_generation),
    ];
    fields.extend(maker_fields(sb));
    fields
}

pub(super) fn device_fields(sb: &Superblock) -> Vec<Field> {
    let dev = &sb.dev_item;
    vec![
        Field::text("uuid", dev.uuid),
        Field::text("fsid", dev.fsid).noted(verdict(dev.fsid == *sb.metadata_fsid())),
        Field::number("type", dev.type_),
        Field::number("total_bytes", dev.total_bytes),
        Field::number("bytes_used", dev.bytes_used),
        Field::number("io_align", dev.io_align),
        Field::number("io_width", dev.io_width),
        Field::number("sector_size", dev.sector_size),
        Field::number("devid", dev.devid),
        Field::number("dev_group", dev.dev_group),
        Field::number("seek_speed", dev.seek_speed),
        Field::number("bandwidth", dev.bandwidth),
        Field::number("generation", dev.generation),
    ]
}

/// Returns the fields of a slot of the backup roots.
pub(super) fn backup_fields(backup: &RootBackup, incompat: Incompat) -> Vec<Field> {
    let b = backup;
    let mut extent_root = Field::root(
        "extent_root",
        b.extent_root,
        b.extent_root_gen,
        b.extent_root_level,
    );
    if incompat.contains(Incompat::EXTENT_TREE_V2) {
        extent_root.name = "block_group_root";
    }
    vec![
        Field::root("tree_root", b.tree_root, b.tree_root_gen, b.tree_root_level),
        Field::root(
            "chunk_root",
            b.chunk_root,
            b.chunk_root_gen,
            b.chunk_root_level,
        ),
        extent_root,
        Field::root("fs_root", b.fs_root, b.fs_root_gen, b.fs_root_level),
        Field::root("dev_root", b.dev_root, b.dev_root_gen, b.dev_root_level),
        Field::root("csum_root", b.csum_root, b.csum_root_gen, b.csum_root_level),
        Field::number("total_bytes", b.total_bytes),
        Field::number("bytes_used", b.bytes_used),
        Field::number("num_devices", b.num_devices),
    ]
}

fn verdict(is_match: bool) -> &'static str {
    if is_match { "[match]" } else { "[DON'T MATCH]" }
}

/// Formats bits, with one flag per line in parentheses.
fn flag_lines(bits: u64, table: Table) -> String {
    let set = table.iter().filter(|(bit, _)| bits & bit != 0);
    let mut names: Vec<String> = set.map(|(_, name)| (*name).to_owned()).collect();
    let unknown = unknown(bits, table);
    if unknown != 0 {
        names.push(format!("unknown flag: {unknown:#x}"));
    }
    if names.is_empty() {
        return format!("{bits:#x}");
    }
    format!("{bits:#x}\n\t\t\t( {} )", names.join(" |\n\t\t\t  "))
}

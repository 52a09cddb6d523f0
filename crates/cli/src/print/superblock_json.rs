//! A copy of the superblock as JSON: fields named as in the text, sizes in bytes, flags by name.

use serde::Serialize;
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::item::{Chunk, Stripe};
use ubtrfs_format::superblock::{MAGIC, RootBackup, Superblock};
use zerocopy::IntoBytes;

use super::Copy;
use super::block::Hex;
use super::flags::Table;
use super::superblock::{
    COMPAT_RO_FLAGS, INCOMPAT_FLAGS, Printable, SUPER_FLAGS, SysArrayError, for_each_sys_chunk,
};

#[derive(Debug, Serialize)]
pub(crate) struct SuperblockJson {
    device: String,
    bytenr: u64,
    csum_type: u16,
    csum_name: &'static str,
    csum: String,
    csum_match: bool,
    flags: FlagsJson,
    magic: String,
    magic_match: bool,
    fsid: String,
    metadata_uuid: String,
    label: String,
    generation: u64,
    root: u64,
    root_level: u8,
    chunk_root: u64,
    chunk_root_generation: u64,
    chunk_root_level: u8,
    log_root: u64,
    log_root_level: u8,
    total_bytes: u64,
    bytes_used: u64,
    sectorsize: u32,
    nodesize: u32,
    stripesize: u32,
    root_dir: u64,
    num_devices: u64,
    compat_flags: u64,
    compat_ro_flags: FlagsJson,
    incompat_flags: FlagsJson,
    cache_generation: u64,
    uuid_tree_generation: u64,
    sys_array_size: u32,
    dev_item: DevItemJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    sys_chunk_array: Option<Vec<SysChunkJson>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backup_roots: Option<Vec<BackupJson>>,
}

#[derive(Debug, Serialize)]
struct FlagsJson {
    value: u64,
    names: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
struct DevItemJson {
    devid: u64,
    uuid: String,
    fsid: String,
    r#type: u64,
    total_bytes: u64,
    bytes_used: u64,
    io_align: u32,
    io_width: u32,
    sector_size: u32,
    dev_group: u32,
    seek_speed: u8,
    bandwidth: u8,
    generation: u64,
}

#[derive(Debug, Serialize)]
struct SysChunkJson {
    logical: u64,
    length: u64,
    r#type: &'static str,
    profile: &'static str,
    stripes: Vec<StripeJson>,
}

#[derive(Debug, Serialize)]
struct StripeJson {
    devid: u64,
    offset: u64,
    dev_uuid: String,
}

#[derive(Debug, Serialize)]
struct BackupJson {
    tree_root: RootJson,
    chunk_root: RootJson,
    extent_root: RootJson,
    fs_root: RootJson,
    dev_root: RootJson,
    csum_root: RootJson,
    total_bytes: u64,
    bytes_used: u64,
    num_devices: u64,
}

#[derive(Debug, Serialize)]
struct RootJson {
    bytenr: u64,
    generation: u64,
    level: u8,
}

/// Returns the JSON form of the copy read at `bytenr`. The caller reports an error in the system chunk array.
pub(crate) fn superblock_json(
    device: String,
    bytenr: u64,
    copy: &Copy<'_>,
) -> (SuperblockJson, Result<(), SysArrayError>) {
    let sb = copy.superblock;
    let raw = sb.csum_type.get();
    let csum_type = CsumType::from_raw(raw);
    let csum_len = csum_type.map_or(sb.csum.len(), CsumType::size_bytes);
    let mut chunks = Vec::new();
    let array = if copy.full {
        for_each_sys_chunk(sb, &mut |logical, chunk, stripes| {
            chunks.push(sys_chunk(logical, chunk, stripes));
        })
    } else {
        Ok(())
    };
    let json = SuperblockJson {
        device,
        bytenr,
        csum_type: raw,
        csum_name: csum_type.map_or("INVALID", CsumType::name),
        csum: Hex(&sb.csum[..csum_len]).to_string(),
        csum_match: csum_type.is_some_and(|kind| kind.verify_block(sb.as_bytes()).is_ok()),
        flags: flags(sb.flags.get(), SUPER_FLAGS),
        magic: Printable(&sb.magic).to_string(),
        magic_match: sb.magic == MAGIC,
        fsid: sb.fsid.to_string(),
        metadata_uuid: sb.metadata_uuid.to_string(),
        label: crate::presentation::json::text(sb.label()),
        generation: sb.generation.get(),
        root: sb.root.get(),
        root_level: sb.root_level,
        chunk_root: sb.chunk_root.get(),
        chunk_root_generation: sb.chunk_root_generation.get(),
        chunk_root_level: sb.chunk_root_level,
        log_root: sb.log_root.get(),
        log_root_level: sb.log_root_level,
        total_bytes: sb.total_bytes.get(),
        bytes_used: sb.bytes_used.get(),
        sectorsize: sb.sectorsize.get(),
        nodesize: sb.nodesize.get(),
        stripesize: sb.stripesize.get(),
        root_dir: sb.root_dir_objectid.get(),
        num_devices: sb.num_devices.get(),
        compat_flags: sb.compat_flags.get(),
        compat_ro_flags: flags(sb.compat_ro_flags.get(), COMPAT_RO_FLAGS),
        incompat_flags: flags(sb.incompat_flags.get(), INCOMPAT_FLAGS),
        cache_generation: sb.cache_generation.get(),
        uuid_tree_generation: sb.uuid_tree_generation.get(),
        sys_array_size: sb.sys_chunk_array_size.get(),
        dev_item: dev_item(sb),
        sys_chunk_array: copy.full.then_some(chunks),
        backup_roots: copy
            .full
            .then(|| sb.super_roots.iter().map(backup).collect()),
    };
    (json, array)
}

fn flags(value: u64, table: Table) -> FlagsJson {
    let set = table.iter().filter(|(bit, _)| value & bit != 0);
    FlagsJson {
        value,
        names: set.map(|(_, name)| *name).collect(),
    }
}

fn dev_item(sb: &Superblock) -> DevItemJson {
    let dev = &sb.dev_item;
    DevItemJson {
        devid: dev.devid.get(),
        uuid: dev.uuid.to_string(),
        fsid: dev.fsid.to_string(),
        r#type: dev.type_.get(),
        total_bytes: dev.total_bytes.get(),
        bytes_used: dev.bytes_used.get(),
        io_align: dev.io_align.get(),
        io_width: dev.io_width.get(),
        sector_size: dev.sector_size.get(),
        dev_group: dev.dev_group.get(),
        seek_speed: dev.seek_speed,
        bandwidth: dev.bandwidth,
        generation: dev.generation.get(),
    }
}

fn sys_chunk(logical: u64, chunk: &Chunk, stripes: &[Stripe]) -> SysChunkJson {
    SysChunkJson {
        logical,
        length: chunk.length.get(),
        r#type: chunk.flags().type_name(),
        profile: crate::presentation::profiles::profile_name(chunk.flags().profile()),
        stripes: stripes
            .iter()
            .map(|stripe| StripeJson {
                devid: stripe.devid.get(),
                offset: stripe.offset.get(),
                dev_uuid: stripe.dev_uuid.to_string(),
            })
            .collect(),
    }
}

fn backup(backup: &RootBackup) -> BackupJson {
    let root = |bytenr: u64, generation: u64, level| RootJson {
        bytenr,
        generation,
        level,
    };
    let b = backup;
    BackupJson {
        tree_root: root(b.tree_root.get(), b.tree_root_gen.get(), b.tree_root_level),
        chunk_root: root(
            b.chunk_root.get(),
            b.chunk_root_gen.get(),
            b.chunk_root_level,
        ),
        extent_root: root(
            b.extent_root.get(),
            b.extent_root_gen.get(),
            b.extent_root_level,
        ),
        fs_root: root(b.fs_root.get(), b.fs_root_gen.get(), b.fs_root_level),
        dev_root: root(b.dev_root.get(), b.dev_root_gen.get(), b.dev_root_level),
        csum_root: root(b.csum_root.get(), b.csum_root_gen.get(), b.csum_root_level),
        total_bytes: b.total_bytes.get(),
        bytes_used: b.bytes_used.get(),
        num_devices: b.num_devices.get(),
    }
}

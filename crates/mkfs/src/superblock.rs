//! The superblocks of a new volume: one per device, written to each of its copies.

use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{Physical, RootId, objectid};
use ubtrfs_format::key::DiskKey;
use ubtrfs_format::superblock::{
    MAGIC, RootBackup, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, flags,
};
use ubtrfs_tree::Placement;
use zerocopy::{FromZeros, IntoBytes};

use super::chunks::{PlannedDevice, VolumeChunks};
use super::error::MkfsError;
use super::options::{Geometry, Identity};
use super::targets::PlannedWrite;
use super::trees::{Contents, GENERATION, dev_item};

/// The slot for the roots of the first transaction.
const FIRST_BACKUP: usize = ((GENERATION - 1) % 4) as usize;

/// Returns the superblock without the fields that differ by device and copy. Its checksum is not set.
pub(super) fn superblock(
    contents: &Contents<'_>,
    placement: &Placement,
) -> Result<Superblock, MkfsError> {
    let Contents {
        geometry,
        identity,
        layout,
        files,
    } = contents;
    let root = placement.root(RootId::ROOT_TREE);
    let chunk_root = placement.root(RootId::CHUNK_TREE);
    let mut sb = Superblock::new_zeroed();
    sb.fsid = identity.fsid;
    sb.flags = flags::WRITTEN.into();
    sb.magic = MAGIC;
    sb.generation = GENERATION.into();
    sb.root = root.logical.0.into();
    sb.root_level = root.level;
    sb.chunk_root = chunk_root.logical.0.into();
    sb.chunk_root_level = chunk_root.level;
    sb.chunk_root_generation = GENERATION.into();
    sb.total_bytes = layout.total_bytes.into();
    sb.bytes_used = bytes_used(contents, placement).into();
    sb.root_dir_objectid = objectid::ROOT_TREE_DIR.into();
    sb.num_devices = (layout.devices.len() as u64).into();
    sb.sectorsize = geometry.sectorsize.into();
    sb.nodesize = geometry.nodesize.into();
    sb.unused_leafsize = geometry.nodesize.into();
    sb.stripesize = geometry.sectorsize.into();
    sb.compat_ro_flags = geometry.features.compat_ro.bits().into();
    let mut incompat = geometry.features.incompat;
    if files.default_subvolume() != RootId::FS_TREE {
        incompat |= Incompat::DEFAULT_SUBVOL;
    }
    sb.incompat_flags = incompat.bits().into();
    sb.csum_type = geometry.csum_type.raw().into();
    sb.label[..geometry.label.len()].copy_from_slice(&geometry.label);
    // Without the tree, the kernel maintains v1 caches. There are no such caches yet.
    sb.cache_generation = if geometry.features.has_free_space_tree() {
        0.into()
    } else {
        u64::MAX.into()
    };
    // The UUID tree is complete, so the first mount need not scan all subvolumes.
    sb.uuid_tree_generation = GENERATION.into();
    let array = system_chunks(contents);
    let room = sb.sys_chunk_array.get_mut(..array.len());
    room.ok_or(MkfsError::NoRoomForChunk {
        flags: BlockGroupFlags::SYSTEM,
    })?
    .copy_from_slice(&array);
    sb.sys_chunk_array_size = (array.len() as u32).into();
    sb.super_roots[FIRST_BACKUP] = root_backup(contents, placement);
    Ok(sb)
}

fn bytes_used(contents: &Contents<'_>, placement: &Placement) -> u64 {
    let blocks = placement.blocks().len() as u64 * u64::from(contents.geometry.nodesize);
    let subvolumes = contents.files.subvolumes().iter();
    blocks
        + subvolumes
            .map(|subvolume| subvolume.data_bytes)
            .sum::<u64>()
}

fn system_chunks(contents: &Contents<'_>) -> Vec<u8> {
    let mut array = Vec::new();
    for chunk in &contents.layout.chunks {
        if chunk.map.flags().contains(BlockGroupFlags::SYSTEM) {
            array.extend_from_slice(DiskKey::from(chunk.key()).as_bytes());
            array.extend(chunk.item());
        }
    }
    array
}

fn root_backup(contents: &Contents<'_>, placement: &Placement) -> RootBackup {
    let mut backup = RootBackup::new_zeroed();
    macro_rules! root {
        ($tree:expr, $bytenr:ident, $generation:ident, $level:ident) => {
            let root = placement.root($tree);
            backup.$bytenr = root.logical.0.into();
            backup.$generation = GENERATION.into();
            backup.$level = root.level;
        };
    }
    root!(RootId::ROOT_TREE, tree_root, tree_root_gen, tree_root_level);
    root!(
        RootId::CHUNK_TREE,
        chunk_root,
        chunk_root_gen,
        chunk_root_level
    );
    root!(
        RootId::EXTENT_TREE,
        extent_root,
        extent_root_gen,
        extent_root_level
    );
    root!(RootId::FS_TREE, fs_root, fs_root_gen, fs_root_level);
    root!(RootId::DEV_TREE, dev_root, dev_root_gen, dev_root_level);
    root!(RootId::CSUM_TREE, csum_root, csum_root_gen, csum_root_level);
    backup.total_bytes = contents.layout.total_bytes.into();
    backup.bytes_used = bytes_used(contents, placement).into();
    backup.num_devices = (contents.layout.devices.len() as u64).into();
    backup
}

/// Returns all copies for all devices. For each device, the first copy is last, because it makes the device visible.
pub(super) fn writes(
    superblock: &Superblock,
    geometry: &Geometry,
    identity: &Identity,
    layout: &VolumeChunks,
) -> Vec<PlannedWrite> {
    let mut writes = Vec::new();
    for device in &layout.devices {
        for offset in copies(device) {
            let mut copy = superblock.clone();
            copy.dev_item = dev_item(geometry, identity, device);
            copy.bytenr = offset.into();
            copy.seal();
            writes.push(PlannedWrite {
                devid: device.devid,
                physical: Physical(offset),
                bytes: copy.as_bytes().to_vec(),
            });
        }
    }
    writes
}

fn copies(device: &PlannedDevice) -> impl Iterator<Item = u64> {
    let fits = device.total_bytes.saturating_sub(SUPERBLOCK_SIZE as u64);
    let offsets = SUPERBLOCK_OFFSETS.into_iter().rev();
    // The kernel does not write a copy that ends at the end of the device.
    offsets.filter(move |&offset| offset < fits)
}

//! A kernel-made volume with a few damaged fields.
//!
//! Checksums are corrected to reach the code behind them. Opening the volume and reading all of it must end, without
//! a panic and in bounded memory.
//!
//! Input: the number of the volume, then edits of 12 bytes: block (2), offset (2), kind (1), length (1, up to 8),
//! value (6). Every copy of the block is edited the same way.

#![no_main]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::Key;
use ubtrfs_format::node::Node;
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use ubtrfs_fs::{FileId, FileKind, OpenOptions, Volume};

/// Directory entries to read in one run: the volumes are small, only a loop has more.
const MAX_ENTRIES: usize = 1_000;
const EDIT_BYTES: usize = 12;

/// One copy of a block: device and offset.
type Place = (usize, u64);

struct Base {
    devices: Vec<MemDevice>,
    csum_type: CsumType,
    nodesize: usize,
    /// The copies of each tree block; the superblocks are last.
    blocks: Vec<Vec<Place>>,
}

fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let names = ubtrfs_sim::images::names().expect("tests/images is there");
        assert!(!names.is_empty(), "tests/images has images");
        names.iter().map(|name| load(name)).collect()
    })
}

fn load(name: &str) -> Base {
    let image = ubtrfs_sim::images::image(name).expect("the image unpacks");
    let bytes: Vec<Vec<u8>> = image
        .devices
        .iter()
        .map(|path| std::fs::read(path).expect("readable"))
        .collect();
    let first = SUPERBLOCK_OFFSETS[0] as usize;
    let superblock =
        Superblock::from_block(&bytes[0][first..first + SUPERBLOCK_SIZE]).expect("4096 bytes");
    let (csum_type, nodesize) = (superblock.csum_type(), superblock.nodesize.get() as usize);
    let fsid = *superblock.metadata_fsid();
    let mut copies: BTreeMap<u64, Vec<Place>> = BTreeMap::new();
    let mut supers = Vec::new();
    for (device, bytes) in bytes.iter().enumerate() {
        for (index, block) in bytes.windows(nodesize).step_by(4096).enumerate() {
            let offset = index as u64 * 4096;
            let Some(node) = Node::new(block) else {
                continue;
            };
            if SUPERBLOCK_OFFSETS.contains(&offset) {
                supers.push((device, offset));
            } else if node.header().fsid == fsid && csum_type.verify_block(block).is_ok() {
                copies
                    .entry(node.bytenr().0)
                    .or_default()
                    .push((device, offset));
            }
        }
    }
    let mut blocks: Vec<Vec<Place>> = copies.into_values().collect();
    blocks.push(supers);
    let devices = bytes
        .iter()
        .map(|bytes| MemDevice::from_bytes(bytes))
        .collect();
    Base {
        devices,
        csum_type,
        nodesize,
        blocks,
    }
}

fn apply(base: &Base, devices: &[MemDevice], edit: &[u8; EDIT_BYTES]) {
    let block = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % base.blocks.len();
    let is_super = block + 1 == base.blocks.len();
    let len = if is_super {
        SUPERBLOCK_SIZE
    } else {
        base.nodesize
    };
    let at = usize::from(u16::from_le_bytes([edit[2], edit[3]])) % len;
    let width = usize::from(edit[5] % 8 + 1).min(len - at);
    let value = &mut [0; 8];
    value[..6].copy_from_slice(&edit[6..]);
    for &(device, offset) in &base.blocks[block] {
        let mut bytes = vec![0; len];
        devices[device]
            .read_at(&mut bytes, offset)
            .expect("in range");
        for (byte, value) in bytes[at..at + width].iter_mut().zip(*value) {
            *byte = match edit[4] % 8 {
                0 => value,
                1 => *byte ^ value,
                2 => byte.wrapping_add(value),
                3 => 0,
                4 => 0xff,
                5 => byte.wrapping_add(1),
                6 => byte.wrapping_sub(1),
                _ => byte.rotate_left(1),
            };
        }
        // The highest bit keeps the checksum wrong.
        if edit[4] & 0x80 == 0 {
            base.csum_type.seal_block(&mut bytes);
        }
        devices[device].write_at(&bytes, offset).expect("in range");
    }
}

fn read_all(volume: &Volume) {
    let _ = volume.statfs();
    let _ = volume.for_each_block_group(&mut |_| {});
    let mut left = MAX_ENTRIES;
    let mut pending: Vec<FileId> = Vec::new();
    if let Ok(subvolumes) = volume.subvolumes() {
        for subvolume in subvolumes.iter().take(50) {
            let _ = volume.subvolume_path(subvolume.id);
            pending.extend(volume.root_dir(subvolume.id));
        }
    }
    pending.extend(
        volume
            .default_subvolume()
            .and_then(|id| volume.root_dir(id)),
    );
    while let Some(dir) = pending.pop() {
        let mut entries = Vec::new();
        let _ = volume.readdir(dir, 0, &mut |entry| {
            entries.push(entry);
            left = left.saturating_sub(1);
            if left == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        let _ = volume.parent(dir);
        for entry in entries {
            let _ = volume.lookup(dir, &entry.name);
            read_inode(volume, entry.id);
            if entry.kind == FileKind::Directory {
                pending.push(entry.id);
            }
        }
        if left == 0 {
            break;
        }
    }
    for tree in [
        RootId::EXTENT_TREE,
        RootId::CSUM_TREE,
        RootId::DEV_TREE,
        RootId::FREE_SPACE_TREE,
    ] {
        let Ok(tree) = volume.tree(tree) else {
            continue;
        };
        let mut cursor = tree.view.cursor();
        let mut more = cursor.seek(&Key::MIN);
        while matches!(more, Ok(true)) {
            more = cursor.advance();
        }
        let mut more = cursor.seek_floor(&Key::MAX);
        while matches!(more, Ok(true)) {
            more = cursor.retreat();
        }
    }
}

fn read_inode(volume: &Volume, id: FileId) {
    let Ok(attr) = volume.attr(id) else { return };
    let _ = volume.xattrs(id);
    let _ = volume.xattr(id, b"user.a");
    let _ = volume.readlink(id);
    let mut buf = vec![0; 9_000];
    for offset in [0, 4095, attr.size / 2, attr.size.saturating_sub(100)] {
        if let Ok(len) = volume.read(id, offset, &mut buf) {
            assert!(len <= buf.len());
            assert_eq!(
                len as u64,
                attr.size.saturating_sub(offset).min(buf.len() as u64)
            );
        }
        let _ = volume.seek_data(id, offset);
        let _ = volume.seek_hole(id, offset);
    }
}

// Unpacking the volumes takes longer than the time limit of an input.
fuzz_target!(init: { bases(); }, |input: &[u8]| {
    let Some((&which, edits)) = input.split_first() else {
        return;
    };
    let bases = bases();
    let base = &bases[usize::from(which) % bases.len()];
    let devices: Vec<MemDevice> = base.devices.clone();
    let (edits, _) = edits.as_chunks::<EDIT_BYTES>();
    for edit in edits {
        apply(base, &devices, edit);
    }
    let devices: Vec<(PathBuf, Arc<dyn BlockDevice>)> = devices
        .into_iter()
        .enumerate()
        .map(|(i, device)| {
            (
                PathBuf::from(format!("device {i}")),
                Arc::new(device) as Arc<dyn BlockDevice>,
            )
        })
        .collect();
    if let Ok(volume) = Volume::from_devices(devices, &OpenOptions::new().cache_bytes(16 << 20)) {
        read_all(&volume);
    }
});

//! A volume that is made but not written.
//!
//! Order of writing, with a flush after each step: the superblocks of what lay there go; then the rest of
//! it; then come the tree blocks; then the new superblocks, the first copy of each device last. An
//! interrupted run leaves the old volume whole, none, or the new one, and never a mixture.

use std::collections::BTreeMap;

use ubtrfs_device::{BlockDevice, Row, STRIPE_LEN, parity};
use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::{DevId, Physical};
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use ubtrfs_tree::TreeBlock;
use zerocopy::IntoBytes;

use super::chunks::{ChunkLayout, PlannedChunk, PlannedDevice};
use super::error::MkfsError;
use super::options::{Geometry, Identity, MkfsOptions, Warning};
use super::trees::Contents;
use super::{settle, superblock};

/// Zeroed at the start of a device, where most formats have their signature, and at its end.
const WIPED_BYTES: u64 = 2 << 20;

/// Everything that a new volume consists of.
#[derive(Debug)]
pub struct Plan {
    geometry: Geometry,
    layout: ChunkLayout,
    blocks: Vec<TreeBlock>,
    /// Without what differs by device and copy.
    superblock: Superblock,
    identity: Identity,
}

/// Bytes for a place on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedWrite {
    pub devid: DevId,
    pub physical: Physical,
    pub bytes: Vec<u8>,
}

impl Plan {
    /// Plans a volume on devices of these sizes, whose ids count from 1.
    pub fn new(
        options: &MkfsOptions,
        identity: &Identity,
        device_bytes: &[u64],
    ) -> Result<Plan, MkfsError> {
        let geometry = options.resolve(device_bytes.len())?;
        let layout = ChunkLayout::new(&geometry, identity, device_bytes)?;
        let contents = Contents {
            geometry: &geometry,
            identity,
            layout: &layout,
        };
        let settled = settle::settle(&contents)?;
        let superblock = superblock::superblock(&contents, &settled.placement)?;
        Ok(Plan {
            superblock,
            blocks: settled.blocks,
            geometry,
            layout,
            identity: identity.clone(),
        })
    }

    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub fn layout(&self) -> &ChunkLayout {
        &self.layout
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn warnings(&self) -> Vec<Warning> {
        self.geometry.warnings(self.layout.devices.len())
    }

    /// The bytes of all chunks of exactly these types.
    pub fn bytes_of_type(&self, types: BlockGroupFlags) -> u64 {
        let of_type =
            |chunk: &&PlannedChunk| chunk.map.flags() & BlockGroupFlags::TYPE_MASK == types;
        let chunks = self.layout.chunks.iter().filter(of_type);
        chunks.map(|chunk| chunk.map.len_bytes()).sum()
    }

    /// Every tree block at every place, parity included.
    pub fn block_writes(&self) -> Vec<PlannedWrite> {
        let mut writes = Vec::new();
        for chunk in &self.layout.chunks {
            let inside = |block: &&TreeBlock| chunk.map.contains(block.logical);
            let blocks: Vec<&TreeBlock> = self.blocks.iter().filter(inside).collect();
            match chunk.map.profile().parities() {
                0 => writes.extend(copied(chunk, &blocks)),
                _ => writes.extend(with_parity(chunk, &blocks)),
            }
        }
        writes
    }

    /// Every copy of every superblock; of each device, the first copy comes last.
    pub fn superblock_writes(&self) -> Vec<PlannedWrite> {
        let contents = Contents {
            geometry: &self.geometry,
            identity: &self.identity,
            layout: &self.layout,
        };
        let mut writes = Vec::new();
        for device in &self.layout.devices {
            for offset in superblock::copies(device) {
                let mut copy = self.superblock.clone();
                copy.dev_item = contents.dev_item(device);
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

    /// Every tree block once, children before parents.
    pub fn blocks(&self) -> &[TreeBlock] {
        &self.blocks
    }

    /// Writes the volume to its devices, in the order of the plan, after `discard`ing what they hold.
    pub fn write(&self, devices: &[&dyn BlockDevice], discard: bool) -> Result<(), MkfsError> {
        let targets = self.targets(devices)?;
        for (&devid, device) in &targets {
            wipe_superblocks(devid, *device)?;
        }
        flush(&targets)?;
        for (planned, device) in self.layout.devices.iter().zip(devices) {
            wipe_contents(planned, *device, discard)?;
        }
        flush(&targets)?;
        for write in self.block_writes() {
            put(&targets, &write)?;
        }
        flush(&targets)?;
        for write in self.superblock_writes() {
            put(&targets, &write)?;
        }
        flush(&targets)
    }

    fn targets<'d>(&self, devices: &[&'d dyn BlockDevice]) -> Result<Targets<'d>, MkfsError> {
        let planned = &self.layout.devices;
        if devices.len() != planned.len() {
            return Err(MkfsError::DeviceCount {
                devices: devices.len(),
                planned: planned.len(),
            });
        }
        let mut targets = Targets::new();
        for (&device, planned) in devices.iter().zip(planned) {
            if device.len_bytes() < planned.total_bytes {
                return Err(MkfsError::DeviceShrank {
                    devid: planned.devid,
                    found: device.len_bytes(),
                    planned: planned.total_bytes,
                });
            }
            targets.insert(planned.devid, device);
        }
        Ok(targets)
    }
}

type Targets<'d> = BTreeMap<DevId, &'d dyn BlockDevice>;

fn put(targets: &Targets<'_>, write: &PlannedWrite) -> Result<(), MkfsError> {
    let devid = write.devid;
    let device = targets.get(&devid).expect("a plan names its own devices");
    write_at(devid, *device, write.physical, &write.bytes)
}

fn write_at(
    devid: DevId,
    device: &dyn BlockDevice,
    physical: Physical,
    bytes: &[u8],
) -> Result<(), MkfsError> {
    device
        .write_at(bytes, physical.0)
        .map_err(|source| MkfsError::Write {
            devid,
            physical,
            source,
        })
}

fn flush(targets: &Targets<'_>) -> Result<(), MkfsError> {
    for (&devid, device) in targets {
        device
            .flush()
            .map_err(|source| MkfsError::Flush { devid, source })?;
    }
    Ok(())
}

fn wipe_superblocks(devid: DevId, device: &dyn BlockDevice) -> Result<(), MkfsError> {
    for offset in SUPERBLOCK_OFFSETS {
        zero(devid, device, offset, SUPERBLOCK_SIZE as u64)?;
    }
    Ok(())
}

/// Makes sure that nothing finds another format on the device.
fn wipe_contents(
    planned: &PlannedDevice,
    device: &dyn BlockDevice,
    discard: bool,
) -> Result<(), MkfsError> {
    let devid = planned.devid;
    if discard {
        // Only a hint: what cannot be discarded stays until it is overwritten.
        let _ = device.discard(0, planned.total_bytes);
    }
    zero(devid, device, 0, WIPED_BYTES)?;
    // What follows a volume smaller than its device is not ours to wipe.
    let end = device.len_bytes().saturating_sub(WIPED_BYTES);
    if planned.total_bytes > end {
        zero(devid, device, end, WIPED_BYTES)?;
    }
    Ok(())
}

/// Zeros what the device has of a range.
fn zero(devid: DevId, device: &dyn BlockDevice, from: u64, len: u64) -> Result<(), MkfsError> {
    let len = len.min(device.len_bytes().saturating_sub(from));
    match len {
        0 => Ok(()),
        _ => write_at(devid, device, Physical(from), &vec![0; len as usize]),
    }
}

fn copied(chunk: &PlannedChunk, blocks: &[&TreeBlock]) -> Vec<PlannedWrite> {
    let mut writes = Vec::new();
    for block in blocks {
        let offset = block.logical.0 - chunk.map.logical().0;
        for mirror in 1..=chunk.map.mirrors() {
            let piece = chunk.map.piece(offset, block.bytes.len() as u64, mirror);
            writes.push(PlannedWrite {
                devid: piece.devid,
                physical: piece.physical,
                bytes: block.bytes.clone(),
            });
        }
    }
    writes
}

/// Rows are written whole, so that parity holds for what no block covers as well.
fn with_parity(chunk: &PlannedChunk, blocks: &[&TreeBlock]) -> Vec<PlannedWrite> {
    let stripe_len = STRIPE_LEN as usize;
    let map = &chunk.map;
    let mut rows: BTreeMap<u64, (Row, Vec<Vec<u8>>)> = BTreeMap::new();
    for block in blocks {
        let offset = block.logical.0 - map.logical().0;
        let row = map.row(offset);
        let (_, data) = rows
            .entry(row.number)
            .or_insert_with(|| (row, vec![vec![0; stripe_len]; row.data]));
        let within = (offset % STRIPE_LEN) as usize;
        let member = &mut data[map.row_member(offset)];
        member[within..][..block.bytes.len()].copy_from_slice(&block.bytes);
    }
    let mut writes = Vec::new();
    for (row, mut members) in rows.into_values() {
        members.extend(parity(&members, row.members - row.data));
        for (member, bytes) in members.into_iter().enumerate() {
            let (devid, physical) = map.row_place(row, member, 0);
            writes.push(PlannedWrite {
                devid,
                physical,
                bytes,
            });
        }
    }
    writes
}

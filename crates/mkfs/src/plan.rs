//! A volume that is built in memory but not written yet.
//!
//! The order of writes, with a flush after each step: first the superblocks of any old volume are wiped, then other
//! signatures. Next are the tree blocks, then the new superblocks, the first copy of each device last. An interrupted
//! run leaves the complete old volume, none, or the new one, and never a mixture.

use std::collections::BTreeMap;

use ubtrfs_device::{BlockDevice, Row, STRIPE_LEN, parity};
use ubtrfs_format::superblock::Superblock;
use ubtrfs_tree::TreeBlock;

use super::chunks::{PlannedChunk, VolumeChunks};
use super::error::MkfsError;
use super::files::NoFiles;
use super::options::{Geometry, Identity, MkfsOptions};
use super::targets::{PlannedWrite, Targets};
use super::trees::Contents;
use super::{superblock, tree_placement};

/// All blocks of a new volume.
#[derive(Debug)]
pub struct Plan {
    geometry: Geometry,
    layout: VolumeChunks,
    blocks: Vec<TreeBlock>,
    /// Without the fields that differ by device and copy.
    superblock: Superblock,
    identity: Identity,
}

impl Plan {
    /// Plans a volume on devices of these sizes, with device ids from 1.
    pub fn new(
        options: &MkfsOptions,
        identity: &Identity,
        device_bytes: &[u64],
    ) -> Result<Plan, MkfsError> {
        let geometry = options.resolve(device_bytes.len())?;
        let layout = VolumeChunks::new(&geometry, identity, device_bytes)?;
        let files = NoFiles::new(identity);
        let placed =
            tree_placement::place_trees(&geometry, identity, &files, &mut |_| Ok(layout.clone()))?;
        let contents = Contents {
            geometry: &geometry,
            identity,
            layout: &layout,
            files: &files,
        };
        let mut blocks = Vec::new();
        contents.build(&placed.placement, &mut |block| {
            blocks.push(block);
            Ok(())
        })?;
        Ok(Plan {
            superblock: superblock::superblock(&contents, &placed.placement)?,
            blocks,
            geometry,
            layout,
            identity: identity.clone(),
        })
    }

    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub fn layout(&self) -> &VolumeChunks {
        &self.layout
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns all copies of all tree blocks, including parity.
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

    /// Returns all copies of all superblocks. For each device, the first copy is last.
    pub fn superblock_writes(&self) -> Vec<PlannedWrite> {
        superblock::writes(
            &self.superblock,
            &self.geometry,
            &self.identity,
            &self.layout,
        )
    }

    /// Returns every tree block once, children before parents.
    pub fn blocks(&self) -> &[TreeBlock] {
        &self.blocks
    }

    /// Writes the volume to its devices, in the order of the plan. With `discard`, the devices are discarded first.
    pub fn write(&self, devices: &[&dyn BlockDevice], discard: bool) -> Result<(), MkfsError> {
        let targets = Targets::new(&self.layout.devices, devices)?;
        targets.wipe(discard)?;
        for write in self.block_writes() {
            targets.put(&write)?;
        }
        targets.flush()?;
        for write in self.superblock_writes() {
            targets.put(&write)?;
        }
        targets.flush()
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

/// Returns whole rows, so that parity is also correct for space without blocks.
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

//! Chunks of a volume that is created with files. They are added on demand.
//!
//! Data is placed first and takes one chunk after another, each larger than the last, up to a GiB per stripe. Metadata
//! follows when its size is known. Only the last chunk ever changes. It is trimmed if there is no other free space, or
//! if the volume must be as small as possible.
//!
//! Not here: the choice of devices (`chunks`), the contents of chunks (`place`, `fill`).

use ubtrfs_device::chunk_layout::{data_stripes, max_stripes};
use ubtrfs_device::{MappedChunk, STRIPE_LEN};
use ubtrfs_format::block_group_flags::{BlockGroupFlags, BlockGroupType};
use ubtrfs_format::ids::DevId;

use super::chunks::{ChunkRequest, ChunkSize, Place, PlannedChunk, PlannedDevice, VolumeChunks};
use super::error::MkfsError;
use super::options::{Geometry, SINGLE_SYSTEM_CHUNK_BYTES};
use super::place::Cursor;

#[cfg(test)]
mod tests;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// The minimum size of a stripe.
const MIN_STRIPE_BYTES: u64 = MIB;
const MIN_DATA_CHUNK_BYTES: u64 = 8 * MIB;
const MAX_DATA_CHUNK_BYTES: u64 = 10 * GIB;
/// The maximum size of a device without a limit.
const NO_LIMIT: u64 = 1 << 62;
/// Minimum number of free nodes in a new volume. The kernel withholds 368, and reserves for the worst case of each
/// operation. With fewer than the least number, it cannot create a directory.
const SPARE_NODES: u64 = 1024;
const LEAST_SPARE_NODES: u64 = 640;
const SPARE_BYTES: u64 = 8 * MIB;

/// The amount of free space in the new volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spare {
    /// Chunks of the usual sizes.
    Usual,
    /// The minimum that a kernel needs to write to the volume at all.
    Least,
}

impl VolumeChunks {
    /// Removes the size limits of all devices.
    pub(super) fn lift_limits(&mut self) {
        for device in &mut self.devices {
            device.room_end = NO_LIMIT;
        }
    }

    pub(super) fn add_system(
        &mut self,
        geometry: &Geometry,
        spare: Spare,
    ) -> Result<(), MkfsError> {
        match spare {
            Spare::Usual => self.add_first(geometry, BlockGroupFlags::SYSTEM),
            Spare::Least => {
                let bytes = SINGLE_SYSTEM_CHUNK_BYTES;
                self.add_sized(geometry, BlockGroupFlags::SYSTEM, bytes)
            }
        }
    }

    /// Adds the next data chunk.
    pub(super) fn add_data(&mut self, geometry: &Geometry, spare: Spare) -> Result<(), MkfsError> {
        let types = geometry.data_types();
        let before = self.bytes_of_type(types);
        if before == 0 && spare == Spare::Usual && self.add_first(geometry, types).is_ok() {
            return Ok(());
        }
        let stripes = data_stripes(geometry.profile_of(types), self.devices.len()) as u64;
        let max = (stripes.max(1) * GIB).min(MAX_DATA_CHUNK_BYTES);
        // The unused rest of the last chunk is wasted if it cannot be trimmed: with DUP, the second copy is after it.
        let share = match spare {
            Spare::Usual => before / 4,
            Spare::Least => before / 16,
        };
        self.add_sized(geometry, types, share.clamp(MIN_DATA_CHUNK_BYTES, max))
    }

    /// Returns the layout with enough metadata chunks for `needed` bytes of tree blocks, where `room` bytes are already
    /// available.
    pub(super) fn with_metadata(
        &self,
        geometry: &Geometry,
        needed: u64,
        room: u64,
        spare: Spare,
    ) -> Result<VolumeChunks, MkfsError> {
        let types = geometry.metadata_types();
        let nodesize = u64::from(geometry.nodesize);
        let wanted = match spare {
            Spare::Usual => needed + (needed / 8).max(SPARE_NODES * nodesize).max(SPARE_BYTES),
            Spare::Least => needed + SPARE_BYTES.max(LEAST_SPARE_NODES * nodesize),
        };
        let mut layout = self.clone();
        let mut room = room;
        let no_chunk_yet = layout.bytes_of_type(types) == 0;
        if no_chunk_yet && spare == Spare::Usual && layout.add_first(geometry, types).is_ok() {
            room += layout.last_capacity();
        }
        while room < wanted {
            match layout.add_sized(geometry, types, (wanted - room).min(GIB)) {
                Ok(()) => room += layout.last_capacity(),
                Err(MkfsError::NoRoomForChunk { .. }) if room >= needed => break,
                Err(error) => return Err(error),
            }
        }
        Ok(layout)
    }

    /// Trims the last chunk to its first `used` bytes, or removes it if that is 0.
    pub(super) fn trim_last(&mut self, geometry: &Geometry, used: u64) -> Result<(), MkfsError> {
        let Some(mut chunk) = self.chunks.pop() else {
            return Ok(());
        };
        let count = chunk.stripes.len();
        let data_stripes = data_stripes(chunk.map.profile(), count) as u64;
        let before = chunk.map.stripe_bytes();
        let after = used
            .div_ceil(data_stripes)
            .next_multiple_of(STRIPE_LEN)
            .min(before);
        for device in &mut self.devices {
            let own = chunk.stripes.iter();
            let own = own.filter(|stripe| stripe.devid.get() == device.devid.0);
            let starts: Vec<u64> = own.map(|stripe| stripe.offset.get()).collect();
            // A device may have two stripes of the chunk (DUP). The second one ends later.
            let kept_end = match after {
                0 => starts.iter().min().copied(),
                _ => starts.iter().max().map(|start| start + after),
            };
            device.next = kept_end.unwrap_or(device.next);
            device.bytes_used -= (before - after) * starts.len() as u64;
        }
        if after > 0 {
            chunk.head.length = (after * data_stripes).into();
            let (logical, mixed) = (chunk.map.logical(), geometry.features.is_mixed());
            let sectorsize = geometry.sectorsize;
            let (head, stripes) = (&chunk.head, &chunk.stripes);
            chunk.map = MappedChunk::check(logical, head, stripes, sectorsize, mixed)?;
            self.chunks.push(chunk);
        }
        Ok(())
    }

    /// Returns the bytes for tree blocks after the end of the data. Zero unless they share chunks.
    pub(super) fn room_from(&self, geometry: &Geometry, data_end: Place) -> u64 {
        let types = geometry.metadata_types();
        let is_mixed = geometry.features.is_mixed();
        let mut cursor = Cursor::new(types, data_end);
        let nodesize = u64::from(geometry.nodesize);
        let mut room = 0;
        while is_mixed && let Some((_, len)) = cursor.take(self, nodesize, u64::MAX) {
            room += len - len % nodesize;
        }
        room
    }

    pub(super) fn device(&self, devid: DevId) -> &PlannedDevice {
        let mut devices = self.devices.iter();
        let device = devices.find(|device| device.devid == devid);
        device.expect("a layout names its own devices")
    }

    /// Returns the minimum total size of the devices: up to the ends of their chunks.
    pub(super) fn reached_bytes(&self) -> u64 {
        self.devices.iter().map(|device| device.next).sum()
    }

    fn add_sized(
        &mut self,
        geometry: &Geometry,
        types: BlockGroupFlags,
        bytes: u64,
    ) -> Result<(), MkfsError> {
        let request = ChunkRequest {
            size: ChunkSize::Chunk(bytes),
            min_stripe_bytes: MIN_STRIPE_BYTES,
            max_stripes: max_stripes(BlockGroupType::of(types), geometry.nodesize as usize),
        };
        self.add_chunk(geometry, types, geometry.profile_of(types), &request)
    }

    fn last_capacity(&self) -> u64 {
        self.chunks.last().map_or(0, PlannedChunk::capacity)
    }
}

impl PlannedChunk {
    /// Returns the allocatable bytes.
    pub(super) fn capacity(&self) -> u64 {
        let lost = self.superblock_ranges();
        let lost: u64 = lost.iter().map(|range| range.end - range.start).sum();
        self.map.len_bytes() - lost
    }
}

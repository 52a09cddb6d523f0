//! The first chunks of a volume: their sizes and devices.
//!
//! Sizes follow mkfs.btrfs: a chunk without a profile is small and fixed; others take a share of the volume between a
//! minimum and a maximum. Places differ: chunks are packed from the first free byte, without the holes that the
//! temporary chunks of mkfs.btrfs leave. Devices with the most free space are preferred, as in the kernel.
//!
//! Invariants
//! - NEWVOLUME-1: no chunk is in the first MiB of a device, and no two overlap.
//! - NEWVOLUME-2: starts and lengths are multiples of the stripe length, on devices and in logical space, so no tree
//!   block crosses a stripe.
//!
//! Not here: chunks for files (`chunk_growth`), the mapping of a chunk ([`MappedChunk`]), its contents (`place`). The
//! kernel uses other sizes for chunks of a mounted volume (`ubtrfs_device::chunk_layout`).

use std::ops::Range;

use ubtrfs_device::chunk_layout::{
    chunk_head, chunk_key, data_stripes, max_stripes, superblock_ranges,
};
use ubtrfs_device::{MappedChunk, STRIPE_LEN};
use ubtrfs_format::block_group_flags::{BlockGroupFlags, BlockGroupType, Profile};
use ubtrfs_format::ids::{DevId, Logical};
use ubtrfs_format::item::{Chunk, Stripe};
use ubtrfs_format::key::Key;
use ubtrfs_format::uuid::Uuid;
use zerocopy::IntoBytes;

use super::error::MkfsError;
use super::options::{Geometry, Identity, RESERVED_BYTES, SINGLE_SYSTEM_CHUNK_BYTES};

#[cfg(test)]
mod tests;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Volumes above this size get larger metadata chunks.
const LARGE_VOLUME_BYTES: u64 = 50 * GIB;

/// A device of the new volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedDevice {
    pub devid: DevId,
    pub uuid: Uuid,
    /// A multiple of the sector size.
    pub total_bytes: u64,
    /// Total bytes in chunks.
    pub bytes_used: u64,
    /// The start of the free space.
    pub(super) next: u64,
    /// The end of the free space: the end of the device, unless it may grow.
    pub(super) room_end: u64,
}

impl PlannedDevice {
    fn free_bytes(&self) -> u64 {
        self.room_end.saturating_sub(self.next)
    }
}

/// A chunk of the new volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedChunk {
    pub head: Chunk,
    pub stripes: Vec<Stripe>,
    pub map: MappedChunk,
}

impl PlannedChunk {
    /// Returns the chunk's item in the chunk tree.
    pub(super) fn item(&self) -> Vec<u8> {
        [self.head.as_bytes(), self.stripes.as_bytes()].concat()
    }

    pub(super) fn key(&self) -> Key {
        chunk_key(self.map.logical())
    }

    pub fn superblock_ranges(&self) -> Vec<Range<u64>> {
        superblock_ranges(&self.map)
    }
}

/// The position of a byte in a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The index of the chunk in the layout.
    pub(super) chunk: usize,
    pub(super) offset: u64,
}

/// The devices and chunks of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeChunks {
    pub devices: Vec<PlannedDevice>,
    /// In logical order.
    pub chunks: Vec<PlannedChunk>,
    /// The total size of all devices.
    pub total_bytes: u64,
}

/// The requested size of a new chunk.
pub(super) struct ChunkRequest {
    pub(super) size: ChunkSize,
    pub(super) min_stripe_bytes: u64,
    pub(super) max_stripes: usize,
}

pub(super) enum ChunkSize {
    /// The size of each stripe, and a maximum for the chunk. The maximum is divided by the number of all stripes,
    /// including copies. mkfs.btrfs does the same, so DUP chunks get half of it.
    Stripe {
        stripe_bytes: u64,
        max_chunk_bytes: u64,
    },
    /// The minimum size of the chunk.
    Chunk(u64),
}

impl VolumeChunks {
    /// Returns the total bytes of all chunks with exactly these types.
    pub fn bytes_of_type(&self, types: BlockGroupFlags) -> u64 {
        let of_type =
            |chunk: &&PlannedChunk| chunk.map.flags() & BlockGroupFlags::TYPE_MASK == types;
        let chunks = self.chunks.iter().filter(of_type);
        chunks.map(|chunk| chunk.map.len_bytes()).sum()
    }

    /// Returns the logical address of a place.
    pub(super) fn logical(&self, place: Place) -> Logical {
        Logical(self.chunks[place.chunk].map.logical().0 + place.offset)
    }

    /// Returns the index of the chunk that contains an address. There must be one.
    pub(super) fn chunk_at(&self, logical: Logical) -> usize {
        let chunks = &self.chunks;
        chunks.partition_point(|chunk| chunk.map.logical() <= logical) - 1
    }

    /// Plans the chunks of an empty volume: system, metadata and data, or system and mixed.
    pub fn new(
        geometry: &Geometry,
        identity: &Identity,
        device_bytes: &[u64],
    ) -> Result<VolumeChunks, MkfsError> {
        let mut layout = VolumeChunks::without_chunks(geometry, identity, device_bytes)?;
        layout.add_first(geometry, BlockGroupFlags::SYSTEM)?;
        layout.add_first(geometry, geometry.metadata_types())?;
        if !geometry.features.is_mixed() {
            layout.add_first(geometry, BlockGroupFlags::DATA)?;
        }
        Ok(layout)
    }

    /// Adds the first chunk of its types, with the size that mkfs.btrfs uses.
    pub(super) fn add_first(
        &mut self,
        geometry: &Geometry,
        types: BlockGroupFlags,
    ) -> Result<(), MkfsError> {
        let profile = geometry.profile_of(types);
        let request = self.first_request(geometry, types, profile);
        self.add_chunk(geometry, types, profile, &request)
    }

    pub(super) fn without_chunks(
        geometry: &Geometry,
        identity: &Identity,
        device_bytes: &[u64],
    ) -> Result<VolumeChunks, MkfsError> {
        let identities = identity.device_uuids.len();
        if identities != device_bytes.len() {
            return Err(MkfsError::DeviceUuids {
                identities,
                devices: device_bytes.len(),
            });
        }
        let min_bytes = geometry.min_device_bytes();
        let sectorsize = u64::from(geometry.sectorsize);
        let mut total_bytes = 0u64;
        let mut devices = Vec::with_capacity(identities);
        for (index, (&len_bytes, &uuid)) in
            device_bytes.iter().zip(&identity.device_uuids).enumerate()
        {
            if len_bytes < min_bytes {
                return Err(MkfsError::DeviceTooSmall {
                    index,
                    len_bytes,
                    min_bytes,
                });
            }
            let len_bytes = len_bytes - len_bytes % sectorsize;
            total_bytes = total_bytes
                .checked_add(len_bytes)
                .filter(|&total| total <= i64::MAX as u64)
                .ok_or(MkfsError::TooLarge)?;
            devices.push(PlannedDevice {
                devid: DevId(index as u64 + 1),
                uuid,
                total_bytes: len_bytes,
                bytes_used: 0,
                // NEWVOLUME-1: each stripe begins at the end of the previous one.
                next: RESERVED_BYTES,
                room_end: len_bytes,
            });
        }
        Ok(VolumeChunks {
            devices,
            chunks: Vec::new(),
            total_bytes,
        })
    }

    /// Replaces the UUIDs of the devices, also in existing chunks.
    pub(super) fn set_device_uuids(&mut self, identity: &Identity) {
        for (device, &uuid) in self.devices.iter_mut().zip(&identity.device_uuids) {
            device.uuid = uuid;
        }
        for chunk in &mut self.chunks {
            for stripe in &mut chunk.stripes {
                let of_stripe = |device: &&PlannedDevice| device.devid.0 == stripe.devid.get();
                if let Some(device) = self.devices.iter().find(of_stripe) {
                    stripe.dev_uuid = device.uuid;
                }
            }
            chunk.map.set_device_uuids(&chunk.stripes);
        }
    }

    pub(super) fn add_chunk(
        &mut self,
        geometry: &Geometry,
        types: BlockGroupFlags,
        profile: Profile,
        request: &ChunkRequest,
    ) -> Result<(), MkfsError> {
        let flags = types | BlockGroupFlags::of(profile);
        let (chosen, stripe_bytes) = self
            .choose(profile, request)
            .ok_or(MkfsError::NoRoomForChunk { flags })?;
        let mut stripes = Vec::with_capacity(chosen.len());
        for index in chosen {
            let device = &mut self.devices[index];
            stripes.push(Stripe {
                devid: device.devid.0.into(),
                offset: device.next.into(),
                dev_uuid: device.uuid,
            });
            device.next += stripe_bytes;
            device.bytes_used += stripe_bytes;
        }
        let (sectorsize, count) = (geometry.sectorsize, stripes.len());
        let head = chunk_head(flags, profile, stripe_bytes, count, sectorsize);
        let logical = self
            .chunks
            .last()
            .map_or(Logical(RESERVED_BYTES), |last| last.map.end());
        let mixed = geometry.features.is_mixed();
        let map = MappedChunk::check(logical, &head, &stripes, geometry.sectorsize, mixed)?;
        self.chunks.push(PlannedChunk { head, stripes, map });
        Ok(())
    }

    fn first_request(
        &self,
        geometry: &Geometry,
        types: BlockGroupFlags,
        profile: Profile,
    ) -> ChunkRequest {
        let system = types.contains(BlockGroupFlags::SYSTEM);
        let (stripe_bytes, min_stripe_bytes, max_chunk_bytes) = if profile == Profile::Single {
            if system {
                (
                    SINGLE_SYSTEM_CHUNK_BYTES,
                    SINGLE_SYSTEM_CHUNK_BYTES,
                    u64::MAX,
                )
            } else {
                (8 * MIB, MIB, 32 * MIB)
            }
        } else if system {
            (8 * MIB, MIB, 16 * MIB)
        } else if types.contains(BlockGroupFlags::DATA) {
            (GIB, 64 * MIB, 10 * GIB)
        } else if self.total_bytes > LARGE_VOLUME_BYTES {
            (GIB, 32 * MIB, GIB)
        } else {
            (256 * MIB, 32 * MIB, 256 * MIB)
        };
        ChunkRequest {
            size: ChunkSize::Stripe {
                stripe_bytes,
                max_chunk_bytes: max_chunk_bytes.min(self.total_bytes / 10),
            },
            min_stripe_bytes,
            max_stripes: max_stripes(BlockGroupType::of(types), geometry.nodesize as usize),
        }
    }

    /// Chooses the devices (by index; DUP has one twice) and the size of the chunk's stripes on them.
    fn choose(&self, profile: Profile, request: &ChunkRequest) -> Option<(Vec<usize>, u64)> {
        let on_one = if profile == Profile::Dup { 2 } else { 1 };
        let mut by_room: Vec<usize> = (0..self.devices.len()).collect();
        // Stable: for equal free space, lower devids first.
        by_room.sort_by_key(|&index| std::cmp::Reverse(self.devices[index].free_bytes()));
        let wanted = if profile.is_striped() {
            by_room.len().min(request.max_stripes)
        } else {
            profile.min_devices()
        };
        let even = |count: usize| match profile {
            Profile::Raid10 => count & !1,
            _ => count,
        };
        // Prefer more devices. Leave out those with the least space if a stripe does not fit on them.
        let mut count = even(wanted);
        while count >= profile.min_devices().max(1) {
            let stripe_bytes = request.stripe_bytes(profile, count * on_one);
            let fullest = self.devices[*by_room.get(count - 1)?].free_bytes();
            if fullest / on_one as u64 >= stripe_bytes {
                let chosen = &by_room[..count];
                let mut chosen: Vec<usize> = chosen
                    .iter()
                    .flat_map(|&index| vec![index; on_one])
                    .collect();
                chosen.sort_unstable();
                return Some((chosen, stripe_bytes));
            }
            if count == profile.min_devices() {
                return self.squeeze(&by_room[..count], on_one, request);
            }
            count = even(count - 1);
        }
        None
    }

    /// Returns a stripe size that fits on the fullest device of `chosen`, unless it is too small for a chunk.
    fn squeeze(
        &self,
        chosen: &[usize],
        on_one: usize,
        request: &ChunkRequest,
    ) -> Option<(Vec<usize>, u64)> {
        let fullest = chosen
            .iter()
            .map(|&index| self.devices[index].free_bytes())
            .min()?;
        let stripe_bytes = round_to_stripe(fullest / on_one as u64);
        if stripe_bytes < request.min_stripe_bytes {
            return None;
        }
        let mut chosen: Vec<usize> = chosen
            .iter()
            .flat_map(|&index| vec![index; on_one])
            .collect();
        chosen.sort_unstable();
        Some((chosen, stripe_bytes))
    }
}

impl ChunkRequest {
    /// Returns the size of each stripe in a chunk of `stripes` stripes.
    fn stripe_bytes(&self, profile: Profile, stripes: usize) -> u64 {
        let data_stripes = data_stripes(profile, stripes) as u64;
        let stripe_bytes = match self.size {
            ChunkSize::Stripe {
                stripe_bytes,
                max_chunk_bytes,
            } if stripe_bytes.saturating_mul(data_stripes) > max_chunk_bytes => {
                round_to_stripe(max_chunk_bytes / stripes as u64)
            }
            ChunkSize::Stripe { stripe_bytes, .. } => stripe_bytes,
            ChunkSize::Chunk(bytes) => bytes.div_ceil(data_stripes).next_multiple_of(STRIPE_LEN),
        };
        stripe_bytes.max(self.min_stripe_bytes)
    }
}

fn round_to_stripe(bytes: u64) -> u64 {
    bytes - bytes % STRIPE_LEN
}

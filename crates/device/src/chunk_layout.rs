//! Size and placement of new chunks.
//!
//! Sizes are the same as in Linux 6.18. A chunk uses as many devices as its profile allows, preferring those with the
//! most free space. Its stripes are limited so that it has at most a tenth of the volume, rounded up to 16 MiB a
//! stripe. In contrast to Linux, a stripe has at least 1 MiB.
//!
//! Not here: the decision to create a chunk, allocation inside of chunks, and the first chunks of a new volume.

mod chunk_items;
mod device_space;
mod superblock_ranges;
#[cfg(test)]
mod tests;

use ubtrfs_format::block_group_flags::{BlockGroupFlags, BlockGroupType, Profile};
use ubtrfs_format::item::{Chunk, Stripe};
use ubtrfs_format::key::DiskKey;
use ubtrfs_format::node::{ITEM_HEAD_SIZE, leaf_data_size};
use ubtrfs_format::superblock::SYS_CHUNK_ARRAY_SIZE;

use crate::STRIPE_LEN;

pub use chunk_items::{ChunkItem, ChunkItems, chunk_head, chunk_key, data_stripes, dev_extent};
pub use device_space::{DeviceHoles, DeviceSpace, RESERVED_BYTES};
pub use superblock_ranges::superblock_ranges;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Volumes above this size get larger metadata chunks.
const LARGE_VOLUME_BYTES: u64 = 50 * GIB;
const MAX_STRIPE_BYTES: u64 = GIB;
/// Alignment of stripes that are shortened because of the limit on the chunk's size.
const STRIPE_ROUND_BYTES: u64 = 16 * MIB;
/// Minimum free space on a device for a stripe.
const MIN_STRIPE_BYTES: u64 = MIB;
/// Approximate number of steps in a forecast.
const FORECAST_STEPS: u64 = 256;

/// Size limits of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct ChunkLimits {
    stripe_bytes: u64,
    chunk_bytes: u64,
    stripes: usize,
}

impl ChunkLimits {
    /// Returns the limits for a volume of `total_bytes`.
    pub fn new(flags: BlockGroupFlags, total_bytes: u64, nodesize: usize) -> ChunkLimits {
        let chunk_bytes = if flags.contains(BlockGroupFlags::DATA) {
            10 * GIB
        } else if BlockGroupType::of(flags) == BlockGroupType::System {
            32 * MIB
        } else if total_bytes > LARGE_VOLUME_BYTES {
            GIB
        } else {
            256 * MIB
        };
        ChunkLimits {
            stripe_bytes: chunk_bytes.min(MAX_STRIPE_BYTES),
            chunk_bytes: chunk_bytes.min(total_bytes / 10),
            stripes: max_stripes(BlockGroupType::of(flags), nodesize),
        }
    }
}

/// Returns the maximum number of stripes of a chunk. Its item must fit in a leaf. The superblock's array must hold a
/// system chunk and, during its replacement, a second one with a single stripe.
pub fn max_stripes(kind: BlockGroupType, nodesize: usize) -> usize {
    let chunk_bytes = size_of::<Chunk>();
    let (room, others) = match kind {
        BlockGroupType::System => (
            SYS_CHUNK_ARRAY_SIZE - 2 * (size_of::<DiskKey>() + chunk_bytes),
            1,
        ),
        _ => (leaf_data_size(nodesize) - ITEM_HEAD_SIZE - chunk_bytes, 0),
    };
    room / size_of::<Stripe>() - others
}

/// The placement of a new chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkLayout {
    pub stripe_bytes: u64,
    /// Device (by index) and start of each stripe.
    pub stripes: Vec<(usize, u64)>,
}

impl ChunkLayout {
    /// Chooses the placement of a new chunk. Returns None if there is not enough space.
    pub fn choose(
        devices: &[DeviceHoles],
        profile: Profile,
        limits: &ChunkLimits,
    ) -> Option<ChunkLayout> {
        let on_one = if profile == Profile::Dup { 2 } else { 1 };
        let want = limits.stripe_bytes.saturating_mul(on_one);
        let mut rooms: Vec<Room> = devices
            .iter()
            .enumerate()
            .filter_map(|(device, holes)| {
                let (start, len) = holes.find(want)?;
                (len >= MIN_STRIPE_BYTES * on_one).then(|| Room {
                    device,
                    start,
                    len: len.min(want),
                    total: holes.free_bytes(),
                })
            })
            .collect();
        // The sort is stable: among equals the lower devid is first.
        rooms.sort_by_key(|room| std::cmp::Reverse((room.len, room.total)));
        let copies = profile.min_devices().max(1);
        let count = match profile {
            Profile::Raid10 => rooms.len().min(limits.stripes) / 2 * 2,
            striped if striped.is_striped() => rooms.len().min(limits.stripes),
            _ => copies,
        };
        if count < copies || count > rooms.len() {
            return None;
        }
        rooms.truncate(count);
        let stripes = count * on_one as usize;
        // All stripes of a chunk have the same length, so the smallest hole decides.
        let mut stripe_bytes = rooms.last()?.len / on_one;
        let data_stripes = data_stripes(profile, stripes) as u64;
        // Shorten all stripes if the chunk would be too large.
        if stripe_bytes.saturating_mul(data_stripes) > limits.chunk_bytes {
            let cut = (limits.chunk_bytes / data_stripes).next_multiple_of(STRIPE_ROUND_BYTES);
            stripe_bytes = stripe_bytes.min(cut);
        }
        stripe_bytes -= stripe_bytes % STRIPE_LEN;
        let places = rooms.iter().flat_map(|room| {
            (0..on_one).map(|number| (room.device, room.start + number * stripe_bytes))
        });
        Some(ChunkLayout {
            stripe_bytes,
            stripes: places.collect(),
        })
    }

    pub fn take(&self, devices: &mut [DeviceHoles]) {
        for &(device, start) in &self.stripes {
            devices[device].take(start, self.stripe_bytes);
        }
    }

    pub fn release(&self, devices: &mut [DeviceHoles]) {
        for &(device, start) in &self.stripes {
            devices[device].release(start, self.stripe_bytes);
        }
    }
}

/// The largest usable hole of a device.
#[derive(Debug)]
struct Room {
    device: usize,
    start: u64,
    len: u64,
    total: u64,
}

/// Returns how many bytes of new chunks of a profile still fit, by simulating their allocation. If hundreds of chunks
/// would fit, the simulation uses larger chunks. The result is exact for a single device, and within a few chunks
/// otherwise.
pub fn forecast(devices: &[DeviceHoles], profile: Profile, limits: &ChunkLimits) -> u64 {
    if profile.parities() > 0 {
        return 0;
    }
    let mut devices = devices.to_vec();
    let superblocks: u64 = devices.iter().map(DeviceHoles::superblocks).sum();
    let left: u64 = devices.iter().map(DeviceHoles::free_bytes).sum();
    let usual = limits
        .stripe_bytes
        .min(limits.chunk_bytes)
        .max(MIN_STRIPE_BYTES);
    let scale = (left / (FORECAST_STEPS * usual)).max(1);
    let limits = ChunkLimits {
        stripe_bytes: limits.stripe_bytes.saturating_mul(scale),
        chunk_bytes: limits.chunk_bytes.saturating_mul(scale),
        stripes: limits.stripes,
    };
    let mut bytes: u64 = 0;
    // Allows for extra steps, because the holes' remainders give smaller chunks.
    for _ in 0..4 * FORECAST_STEPS {
        let Some(layout) = ChunkLayout::choose(&devices, profile, &limits) else {
            break;
        };
        layout.take(&mut devices);
        let stripes = data_stripes(profile, layout.stripes.len()) as u64;
        bytes = bytes.saturating_add(layout.stripe_bytes.saturating_mul(stripes));
    }
    bytes.saturating_sub(superblocks * STRIPE_LEN)
}

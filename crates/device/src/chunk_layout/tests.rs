//! New chunks: valid on any devices, and of the kernel's sizes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use ubtrfs_format::ids::{DevId, Logical, Physical};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_sim::kernel::{self, KernelVolume, MkfsSpec, Profile as SimProfile};
use ubtrfs_sim::{Rng, seed};

use super::*;
use crate::MappedChunk;

const SECTOR: u64 = 4096;
const NODE: usize = 16 << 10;

fn device(devid: u64, total_bytes: u64, extents: &[(u64, u64)]) -> DeviceSpace {
    let extents = extents.iter().map(|&(start, len)| (Physical(start), len));
    DeviceSpace {
        devid: DevId(devid),
        uuid: Uuid([devid as u8; 16]),
        total_bytes,
        extents: extents.collect(),
    }
}

fn empty(device_bytes: u64, devices: usize) -> Vec<DeviceHoles> {
    let devices = (1..=devices as u64).map(|devid| device(devid, device_bytes, &[]));
    devices.map(DeviceHoles::new).collect()
}

/// Creates devices with random extents, some of them unaligned.
fn random_devices(rng: &mut Rng, count: u64) -> Vec<DeviceSpace> {
    let random_device = |devid| {
        let sectors = (64 + rng.below(3000)) * MIB / SECTOR + rng.below(100);
        let mut extents = Vec::new();
        let mut at = rng.below(2000);
        while !rng.one_in(6) {
            let len = 1 + rng.below(sectors / 4);
            if at + len > sectors {
                break;
            }
            extents.push((at * SECTOR, len * SECTOR));
            at += len + rng.below(sectors / 3) * rng.below(2);
        }
        extents.reverse();
        device(devid, sectors * SECTOR, &extents)
    };
    (1..=count).map(random_device).collect()
}

fn flags(kind: BlockGroupType, profile: Profile) -> BlockGroupFlags {
    BlockGroupFlags::of(profile)
        | match kind {
            BlockGroupType::Data => BlockGroupFlags::DATA,
            BlockGroupType::Metadata => BlockGroupFlags::METADATA,
            BlockGroupType::System => BlockGroupFlags::SYSTEM,
        }
}

fn mapped(layout: &ChunkLayout, flags: BlockGroupFlags, devices: &[DeviceHoles]) -> MappedChunk {
    let stripes: Vec<Stripe> = layout
        .stripes
        .iter()
        .map(|&(device, start)| Stripe {
            devid: devices[device].devid.0.into(),
            offset: start.into(),
            dev_uuid: devices[device].uuid,
        })
        .collect();
    let profile = flags.profile().unwrap();
    let count = stripes.len();
    let head = chunk_head(flags, profile, layout.stripe_bytes, count, SECTOR as u32);
    MappedChunk::check(Logical(MIB), &head, &stripes, SECTOR as u32, false).unwrap()
}

/// HOLE-1
#[test]
fn chunks_of_every_profile_are_sound_until_the_devices_are_full() {
    let mut rng = Rng::new(seed("chunks_of_every_profile_are_sound"));
    for profile in Profile::ALL {
        if profile.parities() > 0 {
            continue;
        }
        for _ in 0..12 {
            let count = profile.min_devices() as u64 + rng.below(4);
            let spaces = random_devices(&mut rng, count);
            let mut taken: BTreeMap<(usize, u64), u64> = BTreeMap::new();
            for (index, space) in spaces.iter().enumerate() {
                let extents = space.extents.iter();
                taken.extend(extents.map(|(start, len)| ((index, start.0), start.0 + len)));
            }
            let total: u64 = spaces.iter().map(|space| space.total_bytes).sum();
            let ends: Vec<u64> = spaces.iter().map(|space| space.total_bytes).collect();
            let mut devices: Vec<DeviceHoles> = spaces.into_iter().map(DeviceHoles::new).collect();
            let kind = BlockGroupType::ALL[rng.below(3) as usize];
            let flags = flags(kind, profile);
            let limits = ChunkLimits::new(flags, total, NODE);
            let foreseen = forecast(&devices, profile, &limits);
            let mut made = 0;
            while let Some(layout) = ChunkLayout::choose(&devices, profile, &limits) {
                let chunk = mapped(&layout, flags, &devices);
                assert_eq!(chunk.stripe_bytes(), layout.stripe_bytes);
                assert_eq!(layout.stripe_bytes % STRIPE_LEN, 0);
                assert!((MIN_STRIPE_BYTES..=MAX_STRIPE_BYTES).contains(&layout.stripe_bytes));
                let rounding = chunk.data_stripes() as u64 * STRIPE_ROUND_BYTES;
                assert!(chunk.len_bytes() <= limits.chunk_bytes + rounding);
                let on: BTreeSet<usize> = layout.stripes.iter().map(|place| place.0).collect();
                let copies = if profile == Profile::Dup { 2 } else { 1 };
                assert_eq!(on.len() * copies, layout.stripes.len());
                for &(device, start) in &layout.stripes {
                    let end = start + layout.stripe_bytes;
                    assert!(start >= RESERVED_BYTES && end <= ends[device]);
                    assert_eq!(start % STRIPE_LEN, 0);
                    let before = taken.range(..(device, end)).next_back();
                    let clear = |(&(other, _), &other_end): (&(usize, u64), &u64)| {
                        other != device || other_end <= start
                    };
                    assert!(before.is_none_or(clear));
                    taken.insert((device, start), end);
                }
                layout.take(&mut devices);
                made += chunk.len_bytes();
            }
            let superblocks = 3 * count * STRIPE_LEN;
            assert!(
                foreseen <= made && made <= foreseen + superblocks,
                "{profile:?}"
            );
        }
    }
}

/// HOLE-1: adjacent holes are merged.
#[test]
fn space_released_is_the_hole_that_it_was() {
    let mut rng = Rng::new(seed("what_is_released_is_the_hole"));
    for profile in [
        Profile::Single,
        Profile::Dup,
        Profile::Raid0,
        Profile::Raid10,
    ] {
        let spaces = random_devices(&mut rng, 4);
        let mut devices: Vec<DeviceHoles> = spaces.into_iter().map(DeviceHoles::new).collect();
        let before = format!("{devices:?}");
        let limits = ChunkLimits::new(flags(BlockGroupType::Metadata, profile), 5 * GIB, NODE);
        let mut layouts = Vec::new();
        while let Some(layout) = ChunkLayout::choose(&devices, profile, &limits) {
            layout.take(&mut devices);
            layouts.push(layout);
        }
        while !layouts.is_empty() {
            let layout = layouts.swap_remove(rng.below(layouts.len() as u64) as usize);
            layout.release(&mut devices);
        }
        assert_eq!(format!("{devices:?}"), before);
    }
}

#[test]
fn devices_with_most_room_come_first_and_full_ones_are_left_out() {
    let sizes = [3, 9, 5, 0];
    let devices: Vec<DeviceHoles> = sizes
        .iter()
        .zip(1..)
        .map(|(&size, devid)| DeviceHoles::new(device(devid, size * GIB + MIB + MIB / 2, &[])))
        .collect();
    let on = |profile| {
        let limits = ChunkLimits::new(flags(BlockGroupType::Data, profile), 17 * GIB, NODE);
        let layout = ChunkLayout::choose(&devices, profile, &limits)?;
        Some(
            layout
                .stripes
                .iter()
                .map(|place| place.0)
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(on(Profile::Single), Some(vec![1]));
    assert_eq!(on(Profile::Dup), Some(vec![1, 1]));
    assert_eq!(on(Profile::Raid1), Some(vec![1, 2]));
    assert_eq!(on(Profile::Raid0), Some(vec![1, 2, 0]));
    assert_eq!(on(Profile::Raid10), Some(vec![1, 2]));
    assert_eq!(on(Profile::Raid1c3), Some(vec![1, 2, 0]));
    assert_eq!(on(Profile::Raid1c4), None);
}

fn sim(profile: Profile) -> SimProfile {
    let name = profile.name().to_lowercase();
    let mut all = SimProfile::ALL.iter();
    *all.find(|profile| profile.name() == name).unwrap()
}

/// Asserts that our chunks have the same sizes as the kernel's. A balance makes the kernel move everything to new
/// chunks.
fn assert_sizes_of_the_kernel(data: Profile, metadata: Profile, devices: usize, bytes: u64) {
    let spec = MkfsSpec::new()
        .devices(devices)
        .device_bytes(bytes)
        .data(sim(data))
        .metadata(sim(metadata));
    let volume = KernelVolume::make(&spec).unwrap();
    let old: BTreeSet<u64> = logicals(&volume);
    let mount = volume.mount("").unwrap();
    fs::write(mount.path().join("file"), vec![7; 1 << 20]).unwrap();
    mount.sync().unwrap();
    let balance = Command::new("btrfs")
        .args(["balance", "start", "--full-balance"])
        .arg(mount.path())
        .output()
        .unwrap();
    assert!(balance.status.success(), "{balance:?}");
    mount.unmount().unwrap();
    let mut compared = BTreeSet::new();
    for chunk in kernel::chunks(volume.devices()).unwrap() {
        if old.contains(&chunk.logical) {
            continue;
        }
        let kind = BlockGroupType::ALL
            .into_iter()
            .find(|kind| chunk.has_flag(&kind.name().to_uppercase()))
            .unwrap();
        let profile = if kind == BlockGroupType::Data {
            data
        } else {
            metadata
        };
        let total = devices as u64 * bytes;
        let limits = ChunkLimits::new(flags(kind, profile), total, NODE);
        let layout = ChunkLayout::choose(&empty(bytes, devices), profile, &limits).unwrap();
        let sizes = (chunk.stripe_bytes(), chunk.stripes.len());
        let ours = (layout.stripe_bytes, layout.stripes.len());
        assert_eq!(ours, sizes, "{kind:?} {profile:?} {devices} of {bytes}");
        compared.insert(kind);
    }
    assert_eq!(compared.len(), 3, "{data:?} {metadata:?}");
}

fn logicals(volume: &KernelVolume) -> BTreeSet<u64> {
    let chunks = kernel::chunks(volume.devices()).unwrap();
    chunks.iter().map(|chunk| chunk.logical).collect()
}

#[test]
fn chunks_are_as_large_as_those_of_the_kernel() {
    if !kernel::or_skip("chunks_are_as_large_as_those_of_the_kernel") {
        return;
    }
    for (data, metadata, devices, bytes) in [
        (Profile::Single, Profile::Dup, 1, 900 * MIB),
        (Profile::Single, Profile::Single, 1, 3 * GIB),
        (Profile::Dup, Profile::Dup, 1, 20 * GIB),
        (Profile::Single, Profile::Dup, 1, 60 * GIB),
        (Profile::Raid0, Profile::Raid1, 3, GIB),
        (Profile::Raid10, Profile::Raid1c3, 4, 2 * GIB),
        (Profile::Raid1, Profile::Raid10, 5, 11 * GIB),
        (Profile::Raid1c4, Profile::Raid0, 4, 30 * GIB),
    ] {
        assert_sizes_of_the_kernel(data, metadata, devices, bytes);
    }
}

/// HOLE-2
#[test]
fn closed_end_of_a_device_is_no_hole_until_it_is_opened() {
    const MIB: u64 = 1 << 20;
    let used = [(10 * MIB, 10 * MIB)];
    let mut device = DeviceHoles::new(device(1, 100 * MIB + 5, &used));
    let holes = |device: &DeviceHoles| device.holes().collect::<Vec<_>>();
    let all = [MIB..10 * MIB, 20 * MIB..100 * MIB];
    assert_eq!(holes(&device), all);
    device.close_from(50 * MIB);
    assert_eq!(holes(&device), [MIB..10 * MIB, 20 * MIB..50 * MIB]);
    // Space of a removed chunk, on both sides of the limit and beyond it.
    device.take(20 * MIB, 30 * MIB);
    device.release(20 * MIB, 30 * MIB);
    device.open();
    assert_eq!(holes(&device), all);
    assert_eq!(device.free_bytes(), 89 * MIB);

    device.close_from(50 * MIB);
    device.resize(50 * MIB);
    assert_eq!(holes(&device), [MIB..10 * MIB, 20 * MIB..50 * MIB]);
    device.resize(70 * MIB);
    assert_eq!(holes(&device), [MIB..10 * MIB, 20 * MIB..70 * MIB]);
    device.close_from(0);
    assert_eq!(holes(&device), []);
    assert_eq!(device.free_bytes(), 0);
}

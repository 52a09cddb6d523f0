//! Sizes of first chunks, compared with mkfs.btrfs 6.14, and the rules for their places.

use std::collections::BTreeMap;

use ubtrfs_format::item::Timespec;
use ubtrfs_format::superblock::SUPERBLOCK_OFFSETS;

use super::*;
use crate::MkfsOptions;

const TIB: u64 = 1 << 40;

fn layout(options: &MkfsOptions, device_bytes: &[u64]) -> Result<VolumeChunks, MkfsError> {
    let created = Timespec {
        sec: 0.into(),
        nsec: 0.into(),
    };
    let identity = Identity::random(device_bytes.len(), created);
    let geometry = options.resolve(device_bytes.len())?;
    VolumeChunks::new(&geometry, &identity, device_bytes)
}

fn with_profiles(data: Profile, metadata: Profile) -> MkfsOptions {
    MkfsOptions {
        data: Some(data),
        metadata: Some(metadata),
        ..MkfsOptions::default()
    }
}

/// Returns the sizes of the system, metadata and data chunk.
fn sizes(data: Profile, metadata: Profile, device_bytes: u64, devices: usize) -> [u64; 3] {
    let options = with_profiles(data, metadata);
    let layout = layout(&options, &vec![device_bytes; devices]).unwrap();
    let sizes: Vec<u64> = layout
        .chunks
        .iter()
        .map(|chunk| chunk.map.len_bytes())
        .collect();
    sizes.try_into().unwrap()
}

#[test]
fn chunks_are_as_large_as_those_of_mkfs_btrfs() {
    use Profile::*;
    for (data, metadata, device_bytes, devices, expected) in [
        (Single, Dup, 109 * MIB, 1, [8 * MIB, 32 * MIB, 8 * MIB]),
        (Single, Dup, 256 * MIB, 1, [8 * MIB, 32 * MIB, 8 * MIB]),
        (Single, Dup, GIB, 1, [8 * MIB, 53_673_984, 8 * MIB]),
        (Single, Dup, 10 * GIB, 1, [8 * MIB, 256 * MIB, 8 * MIB]),
        (Single, Dup, 49 * GIB, 1, [8 * MIB, 256 * MIB, 8 * MIB]),
        (Single, Dup, 51 * GIB, 1, [8 * MIB, GIB, 8 * MIB]),
        (Single, Dup, 4 * TIB, 1, [8 * MIB, GIB, 8 * MIB]),
        (Single, Single, GIB, 1, [4 * MIB, 8 * MIB, 8 * MIB]),
        (Dup, Dup, GIB, 1, [8 * MIB, 53_673_984, 64 * MIB]),
        (Dup, Dup, 10 * GIB, 1, [8 * MIB, 256 * MIB, GIB]),
        (Raid0, Raid0, GIB, 1, [8 * MIB, 107_347_968, 107_347_968]),
        (Raid0, Raid0, 200 * MIB, 1, [8 * MIB, 32 * MIB, 64 * MIB]),
        (Single, Raid1, GIB, 2, [8 * MIB, 107_347_968, 8 * MIB]),
        (Raid10, Raid10, GIB, 2, [8 * MIB, 107_347_968, 107_347_968]),
        (Raid10, Raid10, GIB, 4, [16 * MIB, 128 * MIB, 214_695_936]),
        (Raid1c3, Raid1c4, GIB, 4, [8 * MIB, 256 * MIB, 143_130_624]),
        (Raid5, Raid1c3, 100 * GIB, 3, [8 * MIB, GIB, 2 * GIB]),
    ] {
        assert_eq!(
            sizes(data, metadata, device_bytes, devices),
            expected,
            "{data:?} {metadata:?} on {devices} of {device_bytes}"
        );
    }
}

#[test]
fn every_profile_starts_on_devices_of_the_smallest_size() {
    for data in Profile::ALL {
        for metadata in Profile::ALL {
            let options = with_profiles(data, metadata);
            let devices = data.min_devices().max(metadata.min_devices());
            let least = options.resolve(devices).unwrap().min_device_bytes();
            layout(&options, &vec![least; devices]).unwrap();
            let error = layout(&options, &vec![least - 1; devices]).unwrap_err();
            assert!(matches!(error, MkfsError::DeviceTooSmall { index: 0, .. }));
        }
    }
}

/// Checks NEWVOLUME-1 and NEWVOLUME-2, and the sums of the devices.
fn assert_sound(layout: &VolumeChunks) {
    let mut on_device: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    let mut logical_end = 0;
    for chunk in &layout.chunks {
        let stripe_bytes = chunk.map.stripe_bytes();
        assert!(chunk.map.logical().0 >= logical_end);
        logical_end = chunk.map.end().0;
        assert_eq!(chunk.map.logical().0 % STRIPE_LEN, 0);
        assert_eq!(chunk.map.len_bytes() % STRIPE_LEN, 0);
        for stripe in &chunk.stripes {
            assert_eq!(stripe.offset.get() % STRIPE_LEN, 0);
            let extents = on_device.entry(stripe.devid.get()).or_default();
            extents.push((stripe.offset.get(), stripe_bytes));
        }
    }
    for device in &layout.devices {
        let mut extents = on_device.remove(&device.devid.0).unwrap_or_default();
        extents.sort_unstable();
        let mut end = RESERVED_BYTES;
        for (start, len) in &extents {
            assert!(*start >= end);
            end = start + len;
        }
        assert!(end <= device.total_bytes);
        let used: u64 = extents.iter().map(|(_, len)| len).sum();
        assert_eq!(used, device.bytes_used);
    }
}

#[test]
fn chunks_never_overlap_and_keep_clear_of_the_first_mib() {
    for data in Profile::ALL {
        for metadata in Profile::ALL {
            for devices in 4..=7 {
                let sizes: Vec<u64> = (0..devices)
                    .map(|n| (700 + 400 * n) * MIB + 12345)
                    .collect();
                assert_sound(&layout(&with_profiles(data, metadata), &sizes).unwrap());
            }
        }
    }
}

#[test]
fn copies_go_to_different_devices_those_with_most_room_first() {
    let options = with_profiles(Profile::Raid1, Profile::Raid1c3);
    let layout = layout(&options, &[GIB, 9 * GIB, 5 * GIB, 7 * GIB]).unwrap();
    let devids = |chunk: &PlannedChunk| -> Vec<u64> {
        chunk
            .stripes
            .iter()
            .map(|stripe| stripe.devid.get())
            .collect()
    };
    let all: Vec<_> = layout.chunks.iter().map(devids).collect();
    assert_eq!(all, [vec![2, 3, 4], vec![2, 3, 4], vec![2, 4]]);
}

#[test]
fn striped_chunk_leaves_out_a_device_without_room() {
    let options = with_profiles(Profile::Raid0, Profile::Raid1);
    let sizes = [150 * MIB, 20 * GIB, 20 * GIB];
    let layout = layout(&options, &sizes).unwrap();
    let data = layout.chunks.last().unwrap();
    assert_eq!(data.stripes.len(), 2);
}

#[test]
fn superblock_copies_make_ranges_unusable() {
    // Data is after 1 MiB + 8 MiB + 256 MiB of metadata: only metadata covers the copy at 64 MiB.
    let layout = layout(
        &with_profiles(Profile::Single, Profile::Raid1),
        &[10 * GIB; 2],
    )
    .unwrap();
    let ranges: Vec<_> = (0..3)
        .flat_map(|chunk| {
            let ranges = layout.chunks[chunk].superblock_ranges();
            ranges.into_iter().map(move |range| (chunk, range))
        })
        .collect();
    let metadata = &layout.chunks[1];
    let from = metadata.map.logical().0 + 64 * MIB - metadata.stripes[0].offset.get();
    assert_eq!(ranges, [(1, from..from + STRIPE_LEN)]);
}

#[test]
fn unusable_ranges_are_what_maps_to_superblocks() {
    for profile in Profile::ALL {
        let options = with_profiles(profile, profile);
        let layout = layout(&options, &[3 * GIB; 5]).unwrap();
        for chunk in &layout.chunks {
            let ranges = chunk.superblock_ranges();
            let piece_is_unusable = |offset: u64| {
                let logical = chunk.map.logical().0 + offset;
                ranges.iter().any(|range| range.contains(&logical))
            };
            for offset in (0..chunk.map.len_bytes()).step_by(STRIPE_LEN as usize) {
                let hits = (1..=chunk.map.mirrors()).any(|mirror| {
                    let at = chunk.map.piece(offset, STRIPE_LEN, mirror).physical.0;
                    SUPERBLOCK_OFFSETS.contains(&at)
                });
                // With parity, the whole row is lost, regardless of the member with the copy.
                let row_hits = chunk.map.has_parity() && {
                    let row = chunk.map.row(offset);
                    (0..row.members).any(|member| {
                        let (_, at) = chunk.map.row_place(row, member, 0);
                        SUPERBLOCK_OFFSETS.contains(&at.0)
                    })
                };
                assert_eq!(
                    piece_is_unusable(offset),
                    hits || row_hits,
                    "{profile:?} {offset}"
                );
            }
        }
    }
}

#[test]
fn stripes_of_a_system_chunk_fit_the_superblocks_array() {
    let options = with_profiles(Profile::Single, Profile::Raid0);
    let layout = layout(&options, &[GIB; 200]).unwrap();
    let counts: Vec<_> = layout
        .chunks
        .iter()
        .map(|chunk| chunk.stripes.len())
        .collect();
    assert_eq!(counts, [58, 200, 1]);
    assert_sound(&layout);
}

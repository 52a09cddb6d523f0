//! Layouts that grow with their contents.

use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::item::Timespec;

use super::*;
use crate::options::{Identity, MkfsOptions};

fn geometry(profile: Profile, devices: usize) -> Geometry {
    let options = MkfsOptions {
        data: Some(profile),
        metadata: Some(profile),
        ..MkfsOptions::default()
    };
    options.resolve(devices).unwrap()
}

fn start(geometry: &Geometry, device_bytes: &[u64]) -> VolumeChunks {
    let created = Timespec {
        sec: 0.into(),
        nsec: 0.into(),
    };
    let identity = Identity::random(device_bytes.len(), created);
    let mut layout = VolumeChunks::without_chunks(geometry, &identity, device_bytes).unwrap();
    layout.add_system(geometry, Spare::Usual).unwrap();
    layout
}

/// Lists the profiles allowed for volumes with files.
fn profiles() -> impl Iterator<Item = Profile> {
    Profile::ALL
        .into_iter()
        .filter(|profile| profile.parities() == 0)
}

#[test]
fn terabytes_of_data_take_a_thousand_chunks_or_so() {
    let geometry = geometry(Profile::Single, 1);
    let mut layout = start(&geometry, &[1 << 30]);
    layout.lift_limits();
    while layout.bytes_of_type(BlockGroupFlags::DATA) < 1 << 40 {
        layout.add_data(&geometry, Spare::Usual).unwrap();
    }
    let chunks = layout.chunks.len();
    assert!((1024..1100).contains(&chunks), "{chunks}");
}

#[test]
fn chunks_take_all_of_a_device_and_no_more() {
    for profile in profiles() {
        let devices = profile.min_devices();
        let geometry = geometry(profile, devices);
        let mut layout = start(&geometry, &vec![3 << 30; devices]);
        while layout.add_data(&geometry, Spare::Usual).is_ok() {}
        for device in &layout.devices {
            assert!(device.next <= device.total_bytes, "{profile:?}");
            let left = device.total_bytes - device.next;
            assert!(left < 2 * MIN_STRIPE_BYTES, "{profile:?}: {left}");
        }
    }
}

#[test]
fn metadata_gets_what_it_needs_wherever_there_is_room() {
    for profile in profiles() {
        for needed in [0, 1 << 20, 100 << 20, 3 << 30, 20 << 30] {
            for spare in [Spare::Usual, Spare::Least] {
                let devices = profile.min_devices() + 1;
                let geometry = geometry(profile, devices);
                let mut layout = start(&geometry, &vec![1 << 30; devices]);
                layout.lift_limits();
                let layout = layout.with_metadata(&geometry, needed, 0, spare).unwrap();
                let chunks = layout.chunks.iter();
                let metadata =
                    chunks.filter(|chunk| chunk.map.flags().contains(BlockGroupFlags::METADATA));
                let room: u64 = metadata.map(PlannedChunk::capacity).sum();
                assert!(
                    room >= needed.max(SPARE_BYTES),
                    "{profile:?} {needed} {spare:?}"
                );
            }
        }
    }
}

#[test]
fn metadata_that_fits_only_just_is_not_refused() {
    let geometry = geometry(Profile::Single, 1);
    let layout = start(&geometry, &[1 << 30]);
    let free = (1 << 30) - layout.reached_bytes();
    // There is a superblock copy at 64 MiB.
    let most = free - STRIPE_LEN;
    for spare in [Spare::Usual, Spare::Least] {
        layout.with_metadata(&geometry, most, 0, spare).unwrap();
        let more = layout.with_metadata(&geometry, most + STRIPE_LEN, 0, spare);
        assert!(matches!(more, Err(MkfsError::NoRoomForChunk { .. })));
    }
}

#[test]
fn last_chunk_is_cut_to_what_is_used_of_it() {
    for profile in profiles() {
        let devices = profile.min_devices();
        let geometry = geometry(profile, devices);
        let before = start(&geometry, &vec![10 << 30; devices]);
        let mut whole = before.clone();
        whole.add_data(&geometry, Spare::Usual).unwrap();
        let len = whole.chunks[1].map.len_bytes();
        for used in [0, 1, 70_000, len / 2, len - 1, len] {
            let mut layout = whole.clone();
            layout.trim_last(&geometry, used).unwrap();
            if used == 0 {
                assert_eq!(layout, before);
                continue;
            }
            let cut = &layout.chunks[1];
            let stripes = data_stripes(profile, cut.stripes.len()) as u64;
            assert!((used..used + stripes * STRIPE_LEN).contains(&cut.map.len_bytes()));
            let of_devices: u64 = layout.devices.iter().map(|device| device.bytes_used).sum();
            let of_system: u64 = before.devices.iter().map(|device| device.bytes_used).sum();
            let of_chunk = cut.map.stripe_bytes() * cut.stripes.len() as u64;
            assert_eq!(of_devices, of_system + of_chunk, "{profile:?}");
            assert_eq!(layout == whole, used > len - stripes * STRIPE_LEN);
        }
    }
}

//! Arbitrary bytes in a superblock or a chunk give an error or a pool, and reads through it terminate.

use super::*;
use crate::chunk_map::STRIPE_LEN;
use crate::memory::MemDevice;
use crate::superblock::write_superblocks;
use proptest::prelude::*;
use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::item::{Chunk, Stripe};
use zerocopy::{FromBytes, IntoBytes};

/// Generates edge cases for arithmetic on disk values.
fn edge() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0u32..64, -2i64..3).prop_map(|(shift, add)| (1u64 << shift).wrapping_add(add as u64)),
        (0u64..40).prop_map(|n| n * STRIPE_LEN),
        Just(DATA_START.0),
        Just(u64::MAX),
    ]
}

/// Generates numbers like [`edge`], but mostly aligned like chunks and stripes.
fn aligned_edge() -> impl Strategy<Value = u64> {
    let aligned = edge().prop_map(|value| value >> 2 & !4095);
    prop_oneof![9 => aligned, 1 => edge()]
}

fn device_one() -> MemDevice {
    let device = MemDevice::new(1 << 20);
    write_superblocks(&device, Path::new("x"), &superblock(1, 1)).unwrap();
    device
}

fn touch(pool: &Pool, logical: Logical) {
    let mut buf = [0; 9000];
    let _ = pool.read_checked(logical, &mut buf, 4096, &mut |_, _| false);
    for mirror in 0..6 {
        let _ = pool.read_mirror(logical, &mut buf, mirror);
    }
}

proptest! {
    #[test]
    fn mutated_superblock_never_panics(
        edits in prop::collection::vec((32usize..4096, any::<u8>()), 1..6),
        wide in prop::collection::vec((32usize..4088, edge()), 0..3),
        logical in edge(),
    ) {
        let mut sb = superblock(1, 1);
        let bytes = sb.as_mut_bytes();
        for (at, value) in wide {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        for (at, value) in edits {
            bytes[at] = value;
        }
        // A known checksum type, so that the checksum can be valid and the parser is reached.
        sb.csum_type = 0.into();
        let device = MemDevice::new(1 << 20);
        write_superblocks(&device, Path::new("x"), &sb).unwrap();
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        if let Ok(pool) = Pool::from_devices(vec![("x".into(), device)], &degraded()) {
            let _ = pool.check_devices();
            touch(&pool, Logical(logical));
            touch(&pool, Logical(1 << 20));
        }
    }

    #[test]
    fn any_chunk_is_refused_or_readable(
        logical in edge(),
        length in aligned_edge(),
        profile in 0u32..12,
        random in prop::option::weighted(0.1, any::<[u8; 48]>()),
        places in prop::collection::vec(aligned_edge(), 1..9),
        within in edge(),
    ) {
        let device: Arc<dyn BlockDevice> = Arc::new(device_one());
        let pool = Pool::from_devices(vec![("x".into(), device)], &degraded()).unwrap();
        let flags = BlockGroupFlags::DATA.bits() | if profile > 2 { 1 << profile } else { 0 };
        let mut chunk = disk_chunk(length, BlockGroupFlags::from_bits_retain(flags), places.len() as u16);
        if let Some(random) = random {
            chunk = Chunk::read_from_bytes(&random).unwrap();
        }
        let stripes: Vec<Stripe> = (1u64..)
            .zip(&places)
            .map(|(devid, &offset)| Stripe {
                devid: devid.into(),
                offset: offset.into(),
                dev_uuid: device_uuid(devid),
            })
            .collect();
        let logical = Logical(logical & !4095);
        if pool.add_chunk(logical, &chunk, &stripes).is_ok() {
            let _ = pool.check_devices();
            let length = chunk.length.get();
            for offset in [0, within % length, length - 1] {
                touch(&pool, Logical(logical.0 + offset));
            }
        }
    }
}

//! Items, totals and free space of the devices of small volumes.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::{Access, BlockDevice, MemDevice, PoolOptions};
use ubtrfs_format::block_group_flags::BlockGroupFlags;
use zerocopy::{FromBytes, FromZeros};

use super::*;
use crate::roots::test_roots;
use crate::space::test_volume::{GIB, TestVolume, profiles, used_extents};

fn mirrored(devices: Vec<Arc<dyn BlockDevice>>) -> TestVolume {
    TestVolume::new_on(&profiles(Profile::Raid1, Profile::Raid1), devices)
}

fn new_devices() -> Vec<Arc<dyn BlockDevice>> {
    let device = |bytes| Arc::new(MemDevice::new(bytes)) as Arc<dyn BlockDevice>;
    vec![device(GIB), device(2 * GIB)]
}

fn used_bytes(pool: &Pool) -> Vec<u64> {
    let items = pool.dev_items();
    items.iter().map(|item| item.bytes_used.get()).collect()
}

/// DEVICE-SET-2
#[test]
fn items_of_a_chunk_change_in_the_set_and_in_the_pool() {
    let pool = mirrored(new_devices()).pool;
    let mut set = DeviceSet::new(&pool, &used_extents(&pool));
    let chunk = pool.chunk_map().all().last().cloned().unwrap();
    let items = ChunkItems::new(&chunk, 4096, pool.superblock().fsid);
    let before = used_bytes(&pool);

    let added = set.change_used(&pool, &items, ChunkChange::Added).unwrap();
    let keys: Vec<u64> = added.iter().map(|(key, _)| key.offset).collect();
    assert_eq!(keys, [1, 2]);
    let stripe = chunk.stripe_bytes();
    assert_eq!(used_bytes(&pool), [before[0] + stripe, before[1] + stripe]);
    for ((_, bytes), used) in added.iter().zip(used_bytes(&pool)) {
        let item = DevItem::read_from_bytes(bytes).unwrap();
        assert_eq!(item.bytes_used.get(), used);
    }

    let removed = set
        .change_used(&pool, &items, ChunkChange::Removed)
        .unwrap();
    assert_eq!(removed.len(), 2);
    assert_eq!(used_bytes(&pool), before);
}

/// DEVICE-SET-3
#[test]
fn totals_of_the_superblock_are_sums_over_the_devices() {
    let pool = mirrored(new_devices()).pool;
    let set = DeviceSet::new(&pool, &used_extents(&pool));
    let mut sb = Superblock::new_zeroed();
    set.write_totals(&mut sb);
    assert_eq!((sb.num_devices.get(), sb.total_bytes.get()), (2, 3 * GIB));
}

#[test]
fn missing_device_counts_and_gets_no_chunk() {
    let devices = new_devices();
    mirrored(devices.clone());
    let named = vec![(PathBuf::from("dev0"), devices[0].clone())];
    let options = PoolOptions::new().access(Access::Write).degraded(true);
    let roots = test_roots::open(Pool::from_devices(named, &options).unwrap());
    let pool = roots.pool();

    let mut set = DeviceSet::new(pool, &used_extents(pool));
    assert_eq!(set.usable(), [DevId(1)]);
    assert_eq!(set.usable_bytes(), GIB);
    let mut sb = Superblock::new_zeroed();
    set.write_totals(&mut sb);
    assert_eq!((sb.num_devices.get(), sb.total_bytes.get()), (2, 3 * GIB));
    let limits = ChunkLimits::new(BlockGroupFlags::DATA, GIB, 16 << 10);
    assert_eq!(set.take(Profile::Raid1, &limits), None);
}

/// DEVICE-SET-1
#[test]
fn space_that_is_taken_and_freed_is_whole_again_and_no_item_changes() {
    let pool = mirrored(new_devices()).pool;
    let items_before = used_bytes(&pool);
    let mut set = DeviceSet::new(&pool, &used_extents(&pool));
    let free = |set: &DeviceSet| -> Vec<Range<u64>> {
        let devices = set.usable().into_iter();
        devices.flat_map(|devid| set.holes(devid)).collect()
    };
    let before = free(&set);
    let limits = ChunkLimits::new(BlockGroupFlags::DATA, GIB, 16 << 10);

    let layout = set.take(Profile::Raid1, &limits).unwrap();
    assert_ne!(free(&set), before);
    set.release(&layout);
    assert_eq!(free(&set), before);

    let layout = set.take(Profile::Raid1, &limits).unwrap();
    for stripe in set.stripes(&layout) {
        set.free(
            DevId(stripe.devid.get()),
            stripe.offset.get(),
            layout.stripe_bytes,
        );
    }
    assert_eq!(free(&set), before);
    assert_eq!(used_bytes(&pool), items_before);
}

//! Guarantees of allocation, pinning and reservation, on volumes in memory.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_sim::{Rng, seed};

use super::alloc::BlockKind;
use super::test_volume::*;
use super::*;

impl Space {
    /// Returns the bytes that `allocate_block` could still allocate for metadata: the free space of the groups plus the
    /// unallocated space. Only data reservations in mixed groups are subtracted.
    fn metadata_room(&self) -> u64 {
        let info = self.info(BlockGroupType::Metadata);
        let data = info.reserved_data.load(Ordering::SeqCst);
        let free_bytes = info.free_bytes().saturating_add(info.unallocated_bytes());
        free_bytes.saturating_sub(data)
    }
}

fn blocks(volume: &TestVolume, kind: BlockKind, count: u64) -> Vec<u64> {
    let block = |_| volume.space.allocate_block(kind, NOW).unwrap().0;
    (0..count).map(block).collect()
}

#[test]
fn blocks_of_a_commit_lie_side_by_side() {
    let volume = TestVolume::single(10 * GIB);
    for kind in [BlockKind::Metadata, BlockKind::System] {
        let blocks = blocks(&volume, kind, 40);
        assert!(blocks.windows(2).all(|pair| pair[0] + NODE == pair[1]));
        let group = volume.space.find(Logical(blocks[0])).unwrap();
        assert_eq!(group.flags().type_name().to_lowercase(), kind_name(kind));
    }
}

fn kind_name(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Metadata => "metadata",
        BlockKind::System => "system",
    }
}

#[test]
fn data_continues_at_the_hint_and_behind_the_last() {
    let volume = TestVolume::single(10 * GIB);
    let space = &volume.space;
    let (first, len) = volume.data(MIB, MIB).unwrap();
    assert_eq!(len, MIB);
    let (second, _) = volume.data(64 << 10, SECTOR).unwrap();
    assert_eq!(second, first + MIB);
    // There is room after the first extent again.
    space.release(Logical(second), 64 << 10);
    space.reserve_data(MIB).unwrap();
    let hint = Some(Logical(first + MIB));
    let third = space.allocate_data(MIB, SECTOR, hint, NOW).unwrap();
    assert_eq!(third, (Logical(first + MIB), MIB));
}

#[test]
fn all_that_is_allocated_is_disjoint_and_in_groups_of_its_type() {
    let mut rng = Rng::new(seed("all_that_is_allocated_is_disjoint"));
    for options in [profiles(Profile::Single, Profile::Dup), mixed()] {
        let volume = TestVolume::new(&options, &[300 * MIB]);
        let space = &volume.space;
        let nodesize = u64::from(space.params.nodesize);
        let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
        for _ in 0..3000 {
            let allocated = if rng.one_in(3) {
                let block = space.allocate_block(BlockKind::Metadata, NOW);
                block.map(|start| (start.0, nodesize, BlockGroupFlags::METADATA))
            } else {
                let want = (1 + rng.below(100)) * SECTOR;
                let data = volume.data(want, SECTOR);
                data.map(|(start, len)| (start, len, BlockGroupFlags::DATA))
            };
            let Ok((start, len, flags)) = allocated else {
                let back: Vec<_> = taken.iter().map(|(&start, &len)| (start, len)).collect();
                for (start, len) in back {
                    if rng.one_in(2) {
                        taken.remove(&start);
                        space.release(Logical(start), len);
                    }
                }
                continue;
            };
            let group = space.find(Logical(start)).unwrap();
            assert!(group.flags().contains(flags) && start + len <= group.end().0);
            for range in superblock_ranges(&volume.pool.chunk_map().find(group.start()).unwrap()) {
                assert!(start + len <= range.start || range.end <= start);
            }
            let before = taken.range(..start + len).next_back();
            assert!(before.is_none_or(|(other, len)| other + len <= start));
            taken.insert(start, len);
        }
    }
}

#[test]
fn everything_is_given_out_and_then_no_space_is_left() {
    for (data, metadata, devices) in [
        (Profile::Single, Profile::Dup, 1),
        (Profile::Raid1, Profile::Raid1c3, 3),
        (Profile::Raid0, Profile::Raid10, 4),
    ] {
        let volume = TestVolume::new(&profiles(data, metadata), &vec![400 * MIB; devices]);
        let mut bytes = 0;
        let error = loop {
            match volume.data(8 * MIB, SECTOR) {
                Ok((_, len)) => bytes += len,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, SpaceError::NoSpace { .. }), "{error}");
        // All space is reserved, except for remainders too small for a chunk.
        let totals = volume.totals(BlockGroupType::Data);
        assert!(
            totals.free_bytes < 8 * MIB && totals.unallocated_bytes == 0,
            "{totals:?}"
        );
        assert!(bytes > devices as u64 * 100 * MIB, "{bytes}");
        assert_eq!(totals.reserved, 0);
        assert!(volume.space.reserve_data(totals.free_bytes).is_ok());
        assert!(volume.space.reserve_data(SECTOR).is_err());
    }
}

#[test]
fn reserved_space_can_be_allocated() {
    let mut rng = Rng::new(seed("reserved_space_can_be_allocated"));
    for options in [profiles(Profile::Single, Profile::Single), mixed()] {
        let volume = TestVolume::new(&options, &[200 * MIB]);
        let space = &volume.space;
        let nodesize = u64::from(space.params.nodesize);
        let metadata = space.metadata_room() / 2 / nodesize * nodesize;
        assert!(space.reserve_metadata(metadata));
        let mut data = 0;
        loop {
            let bytes = (1 + rng.below(2000)) * SECTOR;
            match space.reserve_data(bytes) {
                Ok(()) => data += bytes,
                Err(_) => break,
            }
        }
        let mut blocks = metadata / nodesize;
        while data > 0 || blocks > 0 {
            if data > 0 && rng.one_in(2) {
                let want = data.min((1 + rng.below(500)) * SECTOR);
                data -= space.allocate_data(want, SECTOR, None, NOW).unwrap().1;
            } else if blocks > 0 {
                space.allocate_block(BlockKind::Metadata, NOW).unwrap();
                blocks -= 1;
            }
        }
    }
}

/// SPACE-INFO-1
#[test]
fn free_bytes_of_metadata_can_be_allocated() {
    for (metadata, devices) in [
        (Profile::Single, 1),
        (Profile::Dup, 1),
        (Profile::Raid1, 3),
        (Profile::Raid10, 5),
    ] {
        let volume = TestVolume::new(
            &profiles(Profile::Single, metadata),
            &vec![300 * MIB; devices],
        );
        let free_bytes = volume.space.metadata_room();
        let mut had = 0;
        while volume
            .space
            .allocate_block(BlockKind::Metadata, NOW)
            .is_ok()
        {
            had += NODE;
        }
        assert_eq!(volume.space.metadata_room(), 0);
        let ratio = had as f64 / free_bytes as f64;
        assert!(
            (1.0..1.1).contains(&ratio),
            "{metadata:?}: {had} of {free_bytes}"
        );
    }
}

// GROUP-1 for pinned space.
#[test]
fn pinned_space_comes_back_when_it_is_unpinned() {
    let volume = TestVolume::single(120 * MIB);
    let space = &volume.space;
    let free_bytes = space.metadata_room();
    let taken = blocks(&volume, BlockKind::Metadata, 300);
    for block in taken.iter().rev() {
        space.pin(Logical(*block), NODE);
    }
    let pinned = space.take_pinned();
    let bytes: u64 = pinned.0.iter().map(|range| range.end - range.start).sum();
    assert_eq!(bytes, 300 * NODE);
    assert!(space.take_pinned().0.is_empty());
    assert_eq!(volume.totals(BlockGroupType::Metadata).pinned, 300 * NODE);
    assert_eq!(space.metadata_room(), free_bytes - 300 * NODE);
    for _ in 0..100 {
        let block = space.allocate_block(BlockKind::Metadata, NOW).unwrap().0;
        assert!(!taken.contains(&block));
        space.release(Logical(block), NODE);
    }
    space.unpin(pinned);
    assert_eq!(volume.totals(BlockGroupType::Metadata).pinned, 0);
    assert_eq!(space.metadata_room(), free_bytes);
}

#[test]
fn a_group_is_loaded_when_it_is_first_needed_and_sized_before() {
    let volume = TestVolume::single(10 * GIB);
    assert_eq!(volume.source.loads.load(Ordering::Relaxed), 0);
    let before = volume.totals(BlockGroupType::Metadata).free_bytes;
    blocks(&volume, BlockKind::Metadata, 1);
    assert_eq!(volume.source.loads.load(Ordering::Relaxed), 1);
    assert_eq!(
        volume.totals(BlockGroupType::Metadata).free_bytes,
        before - NODE
    );
}

// GROUP-3
#[test]
fn a_group_that_cannot_be_loaded_is_left_alone() {
    let volume = TestVolume::single(10 * GIB);
    let broken = volume.group(BlockGroupType::Metadata);
    volume.source.broken.lock().insert(broken.start());
    let block = volume
        .space
        .allocate_block(BlockKind::Metadata, NOW)
        .unwrap();
    assert!(!broken.contains(block));
    assert_eq!(broken.free_bytes(), 0);
}

#[test]
fn group_that_the_next_transaction_began_is_taken_over_by_a_commit() {
    let volume = TestVolume::new(&mixed(), &[10 * GIB]);
    let space = &volume.space;
    let later = Transid(NOW.0 + 1);
    volume.group(BlockGroupType::Metadata).set_read_only();
    space.reserve_data(2 * MIB).unwrap();
    let running = || space.allocate_data(MIB, MIB, None, later).unwrap().0;
    let group = space.find(running()).unwrap();
    assert_eq!(group.created(), Some(later));
    assert!(space.take_new_chunks(NOW).is_empty());
    let block = space.allocate_block(BlockKind::Metadata, NOW).unwrap();
    assert!(group.contains(block) && group.is_of(NOW));
    let taken = space.take_new_chunks(NOW);
    assert!(taken.iter().any(|chunk| chunk.logical == group.start()));
    assert!(group.contains(running()));
    assert!(space.take_new_chunks(later).is_empty());
}

#[test]
fn a_chunk_made_for_a_reservation_is_claimed_by_its_first_user() {
    let volume = TestVolume::single(10 * GIB);
    let space = &volume.space;
    space.reserve_data(20 * MIB).unwrap();
    assert_eq!(space.groups().len(), 4);
    assert!(space.take_new_chunks(Transid(100)).is_empty());
    let later = Transid(NOW.0 + 5);
    while space.take_new_chunks(later).is_empty() {
        space.allocate_data(MIB, MIB, None, later).unwrap();
    }
    assert_eq!(space.groups()[3].created(), Some(later));
}

#[test]
fn new_chunks_have_all_their_items() {
    let volume = TestVolume::new(&profiles(Profile::Raid0, Profile::Raid1), &[GIB; 3]);
    let space = &volume.space;
    volume.group(BlockGroupType::Data).set_read_only();
    let (start, _) = volume.data(MIB, MIB).unwrap();
    let new = space.take_new_chunks(NOW);
    let [new] = &new[..] else { panic!("{new:?}") };
    assert_eq!(new.logical.0, start);
    let group = space.find(new.logical).unwrap();
    assert_eq!((group.len_bytes(), group.flags()), (new.len, new.flags));
    let (chunk, stripes, rest) = ubtrfs_format::item::Chunk::split(&new.chunk.bytes).unwrap();
    assert!(rest.is_empty() && stripes == new.stripes && stripes.len() == 3);
    assert_eq!(chunk.length.get(), new.len);
    // The pool accepts it as the chunk that it already has.
    volume.pool.add_chunk(new.logical, chunk, stripes).unwrap();
    let stripe_bytes = new.len / 3;
    for (stripe, item) in stripes.iter().zip(&new.dev_extents) {
        let key = (item.key.objectid, item.key.offset);
        assert_eq!(key, (stripe.devid.get(), stripe.offset.get()));
        assert_eq!(item.bytes.len(), 48);
    }
    assert!(
        new.device_bytes
            .iter()
            .all(|(_, bytes)| *bytes == stripe_bytes)
    );
    assert_eq!(new.device_bytes.len(), 3);
}

#[test]
fn an_empty_group_can_go_and_its_place_is_used_again() {
    let volume = TestVolume::single(2 * GIB);
    let space = &volume.space;
    let unallocated = volume.totals(BlockGroupType::Data).unallocated_bytes;
    let first = volume.group(BlockGroupType::Data);
    assert!(matches!(
        space.remove_group(first.start()),
        Err(SpaceError::InUse { .. })
    ));
    space.reserve_data(200 * MIB).unwrap();
    let (start, len) = space.allocate_data(16 * MIB, 16 * MIB, None, NOW).unwrap();
    let group = space.find(start).unwrap();
    let in_use = |result| matches!(result, Err(SpaceError::InUse { .. }));
    assert!(in_use(space.remove_group(group.start())));
    space.pin(start, len);
    space.release_data(200 * MIB - len);
    assert!(in_use(space.remove_group(group.start())));
    space.unpin(space.take_pinned());
    // Its items are not inserted yet.
    assert!(in_use(space.remove_group(group.start())));
    assert_eq!(space.take_new_chunks(NOW).len(), 1);
    let manager = space.begin_nocow_write(start).unwrap();
    assert!(in_use(space.remove_group(group.start())));
    drop(manager);
    let reserved = volume.totals(BlockGroupType::Data).free_bytes;
    space.reserve_data(reserved).unwrap();
    assert!(in_use(space.remove_group(group.start())));
    space.release_data(reserved);
    assert_eq!(volume.totals(BlockGroupType::Data).free_bytes, reserved);
    let end = volume.pool.chunk_map().all().last().unwrap().end();
    let removed = space.remove_group(group.start()).unwrap();
    assert_eq!(removed.items.logical, group.start());
    assert!(space.find(start).is_none() && volume.pool.chunk_map().find(start).is_none());
    assert!(space.begin_nocow_write(start).is_none());
    // NEWCHUNK-2
    assert!(volume.totals(BlockGroupType::Data).unallocated_bytes < unallocated);
    space.free_device_space(&removed);
    let totals = volume.totals(BlockGroupType::Data);
    let others: u64 = space
        .groups()
        .iter()
        .filter(|group| group.start() > first.start())
        .map(|group| group.len_bytes())
        .sum();
    assert!(
        totals.unallocated_bytes + others + 4 * MIB > unallocated,
        "{totals:?}"
    );
    // NEWCHUNK-1: a new chunk has a new address.
    first.set_read_only();
    space
        .groups()
        .iter()
        .filter(|group| group.kind() == BlockGroupType::Data)
        .for_each(|group| group.set_read_only());
    let (again, _) = volume.data(MIB, MIB).unwrap();
    assert!(again >= end.0);
}

/// NEWCHUNK-3
#[test]
fn every_group_that_can_be_seen_has_its_chunk() {
    let volume = TestVolume::single(10 * GIB);
    let (space, pool) = (&volume.space, &volume.pool);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let seen = scope.spawn(|| {
            loop {
                // Read first, so the last round sees all groups.
                let is_last = is_over.load(Ordering::SeqCst);
                let groups = space.groups();
                for group in groups.iter() {
                    pool.chunk_map().get(group.start()).unwrap();
                }
                if is_last {
                    return groups.len();
                }
            }
        });
        let before = space.groups().len();
        while volume.data(128 * MIB, SECTOR).is_ok() {}
        let all = space.groups().len();
        is_over.store(true, Ordering::SeqCst);
        assert!(all > before + 5);
        assert_eq!(seen.join().unwrap(), all);
    });
}

#[test]
fn chunks_with_parity_are_not_made() {
    let volume = TestVolume::new(&profiles(Profile::Raid5, Profile::Raid1), &[GIB; 3]);
    volume.group(BlockGroupType::Data).set_read_only();
    let error = volume.data(MIB, MIB).unwrap_err();
    assert!(
        matches!(error, SpaceError::ReadOnlyProfile { .. }),
        "{error}"
    );
    assert_eq!(volume.totals(BlockGroupType::Data).unallocated_bytes, 0);
}

/// SPACE-INFO-2
#[test]
fn data_leaves_what_is_reserved_for_metadata() {
    let volume = TestVolume::single(400 * MIB);
    let space = &volume.space;
    let reserved = space.metadata_room() / 2;
    assert!(space.reserve_metadata(reserved));
    while volume.data(MIB, SECTOR).is_ok() {}
    assert!(space.metadata_room() >= reserved);
    assert!(!space.reserve_metadata(2 * reserved + 32 * MIB));
    for _ in 0..reserved / NODE {
        space.allocate_block(BlockKind::Metadata, NOW).unwrap();
    }
}

/// A failed reservation used to block others temporarily.
#[test]
fn reservation_that_does_not_fit_hinders_no_other() {
    let volume = TestVolume::single(400 * MIB);
    let space = &volume.space;
    let too_much = 2 * space.metadata_room();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert!(!space.reserve_metadata(too_much));
            }
        });
        let kept = (0..200_000)
            .filter(|_| space.reserve_metadata(NODE))
            .count();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(kept, 200_000);
    });
}

/// The lower total may have been computed earlier, and arrive later.
#[test]
fn older_sum_does_not_take_the_place_of_a_newer_one() {
    let volume = TestVolume::single(400 * MIB);
    assert!(volume.space.reserve_metadata(20 * NODE));
    assert!(volume.space.reserve_metadata(10 * NODE));
    assert_eq!(volume.totals(BlockGroupType::Metadata).reserved, 20 * NODE);
}

/// The transaction after a commit in progress may be the first to use a group in which the commit has reserved space.
#[test]
fn reservation_of_a_commit_holds_in_groups_that_the_next_transaction_began() {
    let volume = TestVolume::new(&mixed(), &[200 * MIB]);
    let (space, later) = (&volume.space, Transid(NOW.0 + 1));
    let reserved = 100 * NODE;
    assert!(space.reserve_metadata(reserved));
    let mut data = 0;
    while space.reserve_data(MIB).is_ok() {
        data += MIB;
    }
    while data > 0 {
        data -= space.allocate_data(data, SECTOR, None, later).unwrap().1;
    }
    for _ in 0..reserved / NODE {
        let block = space.allocate_block(BlockKind::Metadata, NOW).unwrap();
        assert!(space.find(block).unwrap().is_of(NOW));
    }
}

#[test]
fn request_that_cannot_be_met_makes_no_chunks() {
    let volume = TestVolume::single(10 * GIB);
    let space = &volume.space;
    let before = volume.totals(BlockGroupType::Metadata);
    for bytes in [12 * GIB, 10 << 40, u64::MAX] {
        assert!(space.reserve_data(bytes).is_err());
    }
    assert_eq!(volume.totals(BlockGroupType::Metadata), before);
    assert_eq!(space.groups().len(), 3);
    // The devices have enough space, but some of it is reserved for metadata.
    assert!(space.reserve_metadata(before.free_bytes + 2 * GIB));
    let before = volume.totals(BlockGroupType::Metadata);
    let data = volume.totals(BlockGroupType::Data);
    assert!(
        space
            .reserve_data(data.free_bytes + data.unallocated_bytes - GIB)
            .is_err()
    );
    assert_eq!(volume.totals(BlockGroupType::Metadata), before);
    assert_eq!(space.groups().len(), 3);
    space.reserve_data(data.free_bytes + GIB).unwrap();
}

#[test]
fn system_chunks_come_before_the_old_one_is_full() {
    let volume = TestVolume::single(10 * GIB);
    let space = &volume.space;
    let old = volume.group(BlockGroupType::System);
    let blocks = old.free_bytes() / NODE - 17;
    for _ in 0..blocks {
        space.allocate_block(BlockKind::System, NOW).unwrap();
    }
    assert_eq!(space.groups().len(), 3);
    old.change_used((blocks * NODE) as i64);
    space.reserve_data(20 * MIB).unwrap();
    let kinds: Vec<BlockGroupType> = space.groups().iter().map(|group| group.kind()).collect();
    assert_eq!(kinds[3..], [BlockGroupType::System, BlockGroupType::Data]);
    for _ in 0..100 {
        space.allocate_block(BlockKind::System, NOW).unwrap();
    }
    let new = space.take_new_chunks(NOW);
    assert_eq!(new.len(), 1);
    assert!(new[0].flags.contains(BlockGroupFlags::SYSTEM));
}

#[test]
fn threads_get_disjoint_space() {
    let volume = TestVolume::single(4 * GIB);
    let got: Vec<Vec<(u64, u64)>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let volume = &volume;
                scope.spawn(move || {
                    let mut rng = Rng::new(worker);
                    (0..500)
                        .map(|_| {
                            if rng.one_in(4) {
                                let block = volume.space.allocate_block(BlockKind::Metadata, NOW);
                                (block.unwrap().0, NODE)
                            } else {
                                volume.data((1 + rng.below(300)) * SECTOR, SECTOR).unwrap()
                            }
                        })
                        .collect()
                })
            })
            .collect();
        let results = workers.into_iter().map(|worker| worker.join().unwrap());
        results.collect()
    });
    let mut all: Vec<(u64, u64)> = got.into_iter().flatten().collect();
    all.sort_unstable();
    assert!(
        all.windows(2)
            .all(|pair| pair[0].0 + pair[0].1 <= pair[1].0)
    );
    assert_eq!(volume.totals(BlockGroupType::Data).reserved, 0);
}

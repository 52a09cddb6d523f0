//! The chunk map: validation and look-ups.

use super::*;
use crate::test_volume::{disk_chunk, disk_stripes};

fn check(logical: u64, chunk: &Chunk) -> Result<MappedChunk, ChunkProblem> {
    let stripes = disk_stripes(chunk.num_stripes.get());
    MappedChunk::check(Logical(logical), chunk, &stripes, 4096, false)
}

fn single(logical: u64, len: u64) -> MappedChunk {
    check(logical, &disk_chunk(len, BlockGroupFlags::DATA, 1)).unwrap()
}

#[test]
fn stripe_counts_follow_the_profile() {
    let ok = |profile: Profile, stripes: u16| {
        let flags = BlockGroupFlags::DATA | BlockGroupFlags::of(profile);
        check(1 << 20, &disk_chunk(1 << 20, flags, stripes)).is_ok()
    };
    for (profile, good) in [
        (Profile::Single, &[1][..]),
        (Profile::Dup, &[2]),
        (Profile::Raid1, &[2]),
        (Profile::Raid1c3, &[3]),
        (Profile::Raid1c4, &[4]),
        (Profile::Raid0, &[1, 2, 3, 4, 5, 6]),
        (Profile::Raid10, &[2, 4, 6]),
        (Profile::Raid5, &[2, 3, 4, 5, 6]),
        (Profile::Raid6, &[3, 4, 5, 6]),
    ] {
        for stripes in 0..7 {
            assert_eq!(
                ok(profile, stripes),
                good.contains(&stripes),
                "{profile:?} {stripes}"
            );
        }
    }
}

// CHUNK-1
#[test]
fn each_planted_defect_is_named() {
    let good = disk_chunk(1 << 20, BlockGroupFlags::DATA, 1);
    let broken = |edit: &dyn Fn(&mut Chunk)| {
        let mut chunk = good;
        edit(&mut chunk);
        check(1 << 20, &chunk).unwrap_err()
    };
    assert!(check(1 << 20, &good).is_ok());
    assert_eq!(
        check((1 << 20) + 1, &good).unwrap_err(),
        ChunkProblem::Start
    );
    assert_eq!(broken(&|c| c.length = 0.into()), ChunkProblem::Length(0));
    assert_eq!(
        broken(&|c| c.length = 5000.into()),
        ChunkProblem::Length(5000)
    );
    let huge = !4095u64;
    assert_eq!(
        broken(&|c| c.length = huge.into()),
        ChunkProblem::Length(huge)
    );
    assert_eq!(
        check(!4095u64, &good).unwrap_err(),
        ChunkProblem::Length(1 << 20)
    );
    assert_eq!(
        broken(&|c| c.stripe_len = 4096.into()),
        ChunkProblem::StripeLen(4096)
    );
    assert_eq!(
        broken(&|c| c.sector_size = 512.into()),
        ChunkProblem::SectorSize {
            found: 512,
            wanted: 4096
        }
    );
    for bits in [
        0,
        0b11,
        0b101,
        1 | 1 << 3 | 1 << 4,
        1 | 1 << 40,
        1 | 1 << 11,
    ] {
        assert_eq!(broken(&|c| c.type_ = bits.into()), ChunkProblem::Type(bits));
    }
    let mut raid10 = disk_chunk(1 << 20, BlockGroupFlags::DATA | BlockGroupFlags::RAID10, 4);
    raid10.sub_stripes = 0.into();
    assert_eq!(
        check(1 << 20, &raid10).unwrap_err(),
        ChunkProblem::SubStripes(0)
    );
    let raid5 = disk_chunk(1 << 20, BlockGroupFlags::DATA | BlockGroupFlags::RAID5, 2);
    let mut stripes = disk_stripes(2);
    stripes[1].devid = 1.into();
    assert_eq!(
        MappedChunk::check(Logical(0), &raid5, &stripes, 4096, false).unwrap_err(),
        ChunkProblem::RepeatedDevice { devid: DevId(1) }
    );
    let mut stripes = disk_stripes(1);
    stripes[0].offset = (!4095u64).into();
    assert!(matches!(
        MappedChunk::check(Logical(0), &good, &stripes, 4096, false),
        Err(ChunkProblem::StripePlace { index: 0, .. })
    ));
}

#[test]
fn mixed_chunks_need_the_feature() {
    let flags = BlockGroupFlags::DATA | BlockGroupFlags::METADATA;
    let chunk = disk_chunk(1 << 20, flags, 1);
    let check = |mixed| MappedChunk::check(Logical(0), &chunk, &disk_stripes(1), 4096, mixed);
    assert!(check(true).is_ok());
    assert_eq!(check(false).unwrap_err(), ChunkProblem::Type(flags.bits()));
}

// CHUNK-2
#[test]
fn overlap_is_refused_and_repetition_is_not() {
    let map = ChunkMap::new();
    map.insert(single(4 << 20, 1 << 20)).unwrap();
    map.insert(single(4 << 20, 1 << 20)).unwrap();
    map.insert(single(5 << 20, 1 << 20)).unwrap();
    for (logical, len) in [
        (4 << 20, 2 << 20),
        (3 << 20, 2 << 20),
        ((4 << 20) + 4096, 4096),
    ] {
        assert!(map.insert(single(logical, len)).is_err(), "{logical} {len}");
    }
    map.insert(single(3 << 20, 1 << 20)).unwrap();
    assert_eq!(map.len(), 3);
}

#[test]
fn every_address_finds_its_chunk_while_chunks_are_added() {
    let map = ChunkMap::new();
    let chunks = 4000u64;
    for i in 0..chunks {
        // Inserts out of order: 1667 and 4000 are coprime.
        let n = i * 1667 % chunks;
        map.insert(single(n << 21, 1 << 20)).unwrap();
        assert_eq!(
            map.find(Logical((n << 21) + 5)).unwrap().logical().0,
            n << 21
        );
    }
    for n in 0..chunks {
        let start = n << 21;
        for inside in [start, start + 4096, start + (1 << 20) - 1] {
            assert_eq!(map.find(Logical(inside)).unwrap().logical().0, start);
        }
        assert!(map.find(Logical(start + (1 << 20))).is_none());
    }
    assert_eq!(map.all().len() as u64, chunks);
    assert!(matches!(
        map.get(Logical(u64::MAX)),
        Err(DeviceError::NoChunk {
            logical: Logical(u64::MAX)
        })
    ));
}

#[test]
fn search_that_missed_finds_a_chunk_that_another_thread_published() {
    let map = ChunkMap::new();
    let old = map.snapshot.load_full();
    map.insert(single(4 << 20, 1 << 20)).unwrap();
    let chunk = Logical(4 << 20);
    assert!(old.search(chunk).is_none());
    // Simulates another thread that publishes between the two steps of a search.
    map.publish();
    assert_eq!(map.find_again(chunk).unwrap().logical(), chunk);
}

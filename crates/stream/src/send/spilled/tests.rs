//! The collections compared with the standard library's, with little memory.

use std::collections::{BTreeMap, BTreeSet};

use ubtrfs_sim::Rng;
use ubtrfs_spill::PageRecord;

use super::*;

const PAGES: usize = 3;

fn scratch_dir() -> ScratchDir {
    ScratchDir::named(std::env::temp_dir())
}

/// Returns pages with at most `PAGES` in memory.
fn pages<T: PageRecord>() -> Pages<T> {
    let paging = Paging {
        page_records: PAGE_BYTES / T::BYTES,
        memory_bytes: PAGES * PAGE_BYTES,
    };
    Pages::new(&scratch_dir(), paging)
}

/// Chooses a number from several distant clusters.
fn number(rng: &mut Rng) -> u64 {
    let far = rng.below(20) * 100_000;
    far + rng.below(50)
}

#[test]
fn set_is_right_when_most_of_it_is_spilled() {
    let mut rng = Rng::new(1);
    let mut set = InodeSet { pages: pages() };
    let mut wanted = BTreeSet::new();
    for _ in 0..20_000 {
        let ino = number(&mut rng);
        match rng.below(3) {
            0 => assert_eq!(set.insert(ino).unwrap(), wanted.insert(ino)),
            1 => {
                set.remove(ino).unwrap();
                wanted.remove(&ino);
            }
            _ => assert_eq!(set.contains(ino).unwrap(), wanted.contains(&ino)),
        }
    }
    assert!(wanted.len() > 100);
}

#[test]
fn counts_are_right_when_most_are_spilled() {
    let mut rng = Rng::new(2);
    let mut counts = InodeCounts { pages: pages() };
    let mut wanted: BTreeMap<u64, u32> = BTreeMap::new();
    for turn in 0..20_000 {
        let ino = number(&mut rng);
        let old = wanted.insert(ino, turn).unwrap_or(0);
        assert_eq!(counts.get(ino).unwrap(), old);
        counts.set(ino, turn).unwrap();
    }
}

#[test]
fn list_keeps_the_order_across_its_file() {
    let mut list = InodeList {
        log: Log::new(&scratch_dir(), 4 * size_of::<u64>()),
    };
    for len in 0..50 {
        let found: io::Result<Vec<u64>> = list.iter().collect();
        assert_eq!(found.unwrap(), (0..len).collect::<Vec<u64>>());
        list.push(len).unwrap();
    }
}

#[test]
fn repeats_are_left_out() {
    let mut seen = FirstSeen::new(&scratch_dir());
    for ino in [9, 3, 9, 5, 3, 4] {
        seen.add(ino).unwrap();
    }
    seen.forget(5).unwrap();
    let mut found = Vec::new();
    let each = |ino| {
        found.push(ino);
        Ok(())
    };
    seen.into_each(each).unwrap();
    assert_eq!(found, [9, 3, 4]);
}

/// A number from a damaged tree that exceeds all file offsets.
#[test]
fn number_beyond_all_files_is_an_error_and_no_panic() {
    let mut counts = InodeCounts { pages: pages() };
    counts.set(u64::MAX, 1).unwrap();
    assert!((5..15).any(|page| counts.get(page * COUNTS_A_PAGE).is_err()));
}

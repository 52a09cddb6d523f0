//! Sparse pages compared with a map, with little memory.

use std::collections::BTreeMap;

use ubtrfs_sim::Rng;

use super::*;

const PAGE_RECORDS: usize = 1024;

fn pages(most: usize) -> Pages<u32> {
    let paging = Paging {
        page_records: PAGE_RECORDS,
        memory_bytes: most * PAGE_RECORDS * 4,
    };
    Pages::new(&ScratchDir::named(std::env::temp_dir()), paging)
}

// SPILL-1
#[test]
fn records_are_right_when_most_are_in_the_file() {
    let mut rng = Rng::new(2);
    let mut pages = pages(3);
    assert!(pages.is_empty());
    let mut wanted: BTreeMap<u64, u32> = BTreeMap::new();
    for turn in 0..5000 {
        // Several distant clusters.
        let at = rng.below(20) * 100_000 + rng.below(50);
        let (page, within) = (at / PAGE_RECORDS as u64, at as usize % PAGE_RECORDS);
        let old = wanted.insert(at, turn).unwrap_or(0);
        assert_eq!(pages.read(page).unwrap()[within], old);
        pages.change(page).unwrap()[within] = turn;
        assert!(pages.held() <= 3);
        assert_eq!(pages.held.len(), pages.held());
    }
    assert!(pages.file.exists() && !pages.is_empty());
}

/// A number from a damaged tree that exceeds all file offsets.
#[test]
fn number_beyond_all_files_is_an_error_and_no_panic() {
    let mut pages = pages(2);
    for number in [u64::MAX, u64::MAX / 4096, i64::MAX as u64 / 4096] {
        pages.change(number).unwrap()[7] = 1;
        pages.read(1).unwrap();
        let error = (2..5).find_map(|other| pages.read(other).err()).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        // The page is still in memory.
        assert_eq!(pages.read(number).unwrap()[7], 1);
        pages = self::pages(2);
    }
}

//! Records are returned unchanged, regardless of the memory budget.

use super::*;

fn paged(memory_bytes: usize) -> Paged<u32> {
    let paging = Paging {
        page_records: 8,
        memory_bytes,
    };
    Paged::new(&ScratchDir::named(std::env::temp_dir()), paging)
}

#[test]
fn records_come_back_as_they_were_changed() {
    for memory_bytes in [0, 96, 1 << 20] {
        let mut paged = paged(memory_bytes);
        for number in 0..1000 {
            assert_eq!(paged.push(number).unwrap(), u64::from(number));
        }
        for at in (0..1000).step_by(7) {
            paged.update(at, |number| *number += 1000).unwrap();
        }
        for at in (0..1000_u64).rev() {
            let changed = if at % 7 == 0 { 1000 } else { 0 };
            assert_eq!(paged.get(at).unwrap(), at as u32 + changed);
        }
        assert_eq!(paged.len(), 1000);
    }
}

// SPILL-1
#[test]
fn no_more_pages_are_in_memory_than_there_is_room_for() {
    let mut paged = paged(3 * 8 * 4);
    for number in 0..1000 {
        paged.push(number).unwrap();
        paged.get(u64::from(number) / 2).unwrap();
        assert!(paged.pages.borrow().held() <= 3);
    }
}

#[test]
fn rows_lie_in_one_page() {
    let mut paged = paged(0);
    let mut rows = Vec::new();
    for len in [3, 4, 2, 8, 0, 1, 7, 5] {
        let row: Vec<u32> = (0..len).map(|number| 100 * len + number).collect();
        rows.push((paged.push_row(&row).unwrap(), row));
    }
    for (at, row) in rows {
        assert!(paged.with(at, row.len(), |found| found == row).unwrap());
    }
}

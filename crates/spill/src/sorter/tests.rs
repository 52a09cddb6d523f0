//! Sorting with runs, compared with the standard library's sort.

use super::*;

fn sorter<R: SortRecord>(budget_bytes: usize) -> Sorter<R> {
    Sorter::new(&ScratchDir::named(std::env::temp_dir()), budget_bytes)
}

fn numbers(count: u64) -> impl Iterator<Item = [u64; 2]> {
    (0..count).map(|n| [n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40, n])
}

fn all<R: SortRecord>(mut sorted: Sorted<R>) -> Vec<R> {
    std::iter::from_fn(|| sorted.next_record().unwrap()).collect()
}

// SORT-2
#[test]
fn spilled_records_come_out_as_sorted_in_memory() {
    // The last one joins runs.
    for budget_bytes in [1 << 20, 4000, 500] {
        let mut sorter = sorter(budget_bytes);
        let mut wanted: Vec<[u64; 2]> = numbers(20_000).collect();
        for record in numbers(20_000) {
            sorter.push(record).unwrap();
        }
        wanted.sort_unstable();
        assert!(
            all(sorter.finish().unwrap()) == wanted,
            "budget of {budget_bytes}"
        );
    }
}

/// SORT-1
#[test]
fn memory_is_the_buffer_and_then_a_block_a_run() {
    const BUDGET_BYTES: usize = 1 << 20;
    let most = BUDGET_BYTES / size_of::<[u64; 2]>();
    let mut sorter = sorter(BUDGET_BYTES);
    for record in numbers(5 * most as u64) {
        sorter.push(record).unwrap();
        assert!(sorter.buffer.len() <= most);
    }
    let mut sorted = sorter.finish().unwrap();
    assert_eq!((sorted.runs.len(), sorted.memory.len()), (5, 0));
    while sorted.next_record().unwrap().is_some() {
        let readers = &sorted.merge.as_ref().unwrap().readers;
        assert!(
            readers
                .iter()
                .all(|reader| reader.held_bytes() <= READ_BYTES)
        );
    }
}

// SORT-1
#[test]
fn runs_that_are_too_many_become_one() {
    let mut sorter = sorter(0);
    let count = 3 * MAX_RUNS as u64;
    for number in 0..count {
        sorter.push([number * 7919 % count]).unwrap();
        assert!(sorter.runs.runs.len() < MAX_RUNS);
    }
    let found = all(sorter.finish().unwrap());
    assert!(found.into_iter().eq((0..count).map(|number| [number])));
}

/// A record with a group, and a number that is not compared.
#[derive(Clone, Copy, Debug)]
struct Grouped(u64, u64, u64);

impl Grouped {
    fn rank(&self) -> (u64, u64) {
        (self.0, self.1)
    }
}

impl Ord for Grouped {
    fn cmp(&self, other: &Grouped) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Grouped {
    fn partial_cmp(&self, other: &Grouped) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Grouped {
    fn eq(&self, other: &Grouped) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Grouped {}

impl SortRecord for Grouped {
    fn group(&self) -> u64 {
        self.0
    }

    fn write(&self, out: &mut Vec<u8>) {
        [self.0, self.1, self.2].write(out);
    }

    fn read(from: &mut RunReader) -> io::Result<Grouped> {
        <[u64; 3]>::read(from).map(|[group, rank, number]| Grouped(group, rank, number))
    }
}

/// SORT-2
#[test]
fn groups_are_read_alone_and_repeatedly() {
    for budget_bytes in [0, 24 * 50, 1 << 20] {
        let mut sorter = sorter(budget_bytes);
        for number in 0..1000 {
            let record = Grouped(number % 7 * 2, number * 7919 % 1000, number);
            sorter.push(record).unwrap();
        }
        let sorted = sorter.finish().unwrap();
        for group in [4, 0, 12, 4, 5] {
            let numbers = (0..1000).filter(|number| number % 7 * 2 == group);
            let mut wanted: Vec<u64> = numbers.map(|number| number * 7919 % 1000).collect();
            wanted.sort_unstable();
            let mut records = sorted.group(group).unwrap();
            for rank in wanted {
                let record = records.next_record().unwrap().unwrap();
                assert_eq!(record.rank(), (group, rank));
            }
            assert!(records.next_record().unwrap().is_none());
        }
    }
}

/// SORT-2
#[test]
fn equal_records_of_earlier_runs_come_first() {
    let mut sorter = sorter(0);
    for number in 0..2 * MAX_RUNS as u64 {
        sorter.push(Grouped(1, number % 3, number)).unwrap();
    }
    let found = all(sorter.finish().unwrap());
    assert!(found.is_sorted_by_key(|record| (record.1, record.2)));
}

#[test]
fn nothing_comes_out_of_nothing() {
    assert!(all(sorter::<[u64; 3]>(0).finish().unwrap()).is_empty());
}

//! Sorting with runs, compared with the standard library's sort.

use super::*;
use crate::arena::Position;

fn sorter<R: SortRecord>(budget_bytes: usize) -> Sorter<R> {
    Sorter::new(&ScratchDir::named(std::env::temp_dir()), budget_bytes)
}

fn numbers(count: u64) -> impl Iterator<Item = [u64; 2]> {
    (0..count).map(|n| [n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40, n])
}

fn all<R: SortRecord<Tail = ()>>(mut sorted: Sorted<R>) -> Vec<R> {
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

impl SortRecord for Grouped {
    type Tail = ();

    fn compare<'t>(&self, other: &Grouped, _: impl FnOnce() -> (&'t [u8], &'t [u8])) -> Ordering {
        self.rank().cmp(&other.rank())
    }

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
                let (record, _) = records.next_with_tail().unwrap().unwrap();
                assert_eq!(record.rank(), (group, rank));
            }
            assert!(records.next_with_tail().unwrap().is_none());
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

/// A word with a tail that is compared if the words are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

impl SortRecord for Word {
    type Tail = Position;

    fn compare<'t>(&self, other: &Word, tails: impl FnOnce() -> (&'t [u8], &'t [u8])) -> Ordering {
        self.0.cmp(&other.0).then_with(|| {
            let (tail, other) = tails();
            tail.get(..2).cmp(&other.get(..2))
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        [self.0].write(out);
    }

    fn read(from: &mut RunReader) -> io::Result<Word> {
        <[u64; 1]>::read(from).map(|[word]| Word(word))
    }
}

/// SORT-2
#[test]
fn records_with_tails_are_sorted_stably() {
    let mut wanted: Vec<(u64, Vec<u8>)> = Vec::new();
    for [number, index] in numbers(5000) {
        let len = 2 + (number % 40) as usize;
        let mut tail = vec![(number % 5) as u8; len];
        tail.extend_from_slice(&index.to_le_bytes());
        wanted.push((number % 7, tail));
    }
    // The last one joins runs.
    for budget_bytes in [1 << 20, 4000, 0] {
        let mut sorter = sorter(budget_bytes);
        for (word, tail) in &wanted {
            sorter.push_with_tail(Word(*word), tail).unwrap();
        }
        let mut wanted = wanted.clone();
        wanted.sort_by_key(|(word, tail)| (*word, [tail[0], tail[1]]));
        let mut sorted = sorter.finish().unwrap();
        for (word, tail) in wanted {
            assert_eq!(
                sorted.next_with_tail().unwrap(),
                Some((Word(word), &tail[..]))
            );
        }
        assert_eq!(sorted.next_with_tail().unwrap(), None);
    }
}

/// SORT-1
#[test]
fn memory_includes_tails() {
    let mut sorter = sorter(10_000);
    for number in 0..1000 {
        sorter.push_with_tail(Word(number), &[7; 300]).unwrap();
        assert!(sorter.arena.len_bytes() <= 10_000);
    }
    sorter.push_with_tail(Word(0), &[7; 20_000]).unwrap();
    assert_eq!(sorter.buffer.len(), 1);
}

#[test]
fn nothing_comes_out_of_nothing() {
    assert!(all(sorter::<[u64; 3]>(0).finish().unwrap()).is_empty());
}

//! Loading, pinning and going read-only of one group.

use std::sync::Barrier;

use ubtrfs_format::ids::Transid;

use super::*;
use crate::space::nocow::NocowWrite;
use crate::space::test_volume::{FakeSource, MIB, SECTOR};

impl BlockGroup {
    /// Returns the recent number of free bytes.
    pub(in crate::space) fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::Relaxed)
    }
}

const START: u64 = 64 * MIB;
const LEN: u64 = 8 * MIB;
const SUPERBLOCK: Range<u64> = START + MIB..START + MIB + (64 << 10);

fn group(used: u64) -> Arc<BlockGroup> {
    let new = NewGroup {
        start: Logical(START),
        len: LEN,
        flags: BlockGroupFlags::DATA,
        used,
        superblocks: vec![SUPERBLOCK],
    };
    BlockGroup::new(new, Some(Transid(0)), SECTOR, Arc::default())
}

fn all(bytes: u64) -> ExtentRequest {
    ExtentRequest {
        bytes,
        min_bytes: SECTOR,
        align: SECTOR,
        hint: None,
    }
}

fn allocate_everything(group: &BlockGroup, source: &FakeSource) -> Vec<(u64, u64)> {
    let next = || group.allocate(&all(LEN), source);
    std::iter::from_fn(next).collect()
}

// GROUP-3
#[test]
fn group_of_which_more_is_called_free_than_can_be_gives_nothing() {
    let source = FakeSource::default();
    source.set_used(START + 4 * MIB, MIB);
    let group = group(MIB + SECTOR);
    assert_eq!(allocate_everything(&group, &source), []);
    assert_eq!(group.free_bytes(), 0);
}

// GROUP-1 for superblocks.
#[test]
fn superblocks_and_what_is_used_are_never_given_out() {
    let source = FakeSource::default();
    source.set_used(START + 4 * MIB, MIB);
    let group = group(MIB);
    assert_eq!(group.free_bytes(), LEN - MIB - (64 << 10));
    let mut got = allocate_everything(&group, &source);
    got.sort_unstable();
    let expected = [
        (START, MIB),
        (SUPERBLOCK.end, 3 * MIB - (64 << 10)),
        (START + 5 * MIB, 3 * MIB),
    ];
    assert_eq!(got, expected);
    assert_eq!(group.free_bytes(), 0);
}

// GROUP-2
#[test]
fn space_freed_before_the_group_was_loaded_waits_for_unpin() {
    // A commit deletes the extent at 4 MiB and pins it. The source shows it as used until the commit is published, then
    // as free.
    for published in [false, true] {
        let source = FakeSource::default();
        source.set_used(START + 4 * MIB, MIB);
        let group = group(MIB);
        group.pin(START + 4 * MIB, MIB / 2);
        group.pin(START + 4 * MIB + MIB / 2, MIB / 2);
        group.change_used(-(MIB as i64));
        let free_bytes = LEN - MIB - (64 << 10);
        assert_eq!(group.free_bytes(), free_bytes);
        if published {
            source.set_free(START + 4 * MIB);
        }
        let got = allocate_everything(&group, &source);
        assert_eq!(got.iter().map(|range| range.1).sum::<u64>(), free_bytes);
        group.unpin(std::slice::from_ref(&(START + 4 * MIB..START + 5 * MIB)));
        assert_eq!(
            allocate_everything(&group, &source),
            [(START + 4 * MIB, MIB)]
        );
    }
}

#[test]
fn unpinning_a_group_that_is_not_loaded_leaves_it_to_the_source() {
    let source = FakeSource::default();
    source.set_used(START + 4 * MIB, MIB);
    let group = group(MIB);
    group.pin(START + 4 * MIB, MIB);
    group.change_used(-(MIB as i64));
    source.set_free(START + 4 * MIB);
    group.unpin(std::slice::from_ref(&(START + 4 * MIB..START + 5 * MIB)));
    assert_eq!(group.free_bytes(), LEN - (64 << 10));
    let got = allocate_everything(&group, &source);
    assert_eq!(
        got.iter().map(|range| range.1).sum::<u64>(),
        LEN - (64 << 10)
    );
}

// GROUP-3
#[test]
fn a_group_that_contradicts_itself_gives_nothing_any_more() {
    let source = FakeSource::default();
    let group = group(0);
    let (start, len) = group.allocate(&all(MIB), &source).unwrap();
    group.release(start, len);
    assert!(group.free_bytes() > 0);
    group.release(start, len);
    assert_eq!(group.free_bytes(), 0);
    assert_eq!(group.allocate(&all(MIB), &source), None);
}

#[test]
fn a_read_only_group_gives_nothing_and_lets_no_writer_in() {
    let source = FakeSource::default();
    let group = group(0);
    let manager = NocowWrite::begin(Arc::clone(&group)).unwrap();
    assert!(!group.try_set_read_only() && !group.is_read_only());
    drop(manager);
    assert!(group.try_set_read_only() && group.try_set_read_only());
    assert!(NocowWrite::begin(Arc::clone(&group)).is_none());
    assert_eq!(group.allocate(&all(MIB), &source), None);
    assert_eq!(group.free_bytes(), 0);
    group.set_writable();
    assert!(NocowWrite::begin(Arc::clone(&group)).is_some());
    assert!(group.allocate(&all(MIB), &source).is_some());
}

#[test]
fn going_read_only_waits_for_all_writers() {
    for _ in 0..200 {
        let group = group(0);
        let started = Barrier::new(4);
        let writing = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let manager = NocowWrite::begin(Arc::clone(&group)).unwrap();
                    writing.fetch_add(1, Ordering::SeqCst);
                    started.wait();
                    std::thread::yield_now();
                    writing.fetch_sub(1, Ordering::SeqCst);
                    drop(manager);
                    while NocowWrite::begin(Arc::clone(&group)).is_some() {}
                });
            }
            started.wait();
            group.set_read_only();
            assert_eq!(writing.load(Ordering::SeqCst), 0);
        });
    }
}

//! Lookups among thousands of block groups, with concurrent inserts and removals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::Transid;

use super::*;
use crate::space::block_group::NewGroup;
use crate::space::nocow::NocowWrite;

const GIB: u64 = 1 << 30;
/// The number of groups of 4 TiB.
const GROUPS: u64 = 3500;

fn group(number: u64) -> Arc<BlockGroup> {
    let new = NewGroup {
        start: Logical((number + 1) * GIB),
        // Leaves a gap after the group.
        len: GIB / 2,
        flags: BlockGroupFlags::DATA,
        used: 0,
        superblocks: Vec::new(),
    };
    BlockGroup::new(new, Some(Transid(0)), 4096, Arc::default())
}

#[test]
fn each_address_is_found_in_its_group_and_gaps_in_none() {
    let groups = BlockGroups::new((0..GROUPS).rev().map(group).collect());
    assert!(groups.find(Logical(0)).is_none());
    assert!(groups.find(Logical(GIB - 1)).is_none());
    assert!(groups.find(Logical(u64::MAX)).is_none());
    for number in 0..GROUPS {
        let start = (number + 1) * GIB;
        for offset in [0, 4096, GIB / 2 - 1] {
            let found = groups.find(Logical(start + offset)).unwrap();
            assert_eq!(found.start(), Logical(start));
        }
        assert!(groups.find(Logical(start + GIB / 2)).is_none());
    }
    let starts: Vec<_> = groups.all().iter().map(|group| group.start()).collect();
    assert!(starts.is_sorted() && starts.len() as u64 == GROUPS);
}

#[test]
fn nocow_writers_find_their_group_while_others_come_and_go() {
    let groups = BlockGroups::new((0..GROUPS).map(group).collect());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (groups, done) = (&groups, &done);
            scope.spawn(move || {
                let mut number = reader;
                while !done.load(Ordering::Relaxed) {
                    number = (number + 977) % GROUPS;
                    let at = Logical((number + 1) * GIB + 4096);
                    let group = groups.find(at).unwrap();
                    assert!(group.contains(at));
                    assert!(NocowWrite::begin(group).is_some());
                }
            });
        }
        for round in 0..100 {
            let number = GROUPS + round % 7;
            groups.insert(group(number));
            assert!(groups.find(Logical((number + 1) * GIB)).is_some());
            groups.remove(Logical((number + 1) * GIB));
            assert!(groups.find(Logical((number + 1) * GIB)).is_none());
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(groups.all().len() as u64, GROUPS);
}

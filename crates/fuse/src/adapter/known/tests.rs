//! Nodes from the first entry to the last forget.

use std::sync::atomic::{AtomicBool, Ordering};

use ubtrfs_format::ids::InodeNr;

use super::super::span::Span;
use super::*;

const HOME: RootId = RootId(256);
/// A file of the mounted subvolume, where node numbers equal inode numbers.
const NUMBER: u64 = 300;

fn file(inode: u64) -> FileId {
    FileId {
        root: HOME,
        ino: InodeNr(inode),
    }
}

fn known() -> KnownNodes {
    KnownNodes::new(Numbering::new(HOME), file(256))
}

/// KNOWN-1, and FUSE-2: a forgotten node takes no memory.
#[test]
fn node_is_known_until_every_entry_is_forgotten() {
    let known = known();
    for _ in 0..3 {
        known.add(NUMBER, FileKind::Regular);
    }
    assert!(!known.forget(NUMBER, 2));
    assert!(known.knows(file(NUMBER)));
    assert!(!known.forget(NUMBER, 1));
    assert!(!known.knows(file(NUMBER)));
    assert_eq!(known.len(), 0);
}

/// KNOWN-2
#[test]
fn kept_node_is_let_go_of_once_when_it_leaves() {
    let known = known();
    assert!(!known.pin(file(NUMBER)), "the kernel does not know it");
    known.add(NUMBER, FileKind::Regular);
    known.add(NUMBER, FileKind::Regular);
    assert!(known.pin(file(NUMBER)));
    assert!(!known.pin(file(NUMBER)), "kept already");
    assert!(!known.forget(NUMBER, 1));
    assert!(known.forget(NUMBER, 1));
    assert!(!known.forget(NUMBER, 1));

    known.add(NUMBER, FileKind::Regular);
    known.add(NUMBER + 1, FileKind::Regular);
    assert!(known.pin(file(NUMBER)));
    assert_eq!(known.forget_all(), [NUMBER]);
    assert_eq!(known.len(), 0);
}

/// KNOWN-3
#[test]
fn files_that_were_read_or_written_may_have_pages() {
    let known = known();
    for number in NUMBER..NUMBER + 4 {
        known.add(number, FileKind::Regular);
        assert!(!known.may_have_pages(number));
    }
    let pages = Span::new(0, 4096);
    drop(known.begin_read(NUMBER, pages));
    drop(known.begin_quick_write(NUMBER + 1, pages).unwrap());
    known.begin_write(NUMBER + 2);
    let mut files = known.files();
    files.sort_unstable();
    assert_eq!(files, [NUMBER, NUMBER + 1, NUMBER + 2].map(NodeId));
}

/// SERVICE-1
#[test]
fn a_drop_begins_while_no_write_is_served_that_may_not_wait() {
    let known = known();
    known.add(NUMBER, FileKind::Regular);
    let pages = Span::new(0, 4096);
    let write = known.begin_quick_write(NUMBER, pages).unwrap();
    let has_begun = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let drop_pages = scope.spawn(|| {
            let number = known.begin_drop(NUMBER, pages);
            has_begun.store(true, Ordering::SeqCst);
            number
        });
        let far = Span::new(1 << 20, 4096);
        while known.begin_quick_write(NUMBER, far).is_some() {
            std::thread::yield_now();
        }
        assert!(!has_begun.load(Ordering::SeqCst));
        drop(write);
        let number = drop_pages.join().unwrap();
        assert!(known.begin_quick_write(NUMBER, far).is_some());
        assert!(known.begin_quick_write(NUMBER, pages).is_none());
        known.end_drop(NUMBER, number);
        assert!(known.begin_quick_write(NUMBER, pages).is_none());
        assert_eq!(known.take_old(NUMBER, far), []);
        assert!(known.begin_quick_write(NUMBER, pages).is_some());
    });
}

/// SERVICE-2
#[test]
fn a_shield_waits_for_dirty_pages_that_came_before_it() {
    let known = known();
    known.add(NUMBER, FileKind::Regular);
    let (page, written) = (Span::new(0, 4096), [Span::new(10, 20)]);
    let before = known.begin_write(NUMBER);
    let (shield, may_be_replaced) = known.raise_shield(NUMBER, &written, before);
    assert!(!may_be_replaced);
    drop(shield);
    let (store, parts) = known.begin_store(NUMBER, page);
    assert_eq!(parts, [page]);
    std::thread::scope(|scope| {
        let raised = scope.spawn(|| known.raise_shield(NUMBER, &written, before));
        // A store that begins now sees the shield, and is not waited for.
        let later = loop {
            let (later, parts) = known.begin_store(NUMBER, page);
            if parts != [page] {
                assert_eq!(parts, page.without(written[0]).collect::<Vec<_>>());
                break later;
            }
        };
        assert!(!raised.is_finished());
        drop(store);
        let (shield, may_be_replaced) = raised.join().unwrap();
        assert!(may_be_replaced);
        drop(later);
        drop(shield);
    });
    let (_store, parts) = known.begin_store(NUMBER, page);
    assert_eq!(parts, [page]);
}

#[test]
fn a_read_may_hold_a_page_from_one_look_to_the_next() {
    let known = known();
    known.add(NUMBER, FileKind::Regular);
    let begin = || known.begin_read(NUMBER, Span::new(0, 4096));
    let first = begin();
    assert!(!known.may_hold_page(NUMBER), "it has just begun");
    assert!(known.may_hold_page(NUMBER));
    let second = begin();
    assert!(known.may_hold_page(NUMBER));
    drop(first);
    assert!(!known.may_hold_page(NUMBER), "the second has begun since");
    assert!(known.may_hold_page(NUMBER));
    drop(second);
    assert!(!known.may_hold_page(NUMBER));
    let (store, _) = known.begin_store(NUMBER, Span::new(0, 4096));
    assert!(known.may_hold_page(NUMBER));
    drop(store);
    assert!(!known.may_hold_page(NUMBER));
}

/// KNOWN-4
#[test]
fn a_drop_stays_noted_when_the_kernel_forgets_the_node_and_looks_it_up_anew() {
    let known = known();
    let pages = Span::new(0, 4096);
    let may_meet = || known.begin_quick_write(NUMBER, pages).is_none();
    known.add(NUMBER, FileKind::Regular);
    let first = known.begin_drop(NUMBER, pages);
    let second = known.begin_drop(NUMBER, pages);
    assert!(!known.forget(NUMBER, 1));
    known.end_drop(NUMBER, first);
    known.add(NUMBER, FileKind::Regular);
    assert!(may_meet());
    assert!(!known.forget(NUMBER, 1));
    known.end_drop(NUMBER, second);
    let third = known.begin_drop(NUMBER, pages);
    known.add(NUMBER, FileKind::Regular);
    assert!(may_meet());
    known.end_drop(NUMBER, third);
    assert_eq!(known.take_old(NUMBER, pages), []);
    assert!(!may_meet());
    assert!(known.shard(NUMBER).left_drops.lock().is_empty());
}

//! Nodes from their first entry to the last that is forgotten.

use ubtrfs_format::ids::InodeNr;

use super::*;

const HOME: RootId = RootId(256);
/// A file of the mounted subvolume, whose numbers are those of its inodes.
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

/// KNOWN-1, and FUSE-2: what is forgotten takes no memory.
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
fn nodes_with_dropped_pages_are_counted_until_they_leave() {
    let known = known();
    let dropped = || known.dropped.load(Ordering::SeqCst);
    for number in NUMBER..NUMBER + 3 {
        known.add(number, FileKind::Regular);
        known.begin_drop(number);
        known.end_drop(number, true);
        known.note_late_drop(number);
    }
    assert_eq!(dropped(), 3);
    let page = Span::new(4096, 4096);
    known.note_read(NUMBER, page);
    assert_eq!(dropped(), 3);
    let take = || known.take_reread(NUMBER, Span::new(0, 6000), || true);
    assert_eq!(take(), Some(Span::new(4096, 1904)));
    assert_eq!(dropped(), 2);
    assert!(!known.forget(NUMBER + 1, 1));
    assert_eq!(dropped(), 1);
    known.forget_all();
    assert_eq!(dropped(), 0);
}

/// KNOWN-4
#[test]
fn pages_are_not_kept_while_any_drop_is_under_way() {
    let known = known();
    known.add(NUMBER, FileKind::Regular);
    let page = Span::new(0, 4096);
    let take = |has_sent: bool| known.take_reread(NUMBER, page, || has_sent);
    known.begin_drop(NUMBER);
    known.begin_drop(NUMBER);
    assert_eq!(take(true), None);
    known.note_read(NUMBER, page);
    assert_eq!(take(true), Some(page));
    known.end_drop(NUMBER, true);
    assert_eq!(take(true), Some(page));
    known.end_drop(NUMBER, false);
    assert_eq!(take(false), Some(page), "it is told later");
    assert_eq!(take(true), Some(page));
    assert_eq!(take(true), None);
    assert_eq!(known.dropped.load(Ordering::SeqCst), 0);
}

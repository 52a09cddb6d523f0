//! Pending references and their sums.

use ubtrfs_format::key::KeyType;

use ubtrfs_format::ids::InodeNr;

use super::*;

const AT: Logical = Logical(1 << 20);
const LEN: u64 = 8192;

fn file(ino: u64) -> RefKey {
    RefKey::DataRoot {
        root: RootId::FS_TREE,
        ino: InodeNr(ino),
        offset: 0,
    }
}

fn data(changes: &[(u64, i64)]) -> DelayedRefs {
    let mut refs = DelayedRefs::default();
    for &(ino, delta) in changes {
        refs.change(AT, LEN, file(ino), delta, None);
    }
    refs
}

fn block(refs: &mut DelayedRefs) {
    let key = Key::new(256, KeyType::INODE_ITEM, 0);
    let tree = RootId::FS_TREE;
    refs.new_block(AT, 1, tree, RefKey::TreeRoot(tree), key);
}

fn changes(refs: &mut DelayedRefs) -> Vec<(RefKey, i64)> {
    let heads = refs.take();
    heads.values().flat_map(Head::changes).collect()
}

#[test]
fn changes_of_one_reference_add_up() {
    let mut refs = data(&[(257, 1), (257, 1), (258, -1), (257, 1), (259, 1)]);
    let pending = refs.pending(AT).unwrap();
    assert_eq!((pending.refs, pending.is_new), (3, false));
    assert_eq!(
        changes(&mut refs),
        [(file(257), 3), (file(258), -1), (file(259), 1)]
    );
    assert!(refs.is_empty());
}

// REFS-1
#[test]
fn changes_that_add_up_to_nothing_are_forgotten() {
    let mut refs = data(&[(257, 1), (257, -1)]);
    assert!(refs.is_empty());
    refs = data(&[
        (257, 1),
        (258, 2),
        (259, -1),
        (258, -2),
        (259, 1),
        (257, -1),
    ]);
    assert!(refs.is_empty());
    assert_eq!((refs.bytes(), refs.pending(AT)), (0, None));
}

#[test]
fn new_extent_without_references_is_kept() {
    let mut refs = DelayedRefs::default();
    refs.new_data(AT, LEN);
    refs.change(AT, LEN, file(257), 1, None);
    refs.change(AT, LEN, file(257), -1, None);
    let pending = refs.pending(AT).unwrap();
    assert_eq!((pending.refs, pending.is_new), (0, true));
    assert_eq!(refs.take().len(), 1);
}

#[test]
fn flag_alone_is_pending() {
    let mut refs = DelayedRefs::default();
    refs.set_full_backref(AT, 1);
    let pending = refs.pending(AT).unwrap();
    assert_eq!(
        (pending.refs, pending.full_backref, pending.is_new),
        (0, true, false)
    );
}

// REFS-3
#[test]
fn disagreement_on_an_extent_is_kept() {
    let mut refs = data(&[(257, 1)]);
    refs.change(AT, 2 * LEN, file(257), -1, None);
    let wanted = Disagreement::Shape(ExtentShape::Data { len: 2 * LEN });
    assert_eq!(refs.take()[&AT].disagreement, Some(wanted));

    let mut refs = data(&[(257, 1)]);
    block(&mut refs);
    let wanted = Disagreement::Shape(ExtentShape::Block { level: 1 });
    assert_eq!(refs.take()[&AT].disagreement, Some(wanted));

    let mut refs = DelayedRefs::default();
    refs.new_data(AT, LEN);
    refs.new_data(AT, LEN);
    assert_eq!(refs.take()[&AT].disagreement, Some(Disagreement::NewExtent));
}

#[test]
fn memory_grows_with_the_references_of_one_extent() {
    let one = data(&[(257, 1)]).bytes();
    let many: Vec<(u64, i64)> = (257..1257).map(|ino| (ino, 1)).collect();
    assert!(data(&many).bytes() > one + 1000 * size_of::<RefKey>());
}

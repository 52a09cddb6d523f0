//! Single facts about the items; against a model (`random`) and against the kernel's items (`kernel`).

mod kernel;
mod random;
mod tree;

use ubtrfs_format::item::{ExtentDataRef, ExtentHead, InlineRef};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::transaction::delayed_refs::DelayedRefs;
use tree::{TestTree, colliding_offsets, file};

const AT: Logical = Logical(1 << 20);
const LEN: u64 = 8192;
const FIRST_KEY: Key = Key::new(256, KeyType::INODE_ITEM, 0);
const TREE: RefKey = RefKey::TreeRoot(RootId::FS_TREE);

/// Changes of references to the data extent.
fn changed(changes: &[(RefKey, i64)]) -> DelayedRefs {
    let mut refs = DelayedRefs::default();
    for &(reference, delta) in changes {
        refs.change(AT, LEN, reference, delta, None);
    }
    refs
}

fn new_data(changes: &[(RefKey, i64)]) -> DelayedRefs {
    let mut refs = changed(changes);
    refs.new_data(AT, LEN);
    refs
}

fn new_block() -> DelayedRefs {
    let mut refs = DelayedRefs::default();
    refs.new_block(AT, 1, RootId::FS_TREE, TREE, FIRST_KEY);
    refs
}

fn changed_block(changes: &[(RefKey, i64)]) -> DelayedRefs {
    let mut refs = DelayedRefs::default();
    for &(reference, delta) in changes {
        refs.change(AT, 16_384, reference, delta, Some(1));
    }
    refs
}

fn tree_of(refs: DelayedRefs) -> TestTree {
    let mut tree = TestTree::new(16_384, true);
    tree.run(refs).unwrap();
    tree
}

/// Returns the error of a run that must fail. Checks that the tree is unchanged.
fn refused(tree: &mut TestTree, refs: DelayedRefs) -> RefError {
    let before = tree.items.clone();
    let error = tree.run(refs).unwrap_err();
    assert!(before == tree.items);
    let Error::Ref(reason) = error else {
        panic!("{error}");
    };
    assert!(reason.to_string().contains(&AT.to_string()), "{reason}");
    reason
}

/// Returns enough references that some are items of their own.
fn many(first: u64) -> Vec<(RefKey, i64)> {
    (first..first + 100).map(|ino| (file(ino, 0), 1)).collect()
}

fn keyed_item(ino: u64, offset: u64, count: u32) -> Vec<u8> {
    let data = ExtentDataRef {
        root: RootId::FS_TREE.0.into(),
        objectid: ino.into(),
        offset: offset.into(),
        count: count.into(),
    };
    data.as_bytes().to_vec()
}

fn hash(ino: u64, offset: u64) -> u64 {
    item::inline_ref(file(ino, offset), 0).sequence()
}

/// Sets the count of references in the item, right or wrong.
fn set_refs(tree: &mut TestTree, refs: u64) {
    let key = tree.extent(AT).unwrap().key;
    let bytes = tree.items.get_mut(&key).unwrap();
    let (head, _) = ExtentHead::mut_from_prefix(bytes).unwrap();
    head.refs = refs.into();
    tree.rebuild();
}

#[test]
fn data_made_and_dropped_between_runs_is_freed_without_an_item() {
    let mut tree = TestTree::new(16_384, true);
    let batch = tree.run(new_data(&[])).unwrap();
    assert!(batch.changes.is_empty() && batch.used.is_empty());
    let freed = Freed {
        start: AT,
        len: LEN,
        kind: FreedKind::Data,
        had_item: false,
    };
    assert_eq!(batch.freed, [freed]);
}

#[test]
fn extent_that_changes_hands_is_never_free() {
    let mut tree = tree_of(new_data(&[(file(257, 0), 2)]));
    let hands = changed(&[(file(257, 0), -2), (file(258, 4096), 1)]);
    let batch = tree.run(hands).unwrap();
    assert!(batch.freed.is_empty() && batch.used.is_empty());
    assert_eq!(tree.extent(AT).unwrap().refs, 1);
}

#[test]
fn freed_block_names_its_level_and_owner() {
    let mut tree = tree_of(new_block());
    let batch = tree.run(changed_block(&[(TREE, -1)])).unwrap();
    let kind = FreedKind::Block {
        level: 1,
        owner: Some(RootId::FS_TREE),
    };
    let freed = Freed {
        start: AT,
        len: 16_384,
        kind,
        had_item: true,
    };
    assert_eq!(batch.freed, [freed]);

    let parent = RefKey::TreeParent(Logical(AT.0 * 2));
    let mut tree = tree_of(new_block());
    let hands = changed_block(&[(TREE, -1), (parent, 1)]);
    tree.run(hands).unwrap();
    let batch = tree.run(changed_block(&[(parent, -1)])).unwrap();
    let kind = FreedKind::Block {
        level: 1,
        owner: None,
    };
    assert_eq!(batch.freed[0].kind, kind);
}

#[test]
fn flag_of_full_backrefs_is_set_and_stays() {
    let mut tree = tree_of(new_block());
    let mut refs = DelayedRefs::default();
    refs.set_full_backref(AT, 1);
    tree.run(refs).unwrap();
    let full = ExtentFlags::TREE_BLOCK | ExtentFlags::FULL_BACKREF;
    assert_eq!(tree.extent(AT).unwrap().flags, full);
    let snapshot = RefKey::TreeRoot(RootId(256));
    tree.run(changed_block(&[(snapshot, 1)])).unwrap();
    assert_eq!(tree.extent(AT).unwrap().flags, full);
}

#[test]
fn references_go_inline_again_when_no_keyed_one_is_left() {
    let mut tree = tree_of(new_data(&many(257)));
    let full = tree.extent(AT).unwrap();
    assert!(full.inline.len() > 20 && full.keyed.len() > 20);

    // Inline space is not used as long as there is a keyed reference.
    let inline_ones = full.inline.iter().filter_map(item::ref_key);
    let drops: Vec<(RefKey, i64)> = inline_ones.skip(1).map(|found| (found, -1)).collect();
    tree.run(changed(&drops)).unwrap();
    tree.run(changed(&[(file(1000, 0), 1)])).unwrap();
    let extent = tree.extent(AT).unwrap();
    assert_eq!(
        (extent.inline.len(), extent.keyed.len()),
        (1, full.keyed.len() + 1)
    );

    let keyed = extent.keyed.iter();
    let drops: Vec<(RefKey, i64)> = keyed.map(|(_, found, _)| (*found, -1)).collect();
    tree.run(changed(&drops)).unwrap();
    tree.run(changed(&[(file(1001, 0), 1)])).unwrap();
    let extent = tree.extent(AT).unwrap();
    assert_eq!((extent.inline.len(), extent.keyed.len()), (2, 0));
}

#[test]
fn colliding_references_probe_upward_and_survive_holes() {
    let offsets = colliding_offsets(5);
    let [a, b, c, d, e] = offsets[..] else {
        panic!("five offsets");
    };
    let first = hash(257, a);
    assert!(offsets.iter().all(|offset| hash(257, *offset) == first));
    let mut tree = tree_of(new_data(&many(1000)));
    for offset in [a, b, c] {
        tree.run(changed(&[(file(257, offset), 1)])).unwrap();
    }
    let places = |tree: &TestTree| {
        let keyed = tree.extent(AT).unwrap().keyed.into_iter();
        let here = keyed.filter(|(_, found, _)| offsets.iter().any(|o| *found == file(257, *o)));
        let place = |(key, found, count): (Key, RefKey, u64)| (key.offset - first, found, count);
        here.map(place).collect::<Vec<_>>()
    };
    let [fa, fb, fc, fd, fe] = [a, b, c, d, e].map(|offset| file(257, offset));
    assert_eq!(places(&tree), [(0, fa, 1), (1, fb, 1), (2, fc, 1)]);

    tree.run(changed(&[(fa, -1)])).unwrap();
    // It is found after the hole, not created again.
    tree.run(changed(&[(fc, 1)])).unwrap();
    assert_eq!(places(&tree), [(1, fb, 1), (2, fc, 2)]);
    tree.run(changed(&[(fd, 1), (fe, 1), (fb, -1)])).unwrap();
    assert_eq!(places(&tree), [(0, fd, 1), (2, fc, 2), (3, fe, 1)]);
    tree.run(changed(&[(fc, -2), (fd, -1)])).unwrap();
    assert_eq!(places(&tree), [(3, fe, 1)]);
    let missing = refused(&mut tree, changed(&[(fa, -1)]));
    assert!(matches!(missing, RefError::NoReference { found: 0, .. }));
}

#[test]
fn count_kept_in_two_items_is_dropped_from_both() {
    let mut tree = tree_of(new_data(&many(1000)));
    let first = hash(257, 0);
    for (probe, count) in [(0, 2), (1, 3)] {
        let key = Key::new(AT.0, KeyType::EXTENT_DATA_REF, first + probe);
        tree.items.insert(key, keyed_item(257, 0, count));
    }
    set_refs(&mut tree, 105);
    tree.run(changed(&[(file(257, 0), -4)])).unwrap();
    assert_eq!(tree.extent(AT).unwrap().counts()[&file(257, 0)], 1);
    tree.run(changed(&[(file(257, 0), -1)])).unwrap();
    assert_eq!(tree.extent(AT).unwrap().refs, 100);
}

#[test]
fn owner_of_simple_quotas_is_kept() {
    let mut tree = tree_of(new_data(&[(file(257, 0), 1)]));
    let key = tree.extent(AT).unwrap().key;
    let mut bytes = tree.items[&key][..size_of::<ExtentHead>()].to_vec();
    let owner = InlineRef::Owner { root: 300 };
    owner.encode(&mut bytes);
    item::inline_ref(file(257, 0), 1).encode(&mut bytes);
    tree.items.insert(key, bytes);
    tree.rebuild();
    let hands = changed(&[(file(257, 0), -1), (RefKey::DataParent(AT), 2)]);
    tree.run(hands).unwrap();
    let inline = tree.extent(AT).unwrap().inline;
    let shared = InlineRef::SharedData {
        parent: AT.0,
        count: 2,
    };
    assert_eq!(inline, [owner, shared]);
    let batch = tree.run(changed(&[(RefKey::DataParent(AT), -2)])).unwrap();
    assert_eq!((batch.freed.len(), tree.extent(AT)), (1, None));
}

#[test]
fn block_whose_item_is_not_skinny_keeps_it_in_a_skinny_volume() {
    let mut tree = TestTree::new(16_384, false);
    tree.run(new_block()).unwrap();
    let fat = tree.extent(AT).unwrap();
    let items = tree.items.clone();
    let mut tree = TestTree::new(16_384, true);
    tree.items = items;
    tree.rebuild();
    let snapshot = RefKey::TreeRoot(RootId(256));
    tree.run(changed_block(&[(snapshot, 1)])).unwrap();
    let extent = tree.extent(AT).unwrap();
    assert_eq!((extent.key, extent.info), (fat.key, fat.info));
    let batch = tree
        .run(changed_block(&[(snapshot, -1), (TREE, -1)]))
        .unwrap();
    assert_eq!(batch.changes, [(fat.key, None)]);
}

#[test]
fn reference_that_is_not_there_cannot_be_dropped() {
    let missing = |reference, dropped, found| RefError::NoReference {
        bytenr: AT,
        reference,
        dropped,
        found,
    };
    let mut tree = tree_of(new_data(&[(file(257, 0), 2)]));
    let none = file(258, 0);
    assert_eq!(
        refused(&mut tree, changed(&[(none, -1)])),
        missing(none, 1, 0)
    );
    let few = file(257, 0);
    assert_eq!(
        refused(&mut tree, changed(&[(few, -3)])),
        missing(few, 3, 2)
    );
    let most = changed(&[(few, i64::MIN)]);
    assert_eq!(refused(&mut tree, most), missing(few, 1 << 63, 2));
    tree = tree_of(new_data(&many(257)));
    assert_eq!(
        refused(&mut tree, changed(&[(none, -2)])),
        missing(none, 2, 1)
    );
    tree = tree_of(new_block());
    let parent = RefKey::TreeParent(AT);
    let drop = changed_block(&[(parent, -1)]);
    assert_eq!(refused(&mut tree, drop), missing(parent, 1, 0));
    assert_eq!(
        refused(&mut TestTree::new(4096, true), new_data(&[(few, -1)])),
        missing(few, 1, 0)
    );
}

#[test]
fn extent_without_an_item_cannot_change() {
    let mut tree = TestTree::new(16_384, true);
    let error = refused(&mut tree, changed(&[(file(257, 0), -1)]));
    assert!(
        matches!(error, RefError::NoExtent { reference: Some(found), .. } if found == file(257, 0))
    );
    let mut refs = DelayedRefs::default();
    refs.set_full_backref(AT, 1);
    let error = refused(&mut tree, refs);
    assert!(matches!(
        error,
        RefError::NoExtent {
            reference: None,
            ..
        }
    ));
    let stray = Key::new(AT.0, KeyType::EXTENT_DATA_REF, hash(257, 0));
    tree.items.insert(stray, keyed_item(257, 0, 1));
    tree.rebuild();
    let error = refused(&mut tree, changed(&[(file(257, 0), -1)]));
    assert!(matches!(error, RefError::NoExtent { .. }));
    let error = refused(&mut tree, new_data(&[(file(257, 0), 1)]));
    assert!(matches!(error, RefError::Exists { key, .. } if key == stray));
}

/// REFS-2
#[test]
fn extent_in_use_cannot_be_made_again() {
    let mut tree = tree_of(new_data(&[(file(257, 0), 1)]));
    let error = refused(&mut tree, new_data(&[(file(258, 0), 1)]));
    assert!(matches!(error, RefError::Exists { .. }));
    assert!(matches!(
        refused(&mut tree, new_block()),
        RefError::Exists { .. }
    ));
    let mut twice = new_data(&[]);
    twice.new_data(AT, LEN);
    assert_eq!(
        refused(&mut tree, twice),
        RefError::MadeTwice { bytenr: AT }
    );
}

#[test]
fn extent_is_what_its_item_says() {
    let mut tree = tree_of(new_data(&[(file(257, 0), 1)]));
    let error = refused(&mut tree, changed_block(&[(TREE, -1)]));
    assert!(matches!(error, RefError::Unlike { .. }));
    let mut longer = DelayedRefs::default();
    longer.change(AT, 2 * LEN, file(257, 0), -1, None);
    let error = refused(&mut tree, longer.clone());
    assert!(matches!(error, RefError::Unlike { .. }));
    longer.change(AT, LEN, file(257, 0), -1, None);
    let error = refused(&mut tree, longer);
    assert!(matches!(error, RefError::Shapes { .. }));
    let mut tree = tree_of(new_block());
    let mut higher = DelayedRefs::default();
    higher.change(AT, 16_384, TREE, -1, Some(2));
    let error = refused(&mut tree, higher);
    assert!(matches!(error, RefError::Unlike { .. }));
}

#[test]
fn counts_do_not_wrap() {
    let mut tree = tree_of(new_data(&[(file(257, 0), i64::from(u32::MAX))]));
    let reference = file(257, 0);
    let overflow = RefError::Overflow {
        bytenr: AT,
        reference,
    };
    assert_eq!(refused(&mut tree, changed(&[(reference, 1)])), overflow);
    assert_eq!(
        refused(&mut tree, changed(&[(reference, i64::MAX)])),
        overflow
    );
    let parent = RefKey::DataParent(AT);
    let mut refs = many(1000);
    refs.push((parent, i64::from(u32::MAX)));
    tree.run(changed(&refs)).unwrap();
    let error = refused(&mut tree, changed(&[(parent, 1)]));
    assert!(matches!(error, RefError::Overflow { .. }));
}

#[test]
fn tree_block_has_one_reference_from_one_place() {
    let mut tree = tree_of(new_block());
    let second = RefError::SecondReference {
        bytenr: AT,
        reference: TREE,
    };
    assert_eq!(refused(&mut tree, changed_block(&[(TREE, 1)])), second);
    assert_eq!(refused(&mut tree, changed_block(&[(TREE, 2)])), second);
    let roots: Vec<(RefKey, i64)> = (256..456)
        .map(|id| (RefKey::TreeRoot(RootId(id)), 1))
        .collect();
    tree.run(changed_block(&roots)).unwrap();
    for root in roots {
        let error = refused(&mut tree, changed_block(&[root]));
        assert!(matches!(error, RefError::SecondReference { .. }));
    }
}

#[test]
fn count_above_the_sum_is_found_when_the_last_reference_goes() {
    let both = [(file(257, 0), 1), (file(258, 0), 1)];
    let mut tree = tree_of(new_data(&both));
    set_refs(&mut tree, 3);
    let error = refused(&mut tree, changed(&both.map(|(found, _)| (found, -1))));
    assert_eq!(
        error,
        RefError::Sum {
            bytenr: AT,
            refs: 1
        }
    );
}

#[test]
fn count_below_the_sum_is_found_when_it_runs_out() {
    let mut tree = tree_of(new_data(&many(257)));
    // The tree checker ensures that the count is not less than the number of inline references.
    let inline = tree.extent(AT).unwrap().inline.len();
    set_refs(&mut tree, inline as u64);
    let drops: Vec<(RefKey, i64)> = many(257).iter().map(|(found, _)| (*found, -1)).collect();
    for dropped in [inline, inline + 1] {
        let error = refused(&mut tree, changed(&drops[..dropped]));
        assert_eq!(
            error,
            RefError::Sum {
                bytenr: AT,
                refs: 0
            }
        );
    }
}

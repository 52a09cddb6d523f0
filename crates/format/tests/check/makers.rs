//! Marks of NAS makers: readers accept the bits and sizes in the table, and no others.

use std::collections::HashSet;

use ubtrfs_format::check::{CorruptBlock, CorruptInode, CorruptItem, CorruptRoot};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{InodeItem, RootItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::maker::{MARKS, Marks, Place, item_sizes, label_build};

use crate::golden::{Leaf, check_with};

const ROOT: KeyType = KeyType::ROOT_ITEM;
const INODE: KeyType = KeyType::INODE_ITEM;

fn is_listed(place: Place) -> bool {
    MARKS.iter().any(|mark| mark.place == place)
}

fn defect(checked: Result<(), CorruptBlock>) -> Option<CorruptItem> {
    match checked {
        Ok(()) => None,
        Err(CorruptBlock::Item { defect, .. }) => Some(defect),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn flags_of_root_items_pass_if_they_are_listed() {
    let mainline = 1 | 1 << 48;
    for bit in (0..64).map(|shift| 1u64 << shift) {
        let mut leaf = Leaf::golden("roots");
        leaf.view::<RootItem>(ROOT, 0).flags.set(bit);
        let wanted = if mainline & bit != 0 || is_listed(Place::RootFlag(bit)) {
            None
        } else {
            Some(CorruptItem::Root(CorruptRoot::Flags(bit)))
        };
        assert_eq!(defect(leaf.check()), wanted, "{bit:#x}");
        let ignored = check_with(&leaf.build(), |context| context.ignore_flags = true);
        assert_eq!(ignored, Ok(()), "{bit:#x}");
    }
}

#[test]
fn flags_of_inodes_pass_if_they_are_listed() {
    let mainline = 0xfff | 1 << 31;
    for bit in (0..32).map(|shift| 1u64 << shift) {
        let mut leaf = Leaf::golden("files");
        leaf.view::<InodeItem>(INODE, 0).flags.set(bit);
        let wanted = if mainline & bit != 0 || is_listed(Place::InodeFlag(bit)) {
            None
        } else {
            Some(CorruptItem::Inode(CorruptInode::Flags(bit)))
        };
        assert_eq!(defect(leaf.check()), wanted, "{bit:#x}");
        let ignored = check_with(&leaf.build(), |context| context.ignore_flags = true);
        assert_eq!(ignored, Ok(()), "{bit:#x}");
    }
}

#[test]
fn quota_items_have_other_sizes_in_trees_of_makers_only() {
    let status = Key::new(0, KeyType::QGROUP_STATUS, 0);
    assert_eq!(item_sizes(RootId(200), status), Some(&[64][..]));
    for tree in [RootId::QUOTA_TREE, RootId(201), RootId(256)] {
        assert_eq!(item_sizes(tree, status), None);
    }
}

#[test]
fn names_of_marks_are_unique() {
    let names: HashSet<_> = MARKS.iter().map(|mark| mark.name).collect();
    assert_eq!(names.len(), MARKS.len());
}

#[test]
fn marks_are_named_with_their_maker() {
    let mut marks = Marks::of_tree(RootId(200));
    assert_eq!(marks.to_string(), "Synology DSM: tree 200 (quota of users)");
    for tree in [201, 202, 203] {
        marks.insert(Marks::of_tree(RootId(tree)));
    }
    assert!(
        marks
            .to_string()
            .ends_with("(hints of block groups), and 1 more")
    );
    assert!(Marks::of_tree(RootId(204)).is_empty());
}

#[test]
fn attributes_of_users_are_no_marks() {
    assert!(!Marks::of_xattr(b"syno.archive_bit").is_empty());
    for name in [&b"user.syno.x"[..], b"user.netatalk.y", b"security.z"] {
        assert!(Marks::of_xattr(name).is_empty());
    }
}

#[test]
fn label_of_the_maker_has_a_build() {
    assert_eq!(label_build(b"2018.03.12-10:11:12 v23739"), Some(23739));
    for other in [
        &b""[..],
        b"2018.03.12-10:11:12 v",
        b"2018.03.12-10:11:12 v23739-rc",
        b"2018-03-12 10:11:12 v23739",
        b"data",
    ] {
        assert_eq!(label_build(other), None);
    }
}

/// The kernel's fsync log leaves old bytes of memory in the reserved fields of inodes.
#[test]
fn reserved_field_of_an_inode_is_no_mark_without_its_flag() {
    let mut leaf = Leaf::golden("files");
    leaf.view::<InodeItem>(INODE, 0).reserved = [u64::MAX.into(); 4];
    let inode = *leaf.view::<InodeItem>(INODE, 0);
    assert_eq!(Marks::of_inode(&inode), Marks::NONE);
    let flagged = InodeItem {
        flags: (1 << 30).into(),
        ..inode
    };
    let marks = Marks::of_inode(&flagged);
    assert!(MARKS.iter().any(|mark| mark.place == Place::InodeReserved));
    assert_ne!(
        marks,
        Marks::of_inode(&InodeItem {
            reserved: [0.into(); 4],
            ..flagged
        })
    );
}

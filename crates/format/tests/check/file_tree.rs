//! Defects of items in subvolume trees: inodes, names, entries, attributes, file extents.

use crate::golden::{GENERATION, Leaf, check_with};
use crate::refuses;
use ubtrfs_format::check::{
    CorruptDirItem, CorruptFileExtent, CorruptInode, CorruptItem, CorruptName, ExtentField,
};
use ubtrfs_format::item::{
    DirHead, FileExtentHead, FileExtentRegular, FileKind, InodeExtrefHead, InodeItem, InodeRefHead,
};
use ubtrfs_format::key::{DiskKey, Key, KeyType};
use zerocopy::FromBytes;

const INODE: KeyType = KeyType::INODE_ITEM;

#[test]
fn inode_fields_have_limits() {
    use CorruptInode as C;
    use CorruptItem::Inode;
    refuses!(
        "files",
        |leaf| leaf.items[0].0.objectid = 12,
        Inode(C::Number(12))
    );
    refuses!(
        "files",
        |leaf| leaf.key(INODE, 1).offset = 1,
        Inode(C::KeyOffset)
    );
    refuses!(
        "files",
        |leaf| leaf
            .view::<InodeItem>(INODE, 1)
            .generation
            .set(GENERATION + 2),
        Inode(C::Generation { .. })
    );
    refuses!(
        "files",
        |leaf| leaf.view::<InodeItem>(INODE, 1).transid.set(GENERATION + 2),
        Inode(C::Transid { .. })
    );
    refuses!(
        "files",
        |leaf| leaf.view::<InodeItem>(INODE, 1).mode.set(0o1_100_644),
        Inode(C::ModeBits(_))
    );
    refuses!(
        "files",
        |leaf| leaf.view::<InodeItem>(INODE, 1).mode.set(0o030_644),
        Inode(C::ModeKind(_))
    );
    refuses!(
        "files",
        |leaf| leaf.view::<InodeItem>(INODE, 0).nlink.set(2),
        Inode(C::DirectoryLinks(2))
    );
    refuses!(
        "files",
        |leaf| leaf.view::<InodeItem>(INODE, 0).flags.set(1 << 14),
        Inode(C::Flags(0x4000))
    );
    refuses!(
        "files",
        |leaf| leaf.bytes(INODE, 1).truncate(159),
        CorruptItem::Size {
            wanted: 160,
            found: 159
        }
    );
}

#[test]
fn unknown_flags_that_readers_may_ignore_pass() {
    let mut leaf = Leaf::golden("files");
    leaf.view::<InodeItem>(INODE, 0).flags.set(1 << 40);
    assert_eq!(leaf.check(), Ok(()));
}

#[test]
fn items_of_an_inode_follow_its_inode_item() {
    refuses!(
        "files",
        |leaf| {
            let slot = leaf.slot(INODE, 1);
            leaf.items.remove(slot);
        },
        CorruptItem::NoInode { .. }
    );
}

#[test]
fn names_of_an_inode_fill_their_items() {
    use CorruptItem::Name;
    use CorruptName as C;
    const REF: KeyType = KeyType::INODE_REF;
    refuses!("files", |leaf| leaf.bytes(REF, 0).clear(), Name(C::Empty));
    refuses!(
        "files",
        |leaf| leaf.bytes(REF, 1).truncate(10),
        Name(C::CrossesEnd { .. })
    );
    refuses!(
        "files",
        |leaf| leaf.bytes(REF, 1).push(0),
        Name(C::CrossesEnd { rest: 1 })
    );
    refuses!(
        "files",
        |leaf| leaf.view::<InodeRefHead>(REF, 1).name_len.set(0),
        Name(C::Empty)
    );
    refuses!(
        "files",
        |leaf| {
            leaf.end_at(REF, 1);
            leaf.bytes(REF, 1).resize(10 + 256, b'x');
            leaf.view::<InodeRefHead>(REF, 1).name_len.set(256);
        },
        Name(C::TooLong { len: 256, .. })
    );
    refuses!(
        "extrefs",
        |leaf| leaf.key(KeyType::INODE_EXTREF, 0).offset -= 1,
        Name(C::Hash { .. })
    );
    refuses!(
        "extrefs",
        |leaf| leaf
            .view::<InodeExtrefHead>(KeyType::INODE_EXTREF, 0)
            .parent_objectid
            .set(1),
        Name(C::Hash { .. })
    );
    refuses!(
        "extrefs",
        |leaf| leaf.bytes(KeyType::INODE_EXTREF, 0).push(0),
        Name(C::CrossesEnd { .. })
    );
}

const ENTRY: KeyType = KeyType::DIR_ITEM;
const INDEX: KeyType = KeyType::DIR_INDEX;
const XATTR: KeyType = KeyType::XATTR_ITEM;

#[test]
fn entries_lead_to_inodes_and_subvolumes() {
    use CorruptDirItem as C;
    use CorruptItem::DirItem;
    for location in [
        Key::new(1, KeyType::INODE_ITEM, 0),
        Key::new(300, KeyType::INODE_ITEM, 1),
        Key::new(300, KeyType::EXTENT_ITEM, 0),
        Key::new(7, KeyType::ROOT_ITEM, u64::MAX),
        Key::new(1 << 48, KeyType::ROOT_ITEM, u64::MAX),
    ] {
        let mut leaf = Leaf::golden("files");
        leaf.view::<DirHead>(INDEX, 0).location = DiskKey::from(location);
        let error = leaf.check().expect_err("location");
        assert!(error.to_string().contains("entry points to"), "{error}");
    }
    refuses!(
        "files",
        |leaf| leaf.view::<DirHead>(XATTR, 0).location.objectid.set(300),
        DirItem(C::XattrLocation(_))
    );
}

#[test]
fn entries_have_a_kind_that_fits() {
    use CorruptDirItem as C;
    use CorruptItem::DirItem;
    refuses!(
        "files",
        |leaf| leaf.view::<DirHead>(ENTRY, 0).type_ = 0,
        DirItem(C::Kind(0))
    );
    refuses!(
        "files",
        |leaf| leaf.view::<DirHead>(ENTRY, 0).type_ = 9,
        DirItem(C::Kind(9))
    );
    refuses!(
        "files",
        |leaf| leaf.view::<DirHead>(XATTR, 0).type_ = FileKind::Regular.raw(),
        DirItem(C::XattrKind(1))
    );
    refuses!(
        "files",
        |leaf| leaf.view::<DirHead>(INDEX, 0).type_ = FileKind::RAW_XATTR,
        DirItem(C::EntryIsXattr)
    );
}

#[test]
fn names_and_data_of_entries_have_limits() {
    use CorruptDirItem as C;
    use CorruptItem::DirItem;
    refuses!(
        "files",
        |leaf| leaf.bytes(ENTRY, 0).push(0),
        DirItem(C::CrossesEnd { rest: 1 })
    );
    refuses!(
        "files",
        |leaf| leaf.bytes(ENTRY, 0).clear(),
        DirItem(C::CrossesEnd { rest: 0 })
    );
    refuses!(
        "files",
        |leaf| leaf.view::<DirHead>(XATTR, 0).data_len.set(u16::MAX),
        DirItem(C::CrossesEnd { .. })
    );
    refuses!(
        "files",
        |leaf| {
            leaf.bytes(INDEX, 0).truncate(size_of::<DirHead>());
            leaf.view::<DirHead>(INDEX, 0).name_len.set(0);
        },
        DirItem(C::NoName)
    );
    refuses!(
        "files",
        |leaf| {
            leaf.end_at(INDEX, 0);
            leaf.bytes(INDEX, 0)
                .resize(size_of::<DirHead>() + 256, b'x');
            leaf.view::<DirHead>(INDEX, 0).name_len.set(256);
        },
        DirItem(C::NameTooLong { len: 256, max: 255 })
    );
    refuses!(
        "files",
        |leaf| {
            leaf.end_at(INDEX, 0);
            leaf.bytes(INDEX, 0).push(0);
            leaf.view::<DirHead>(INDEX, 0).data_len.set(1);
        },
        DirItem(C::EntryData(1))
    );
}

#[test]
fn entries_are_keyed_by_the_hash_of_their_names() {
    use CorruptDirItem as C;
    use CorruptItem::DirItem;
    let flip: fn(&mut Leaf) = |leaf| *leaf.bytes(ENTRY, 0).last_mut().expect("name") ^= 1;
    refuses!(
        "files",
        |leaf| *leaf.bytes(ENTRY, 0).last_mut().expect("name") ^= 1,
        DirItem(C::Hash { .. })
    );
    let mut leaf = Leaf::golden("files");
    flip(&mut leaf);
    let scrambled = check_with(&leaf.build(), |context| context.scrambled_names = true);
    assert_eq!(scrambled, Ok(()));
}

const DATA: KeyType = KeyType::EXTENT_DATA;

/// Returns the index of the first extent of this kind in the golden leaf.
fn nth_of_kind(leaf: &mut Leaf, kind: u8) -> usize {
    (0..)
        .find(|&nth| leaf.view::<FileExtentHead>(DATA, nth).type_ == kind)
        .expect("kind")
}

fn regular(leaf: &mut Leaf) -> (&mut FileExtentHead, &mut FileExtentRegular) {
    let nth = nth_of_kind(leaf, 1);
    let (head, body) = leaf
        .bytes(DATA, nth)
        .split_at_mut(size_of::<FileExtentHead>());
    let head = FileExtentHead::mut_from_bytes(head).expect("head");
    (head, FileExtentRegular::mut_from_bytes(body).expect("body"))
}

#[test]
fn file_extents_are_of_known_kinds() {
    use CorruptFileExtent as C;
    use CorruptItem::FileExtent;
    refuses!(
        "file_extents",
        |leaf| regular(leaf).0.type_ = 3,
        FileExtent(C::Kind(3))
    );
    refuses!(
        "file_extents",
        |leaf| regular(leaf).0.compression = 4,
        FileExtent(C::Compression(4))
    );
    refuses!(
        "file_extents",
        |leaf| regular(leaf).0.encryption = 1,
        FileExtent(C::Encryption(1))
    );
    refuses!(
        "file_extents",
        |leaf| {
            let nth = nth_of_kind(leaf, 1);
            leaf.bytes(DATA, nth).truncate(52);
        },
        CorruptItem::Size {
            wanted: 53,
            found: 52
        }
    );
    refuses!(
        "file_extents",
        |leaf| leaf.bytes(DATA, 0).truncate(20),
        CorruptItem::Size {
            wanted: 21,
            found: 20
        }
    );
}

#[test]
fn inline_extents_begin_their_file_and_hold_what_they_say() {
    use CorruptFileExtent as C;
    use CorruptItem::FileExtent;
    refuses!(
        "file_extents",
        |leaf| {
            let nth = nth_of_kind(leaf, 0);
            leaf.key(DATA, nth).offset = 4096;
        },
        FileExtent(C::InlineOffset(4096))
    );
    refuses!(
        "file_extents",
        |leaf| {
            let nth = nth_of_kind(leaf, 0);
            leaf.bytes(DATA, nth).push(0);
        },
        FileExtent(C::InlineSize { .. })
    );
}

#[test]
fn regular_extents_are_whole_sectors() {
    use CorruptItem::FileExtent;
    use ExtentField as F;
    type Edit = fn(&mut Leaf);
    let edits: [(Edit, F); 5] = [
        (|leaf| regular(leaf).0.ram_bytes.set(4097), F::RamBytes),
        (|leaf| regular(leaf).1.disk_bytenr.set(4097), F::DiskBytenr),
        (
            |leaf| regular(leaf).1.disk_num_bytes.set(4097),
            F::DiskNumBytes,
        ),
        (|leaf| regular(leaf).1.offset.set(1), F::Offset),
        (|leaf| regular(leaf).1.num_bytes.set(1), F::NumBytes),
    ];
    for (edit, field) in edits {
        let mut leaf = Leaf::golden("file_extents");
        edit(&mut leaf);
        let error = leaf.check().expect_err("not aligned").to_string();
        assert!(error.contains(&format!(": {field} ")), "{error}");
    }
    refuses!(
        "file_extents",
        |leaf| {
            let nth = nth_of_kind(leaf, 1);
            leaf.key(DATA, nth).offset += 1;
        },
        FileExtent(CorruptFileExtent::FileOffset(_))
    );
}

#[test]
fn file_extents_do_not_overlap_or_wrap() {
    use CorruptFileExtent as C;
    use CorruptItem::FileExtent;
    refuses!(
        "file_extents",
        |leaf| {
            let slot = (1..leaf.items.len())
                .find(|&slot| {
                    let (before, key) = (leaf.items[slot - 1].0, leaf.items[slot].0);
                    before.item_type == DATA
                        && (before.objectid, DATA) == (key.objectid, key.item_type)
                })
                .expect("two extents of a file");
            let body = &mut leaf.items[slot - 1].1[size_of::<FileExtentHead>()..];
            let body = FileExtentRegular::mut_from_bytes(body).expect("body");
            body.num_bytes.set(body.num_bytes.get() + 4096);
        },
        FileExtent(C::Overlap { .. })
    );
    refuses!(
        "file_extents",
        |leaf| {
            let slot = leaf.slot(DATA, 4);
            leaf.items.truncate(slot + 1);
            leaf.items[slot].0.offset = 0u64.wrapping_sub(4096);
            let body = &mut leaf.items[slot].1[size_of::<FileExtentHead>()..];
            let body = FileExtentRegular::mut_from_bytes(body).expect("body");
            body.num_bytes.set(4096);
        },
        FileExtent(C::End { .. })
    );
}

#[test]
fn log_and_orphan_items_have_their_sizes() {
    refuses!(
        "log",
        |leaf| leaf.bytes(KeyType::DIR_LOG_INDEX, 0).push(0),
        CorruptItem::Size {
            wanted: 8,
            found: 9
        }
    );
    refuses!(
        "orphans",
        |leaf| leaf.bytes(KeyType::ORPHAN_ITEM, 0).push(0),
        CorruptItem::Size {
            wanted: 0,
            found: 1
        }
    );
}

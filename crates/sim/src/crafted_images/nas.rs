//! The marks of NAS makers, put on a sound image with one device.
//!
//! No image of a real NAS was at hand. The layouts are from Synology's kernels. The kernel must never mount the
//! result.

mod image;

use std::path::Path;

use image::Image;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{DirEntries, ExtentFlags, FileKind, InodeItem, RootItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::name_hash::name_hash;
use ubtrfs_format::superblock::flags;
use zerocopy::FromBytes;

use crate::craft::Items;

/// The object ids of items of usage and of features.
const USAGE: u64 = -206i64 as u64;
const FEATURES: u64 = -211i64 as u64;

type PutMark = fn(&mut Image);

/// The marks that readers accept, by name.
const KNOWN: &[(&str, PutMark)] = &[
    ("root-hide", |image| put_root_flags(image, 1 << 32)),
    ("root-no-quota-load", |image| put_root_flags(image, 1 << 33)),
    ("root-compression-ratio", |image| {
        put_root_flags(image, 1 << 34)
    }),
    ("root-quota-off", |image| put_root_flags(image, 1 << 35)),
    ("root-all", |image| put_root_flags(image, 0xf << 32)),
    ("root-top-level", |image| {
        put_flags_of(image, RootId::FS_TREE, 1 << 35);
    }),
    ("inode-user-quota", |image| {
        put_inode_flags(image, 1 << 30, true);
    }),
    ("inode-no-dedupe", |image| {
        put_inode_flags(image, 1 << 29, false);
    }),
    ("compat", |image| put_compat(image, 7 << 61)),
    ("compat-ro-locker", put_locker),
    ("superblock-end", put_superblock_end),
    ("label", put_label),
    ("caseless", put_caseless_index),
    ("subvolume-usage", put_subvolume_usage),
    ("quota-201", put_group_quota),
    ("user-quota-200", put_user_quota),
    ("hint-202", |image| {
        put_block_group_copies(image, 202, false)
    }),
    ("cache-203", |image| {
        put_block_group_copies(image, 203, false);
        put_compat(image, 3 << 61);
    }),
    ("cache-203-stale", |image| {
        put_block_group_copies(image, 203, true);
        put_compat(image, 3 << 61);
    }),
    ("usage-205", put_usage_trees),
    ("features-207", put_features),
    ("quota-v2", put_quota_v2),
    ("extent-clone", put_clone_flag),
    ("extent-deduplicated", put_deduplicated),
    ("xattrs", put_xattrs),
];

/// The marks that only some makers' volumes have together.
const OF_ANOTHER_KIND: [&str; 8] = [
    "root-hide",
    "root-no-quota-load",
    "root-quota-off",
    "root-all",
    "root-top-level",
    "inode-no-dedupe",
    "cache-203-stale",
    "label",
];

/// Defects that no maker's system makes, for comparison.
const UNKNOWN: &[(&str, PutMark)] = &[
    ("root-unknown", |image| put_root_flags(image, 1 << 20)),
    ("inode-unknown", |image| {
        put_inode_flags(image, 1 << 20, false);
    }),
    ("superblock-error", |image| {
        image.superblock.flags = (image.superblock.flags.get() | flags::ERROR).into();
        image.put_superblock();
    }),
    ("incompat-unknown", |image| {
        let sb = &mut image.superblock;
        sb.incompat_flags = (sb.incompat_flags.get() | 1 << 40).into();
        image.put_superblock();
    }),
];

/// Returns the names of the marks.
pub fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|(name, _)| *name)
}

/// Puts a mark on an image, by its name: one of [`names`], or another unknown flag.
///
/// # Panics
/// If there is no such mark, or the image is not a sound volume with few files on one device.
pub fn put(image: &Path, name: &str) {
    let is_it = |(known, _): &&(&str, PutMark)| *known == name;
    let (_, put) = KNOWN
        .iter()
        .chain(UNKNOWN)
        .find(is_it)
        .expect("the mark is known");
    put(&mut Image::open(image));
}

/// Puts the mark `root-hide` on one subvolume.
///
/// # Panics
/// If there is no such subvolume, or the image is not a sound volume on one device.
pub fn hide_subvolume(image: &Path, id: u64) {
    put_flags_of(&mut Image::open(image), RootId(id), 1 << 32);
}

/// Puts all marks of a volume of DSM 7 on an image.
///
/// # Panics
/// As [`put`].
pub fn put_all(image: &Path) {
    for name in names().filter(|name| !OF_ANOTHER_KIND.contains(name)) {
        put(image, name);
    }
}

fn put_root_flags(image: &mut Image, flags: u64) {
    for (id, _) in image.subvolumes() {
        if id != RootId::FS_TREE {
            put_flags_of(image, id, flags);
        }
    }
}

fn put_flags_of(image: &mut Image, id: RootId, flags: u64) {
    let changed = image.edit(image.root_tree(), |key, bytes| {
        let is_it = (key.objectid, key.item_type) == (id.0, KeyType::ROOT_ITEM);
        if is_it {
            let item = RootItem::mut_from_bytes(bytes).expect("as long");
            item.flags = (item.flags.get() | flags).into();
        }
        is_it
    });
    assert_eq!(changed, 1, "the tree has one root item");
}

/// Sets flags of all regular files, and the bytes that are charged to their owner.
fn put_inode_flags(image: &mut Image, flags: u64, is_charged: bool) {
    for (_, root) in image.subvolumes() {
        image.edit(root, |key, bytes| {
            if key.item_type != KeyType::INODE_ITEM {
                return false;
            }
            let inode = InodeItem::mut_from_bytes(bytes).expect("as long");
            let is_file = FileKind::from_mode(inode.mode.get()) == Some(FileKind::Regular);
            if is_file {
                inode.flags = (inode.flags.get() | flags).into();
                if is_charged {
                    inode.reserved[3] = inode.nbytes;
                }
            }
            is_file
        });
    }
}

fn put_compat(image: &mut Image, bits: u64) {
    let sb = &mut image.superblock;
    sb.compat_flags = (sb.compat_flags.get() | bits).into();
    image.put_superblock();
}

fn put_locker(image: &mut Image) {
    let sb = &mut image.superblock;
    sb.compat_ro_flags = (sb.compat_ro_flags.get() | 1 << 59).into();
    image.put_superblock();
}

fn put_superblock_end(image: &mut Image) {
    let generation = image.superblock.generation.get();
    let fields = [
        1_500_000_000,
        1 << 30,
        1,
        generation,
        0x1d5_0000,
        generation,
    ];
    let end = &mut image.superblock.padding[565 - 48..];
    for (field, number) in end.chunks_exact_mut(8).zip(fields) {
        field.copy_from_slice(&number.to_le_bytes());
    }
    image.put_superblock();
}

fn put_label(image: &mut Image) {
    const LABEL: &[u8] = b"2021.03.12-10:11:12 v25556";
    image.superblock.label.fill(0);
    image.superblock.label[..LABEL.len()].copy_from_slice(LABEL);
    image.put_superblock();
}

fn put_caseless_index(image: &mut Image) {
    for (_, root) in image.subvolumes() {
        let mut index: Items = Vec::new();
        for (key, bytes) in image.items_of(root) {
            if key.item_type != KeyType::DIR_ITEM {
                continue;
            }
            for entry in DirEntries::new(&bytes) {
                let folded = entry.name.to_ascii_uppercase();
                let hash = u64::from(name_hash(&folded));
                let key = Key::new(key.objectid, KeyType(91), hash);
                match index.iter_mut().find(|(other, _)| *other == key) {
                    Some((_, records)) => records.extend_from_slice(&bytes),
                    None => index.push((key, bytes.clone())),
                }
            }
        }
        for (key, bytes) in index {
            image.insert(root, key, bytes);
        }
    }
    put_compat(image, 1 << 63);
}

fn put_subvolume_usage(image: &mut Image) {
    for (_, root) in image.subvolumes() {
        image.insert(root, Key::new(USAGE, KeyType(162), 0), Vec::new());
        let mut usage = [1u32.to_le_bytes(), 4096u32.to_le_bytes()].concat();
        usage.extend(0u64.to_le_bytes());
        image.insert(root, Key::new(USAGE, KeyType(163), 0x150_0000), usage);
    }
}

fn item(objectid: u64, item_type: u8, offset: u64, fields: &[u64]) -> (Key, Vec<u8>) {
    let bytes = fields.iter().flat_map(|field| field.to_le_bytes());
    (
        Key::new(objectid, KeyType(item_type), offset),
        bytes.collect(),
    )
}

fn put_group_quota(image: &mut Image) {
    let generation = image.superblock.generation.get();
    let items = vec![
        item(0, 240, 0, &[87, generation, 1, 0]),
        item(0, 242, 256, &[generation, 4096, 4096, 4096, 4096]),
        item(0, 244, 256, &[1, 1 << 30, 0, 0, 0]),
    ];
    image.add_tree(RootId(201), items);
}

fn put_user_quota(image: &mut Image) {
    let generation = image.superblock.generation.get();
    let items = vec![
        item(0, 240, 0, &[1, generation, 1, 0, 0, 0, 0, 0]),
        item(0, 245, 0, &[generation, 1, 0, 0, 0, 0]),
        item(256, 241, 0, &[1, 1]),
        item(256, 242, 1024, &[generation, 4096]),
        item(256, 244, 1024, &[0, 1 << 30]),
    ];
    image.add_tree(RootId(200), items);
}

fn put_quota_v2(image: &mut Image) {
    let generation = image.superblock.generation.get();
    let of_groups = vec![
        item(0, 240, 0, &[87, generation, 1, 0]),
        item(0, 242, 256, &[generation, 4096, 4096, 4096, 4096]),
        item(0, 244, 256, &[1, 1 << 30, 0, 0, 0]),
        item(256, 245, 0, &[1, 1, generation, 300, 300, 1, 0, 0]),
    ];
    image.add_tree(RootId(208), of_groups);
    let of_users = vec![
        item(0, 240, 0, &[87, generation, 1, 0, 0, 0, 0, 0]),
        item(256, 242, 1024, &[generation, 4096]),
        item(256, 244, 1024, &[0, 1 << 30]),
    ];
    image.add_tree(RootId(209), of_users);
}

/// Adds a tree with copies of the block groups, up to date or not.
fn put_block_group_copies(image: &mut Image, tree: u64, is_stale: bool) {
    let mut groups = image.items_of(image.tree(RootId::EXTENT_TREE));
    groups.retain(|(key, _)| key.item_type == KeyType::BLOCK_GROUP_ITEM);
    if is_stale {
        for (_, bytes) in &mut groups {
            bytes[..8].fill(0);
        }
    }
    image.add_tree(RootId(tree), groups);
}

fn put_usage_trees(image: &mut Image) {
    let sized = |objectid, item_type, offset, len| {
        (Key::new(objectid, KeyType(item_type), offset), vec![1; len])
    };
    let usage = vec![
        sized(0, 158, 0, 129),
        sized(0, 159, 1, 40),
        sized(256, 160, 0, 133),
    ];
    image.add_tree(RootId(205), usage);
    image.add_tree(RootId(206), vec![sized(0x150_0000, 165, 4096, 9)]);
}

fn put_features(image: &mut Image) {
    let mut status = item(256, 151, 0, &[1]);
    status.1.truncate(4);
    let items = vec![
        item(0, 157, 0, &[1, 1]),
        item(256, 150, 257, &[7]),
        status,
        item(FEATURES, 138, 256, &[0; 12]),
    ];
    image.add_tree(RootId(207), items);
    put_locker(image);
}

fn put_clone_flag(image: &mut Image) {
    let changed = image.edit(image.tree(RootId::EXTENT_TREE), |key, bytes| {
        let is_data = key.item_type == KeyType::EXTENT_ITEM
            && u64::from(bytes[16]) & ExtentFlags::DATA.bits() != 0;
        if is_data {
            // Bit 59 of the flags.
            bytes[23] |= 1 << 3;
        }
        is_data
    });
    assert!(changed > 0, "the image has data");
}

fn put_deduplicated(image: &mut Image) {
    for (_, root) in image.subvolumes() {
        image.edit(root, |key, bytes| {
            let is_extent = key.item_type == KeyType::EXTENT_DATA;
            if is_extent {
                // The high byte of `other_encoding`.
                bytes[19] = 1;
            }
            is_extent
        });
    }
}

/// Puts the attributes that DSM sets on the first inodes of each subvolume.
fn put_xattrs(image: &mut Image) {
    const MOST_INODES: usize = 20;
    let mut create_time = 1_500_000_000u64.to_le_bytes().to_vec();
    create_time.extend(5u32.to_le_bytes());
    let xattrs: [(&[u8], Vec<u8>); 4] = [
        (b"syno.create_time", create_time),
        (b"syno.archive_bit", vec![1, 0, 0, 0]),
        (b"system.syno_acl_self", vec![1; 18]),
        (b"user.syno.com.apple.FinderInfo", vec![0; 32]),
    ];
    for (_, root) in image.subvolumes() {
        let inodes = image.items_of(root).into_iter();
        let inodes = inodes.filter(|(key, _)| {
            key.item_type == KeyType::INODE_ITEM && RootId::FIRST_FREE <= key.objectid
        });
        for (key, _) in inodes.take(MOST_INODES) {
            for (name, value) in &xattrs {
                let hash = u64::from(name_hash(name));
                let key = Key::new(key.objectid, KeyType::XATTR_ITEM, hash);
                image.insert(root, key, xattr(name, value));
            }
        }
    }
}

fn xattr(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut record = vec![0; 17];
    record.extend(1u64.to_le_bytes());
    record.extend((value.len() as u16).to_le_bytes());
    record.extend((name.len() as u16).to_le_bytes());
    record.push(FileKind::RAW_XATTR);
    record.extend(name);
    record.extend(value);
    record
}

/// Changes the generation at which DSM wrote last, as if another system had committed since.
///
/// # Panics
/// As [`put`].
pub fn write_elsewhere(image: &Path) {
    let mut image = Image::open(image);
    let generation = image.superblock.generation.get() - 1;
    image.superblock.padding[565 - 8..].copy_from_slice(&generation.to_le_bytes());
    image.put_superblock();
}

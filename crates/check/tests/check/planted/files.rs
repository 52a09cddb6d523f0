//! Faults of inodes, names and file extents.

use ubtrfs_format::ids::{RootId, objectid};
use ubtrfs_format::item::{DirHead, FileExtent, FileExtentHead, FileKind, InodeFlags, InodeItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::superblock::flags;
use ubtrfs_sim::craft::Crafted;
use zerocopy::FromBytes;

use super::editing::{
    add_u64, edit, edit_key, extent, find, inode, insert, is_plain, items, remove,
};
use super::extents::drop_csums;
use super::{OLDEST, Plant, SMALL_NODES, plant};

const TREE: RootId = RootId::FS_TREE;

fn is_inode_of(kind: FileKind) -> impl Fn(Key, &[u8]) -> bool {
    move |key, bytes| {
        key.item_type == KeyType::INODE_ITEM
            && key.objectid > 256
            && InodeItem::ref_from_bytes(bytes).is_ok_and(|inode| {
                FileKind::from_mode(inode.mode.get()) == Some(kind) && inode.nlink.get() == 1
            })
    }
}

/// Changes the inode of the first item that matches `is_it`.
fn edit_inode_of(
    volume: &mut Crafted,
    is_it: impl Fn(Key, &[u8]) -> bool,
    change: impl Fn(&mut InodeItem),
) {
    let (key, _) = find(volume, TREE, is_it);
    let wanted = Key::new(key.objectid, KeyType::INODE_ITEM, 0);
    edit_key(volume, TREE, wanted, |_, bytes| change(inode(bytes)));
}

fn head(bytes: &mut [u8]) -> &mut DirHead {
    DirHead::mut_from_prefix(bytes).unwrap().0
}

/// Finds the DIR_INDEX of a regular file with one name, and the key of its DIR_ITEM.
fn entry(volume: &mut Crafted) -> (Key, Vec<u8>, Key) {
    let all = items(volume, TREE);
    let file = is_inode_of(FileKind::Regular);
    let files: Vec<u64> = all
        .iter()
        .filter(|(key, bytes)| file(*key, bytes))
        .map(|(key, _)| key.objectid)
        .collect();
    let (index, bytes) = all
        .iter()
        .find(|(key, bytes)| {
            key.item_type == KeyType::DIR_INDEX
                && DirHead::ref_from_prefix(bytes).is_ok_and(|(head, _)| {
                    files.contains(&head.location.objectid.get()) && head.name_len.get() > 8
                })
        })
        .expect("a file with one name");
    let name = &bytes[size_of::<DirHead>()..];
    let hash = u64::from(ubtrfs_format::name_hash::name_hash(name));
    let item = Key::new(index.objectid, KeyType::DIR_ITEM, hash);
    (*index, bytes.clone(), item)
}

fn child(bytes: &[u8]) -> u64 {
    let (head, _) = DirHead::ref_from_prefix(bytes).unwrap();
    head.location.objectid.get()
}

pub(super) fn plants() -> Vec<Plant> {
    let mut plants = inode_plants();
    plants.extend(extent_plants());
    plants.extend(name_plants());
    plants
}

fn inode_plants() -> Vec<Plant> {
    vec![
        plant(701, &[], |volume| {
            // Only the first item of a leaf: otherwise the leaf would be corrupt.
            let mut done = false;
            volume.edit_leaves(TREE, |items| {
                let fits = items[0].0.item_type == KeyType::INODE_ITEM
                    && items[0].0.objectid > 256
                    && items[1].0.objectid == items[0].0.objectid;
                if !fits || done {
                    return false;
                }
                items.remove(0);
                done = true;
                true
            });
            assert!(done, "no leaf begins with an inode");
        })
        .on(SMALL_NODES),
        plant(701, &[309], |volume| {
            insert(volume, TREE, Key::new(5, KeyType(130), 7), b"unknown");
        }),
        plant(702, &[], |volume| {
            edit(volume, TREE, is_inode_of(FileKind::Regular), |_, bytes| {
                inode(bytes).nlink = 2.into();
            });
        }),
        plant(703, &[], |volume| {
            edit(
                volume,
                TREE,
                is_inode_of(FileKind::Directory),
                |_, bytes| {
                    add_u64(&mut inode(bytes).size, 2);
                },
            );
        }),
        plant(704, &[], |volume| {
            edit(volume, TREE, is_inode_of(FileKind::Regular), |_, bytes| {
                add_u64(&mut inode(bytes).nbytes, 4096);
            });
        }),
        plant(705, &[702], |volume| {
            edit(volume, TREE, is_inode_of(FileKind::Regular), |_, bytes| {
                inode(bytes).nlink = 0.into();
            });
        }),
        plant(706, &[], |volume| {
            let key = Key::new(objectid::ORPHAN, KeyType::ORPHAN_ITEM, 99_999);
            insert(volume, TREE, key, &[]);
        }),
        plant(711, &[718], |volume| {
            edit_inode_of(volume, is_plain, |inode| {
                inode.mode = (inode.mode.get() & 0o7777 | 0o010_000).into();
            });
        }),
        plant(712, &[718], |volume| {
            let index =
                |key: Key, _: &[u8]| key.item_type == KeyType::DIR_INDEX && key.objectid > 256;
            edit_inode_of(volume, index, |inode| {
                inode.mode = (inode.mode.get() & 0o7777 | 0o010_000).into();
            });
        }),
        plant(720, &[714, 715], |volume| {
            let (key, _) = find(volume, TREE, is_inode_of(FileKind::Directory));
            let mut bytes = 77u64.to_le_bytes().to_vec();
            bytes.extend([1, 0, b'x']);
            let parent = items(volume, TREE)
                .into_iter()
                .filter(|(other, _)| {
                    is_inode_of(FileKind::Directory)(*other, &[])
                        || other.item_type == KeyType::DIR_INDEX
                })
                .map(|(other, _)| other.objectid)
                .rfind(|&other| other != key.objectid)
                .unwrap();
            let key = Key::new(key.objectid, KeyType::INODE_REF, parent);
            insert(volume, TREE, key, &bytes);
        }),
        plant(721, &[701], |volume| {
            let wanted = Key::new(256, KeyType::INODE_ITEM, 0);
            remove(volume, TREE, |key, _| key == wanted);
        }),
        plant(722, &[], |volume| {
            edit(volume, TREE, is_inode_of(FileKind::Symlink), |_, bytes| {
                add_u64(&mut inode(bytes).size, 1);
            });
        }),
        plant(726, &[], |volume| {
            edit(volume, TREE, is_inode_of(FileKind::Symlink), |_, bytes| {
                set_flag(inode(bytes), InodeFlags::IMMUTABLE);
            });
        }),
        plant(726, &[], |volume| {
            edit(volume, TREE, is_inode_of(FileKind::Symlink), |_, bytes| {
                set_flag(inode(bytes), InodeFlags::APPEND);
            });
        }),
    ]
}

fn set_flag(inode: &mut InodeItem, flag: InodeFlags) {
    inode.flags = (inode.flags() | flag).bits().into();
}

fn is_hole(key: Key, bytes: &[u8]) -> bool {
    key.item_type == KeyType::EXTENT_DATA
        && matches!(FileExtent::decode(bytes), Some(FileExtent::Regular { body, .. }) if body.disk().is_none())
}

fn is_compressed(key: Key, bytes: &[u8]) -> bool {
    key.item_type == KeyType::EXTENT_DATA
        && matches!(
            FileExtent::decode(bytes),
            Some(FileExtent::Regular { head, body, .. })
                if head.compression != 0 && body.disk().is_some()
        )
}

fn is_prealloc(key: Key, bytes: &[u8]) -> bool {
    key.item_type == KeyType::EXTENT_DATA
        && matches!(
            FileExtent::decode(bytes),
            Some(FileExtent::Regular { prealloc: true, .. })
        )
}

fn extent_plants() -> Vec<Plant> {
    vec![
        plant(707, &[704, 710], |volume| {
            // Only across leaves: within one leaf, this would make the leaf corrupt.
            let mut lasts = Vec::new();
            volume.edit_leaves(TREE, |items| {
                lasts.push((items[0].0, items.last().unwrap().clone()));
                false
            });
            lasts.sort();
            let pair = lasts.windows(2).find(|pair| {
                let ((_, (last, _)), (first, _)) = (&pair[0], &pair[1]);
                let is_extent = |key: &Key| key.item_type == KeyType::EXTENT_DATA;
                last.objectid == first.objectid && is_extent(last) && is_extent(first)
            });
            let wanted = pair.expect("a file with extents in two leaves")[0].1.0;
            edit_key(volume, TREE, wanted, |_, bytes| {
                add_u64(&mut extent(bytes).1.num_bytes, 4096);
            });
        })
        .on(SMALL_NODES),
        plant(708, &[], |volume| {
            remove(volume, TREE, is_hole);
        })
        .on(OLDEST),
        plant(709, &[], |volume| {
            let long = |key: Key, bytes: &[u8]| is_plain(key, bytes) && key.offset > 8192;
            edit_inode_of(volume, long, |inode| inode.size = 4096.into());
        }),
        plant(729, &[], |volume| {
            edit(volume, TREE, is_prealloc, |_, bytes| {
                extent(bytes).0.compression = 1;
            });
        }),
        plant(710, &[704, 802], |volume| {
            edit(volume, TREE, is_prealloc, |_, bytes| {
                add_u64(&mut extent(bytes).1.num_bytes, 1 << 30);
            });
        }),
        plant(710, &[], |volume| {
            edit(volume, TREE, is_hole, |_, bytes| {
                add_u64(&mut extent(bytes).1.offset, 1 << 40);
            });
        })
        .on(OLDEST),
        plant(710, &[], |volume| {
            edit(volume, TREE, is_plain, |_, bytes| {
                extent(bytes).0.ram_bytes = 0.into();
            });
        }),
        plant(724, &[], |volume| {
            edit(volume, TREE, is_plain, |_, bytes| {
                extent(bytes).0.generation = 0.into();
            });
        }),
        plant(725, &[801], |volume| {
            let (key, _) = find(volume, TREE, is_compressed);
            let extents: Vec<(u64, u64)> = items(volume, TREE)
                .iter_mut()
                .filter(|(other, bytes)| {
                    other.objectid == key.objectid && is_compressed(*other, bytes)
                })
                .map(|(_, bytes)| {
                    let body = extent(bytes).1;
                    (body.disk_bytenr.get(), body.disk_num_bytes.get())
                })
                .collect();
            edit_inode_of(
                volume,
                |other, _| other == key,
                |inode| set_flag(inode, InodeFlags::NODATASUM),
            );
            for (start, length) in extents {
                drop_csums(volume, start, length);
            }
        }),
        plant(713, &[704], |volume| {
            let compressed = |key: Key, bytes: &[u8]| {
                key.item_type == KeyType::EXTENT_DATA
                    && matches!(FileExtent::decode(bytes), Some(FileExtent::Inline { head, .. }) if head.compression != 0)
            };
            edit(volume, TREE, compressed, |_, bytes| {
                let (head, _) = FileExtentHead::mut_from_prefix(bytes).unwrap();
                head.ram_bytes = 8192.into();
            });
        }),
    ]
}

fn name_plants() -> Vec<Plant> {
    vec![
        plant(714, &[703], |volume| {
            let (_, _, item) = entry(volume);
            remove(volume, TREE, |key, _| key == item);
        }),
        plant(715, &[703], |volume| {
            let (index, _, _) = entry(volume);
            remove(volume, TREE, |key, _| key == index);
        }),
        plant(716, &[702], |volume| {
            let (index, bytes, _) = entry(volume);
            let wanted = Key::new(child(&bytes), KeyType::INODE_REF, index.objectid);
            remove(volume, TREE, |key, _| key == wanted);
        }),
        plant(717, &[714, 715], |volume| {
            let (index, _, item) = entry(volume);
            for wanted in [index, item] {
                edit_key(volume, TREE, wanted, |_, bytes| {
                    head(bytes).location.objectid = 99_999.into();
                });
            }
        }),
        plant(717, &[714, 715], |volume| {
            let (index, _, _) = entry(volume);
            edit_key(volume, TREE, index, |_, bytes| {
                head(bytes).location.item_type = 0;
            });
        }),
        plant(718, &[], |volume| {
            let (index, _, item) = entry(volume);
            for wanted in [index, item] {
                edit_key(volume, TREE, wanted, |_, bytes| head(bytes).type_ = 2);
            }
        }),
        plant(719, &[], |volume| {
            let (index, _, _) = entry(volume);
            edit_key(volume, TREE, index, |key, _| key.offset = 1 << 40);
        }),
        plant(723, &[], |volume| name_twice(volume, true)),
        plant(723, &[], |volume| name_twice(volume, false)),
        plant(728, &[], |volume| {
            let (_, bytes, _) = entry(volume);
            let (_, mut inode_bytes) = find(volume, TREE, is_inode_of(FileKind::Directory));
            let dir = inode(&mut inode_bytes);
            dir.nlink = 0.into();
            dir.size = 0.into();
            let number = 99_999;
            for (objectid, item_type, offset, bytes) in [
                (number, KeyType::INODE_ITEM, 0, &inode_bytes),
                (number, KeyType::DIR_INDEX, 2, &bytes),
                (objectid::ORPHAN, KeyType::ORPHAN_ITEM, number, &Vec::new()),
            ] {
                insert(volume, TREE, Key::new(objectid, item_type, offset), bytes);
            }
        }),
        plant(727, &[], |volume| {
            volume.edit_superblocks(
                |_, _| true,
                |sb| sb.flags = (sb.flags.get() | flags::METADUMP).into(),
            );
            let (_, _, item) = entry(volume);
            edit_key(volume, TREE, item, |key, _| key.offset += 1);
        }),
        plant(723, &[703], |volume| {
            let (index, bytes, _) = entry(volume);
            let key = Key {
                offset: 1 << 40,
                ..index
            };
            insert(volume, TREE, key, &bytes);
        }),
    ]
}

/// Adds a complete second directory entry with the same name, for the same inode or another one.
fn name_twice(volume: &mut Crafted, is_same: bool) {
    let (index, bytes, item) = entry(volume);
    let first = child(&bytes);
    let file = is_inode_of(FileKind::Regular);
    let (other, _) = find(volume, TREE, |key, bytes| {
        file(key, bytes) && (key.objectid == first) == is_same
    });
    let mut second = bytes.clone();
    head(&mut second).location.objectid = other.objectid.into();
    edit_key(volume, TREE, item, |_, bytes| bytes.extend(&second));
    let new_index = Key {
        offset: 1 << 40,
        ..index
    };
    insert(volume, TREE, new_index, &second);

    let name = &bytes[size_of::<DirHead>()..];
    let mut reference = new_index.offset.to_le_bytes().to_vec();
    reference.extend((name.len() as u16).to_le_bytes());
    reference.extend(name);
    let ref_key = Key::new(other.objectid, KeyType::INODE_REF, index.objectid);
    let has_ref = items(volume, TREE).iter().any(|(key, _)| *key == ref_key);
    if has_ref {
        edit_key(volume, TREE, ref_key, |_, bytes| bytes.extend(&reference))
    } else {
        insert(volume, TREE, ref_key, &reference)
    }
    edit_key(volume, TREE, other, |_, bytes| {
        inode(bytes).nlink = 2.into()
    });
    let dir = Key::new(index.objectid, KeyType::INODE_ITEM, 0);
    edit_key(volume, TREE, dir, |_, bytes| {
        add_u64(&mut inode(bytes).size, 2 * name.len() as u64);
    });
}

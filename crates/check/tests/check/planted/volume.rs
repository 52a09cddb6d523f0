//! Faults of superblocks, devices, chunks, block groups, tree blocks and roots.

use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::{RootId, objectid};
use ubtrfs_format::item::{BlockGroupItem, Chunk, DevExtent, DevItem, InodeItem, RootItem, Stripe};
use ubtrfs_format::key::{DiskKey, Key, KeyType};
use ubtrfs_format::node::{Node, header_flags};
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, Superblock, flags};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_sim::craft::Crafted;
use ubtrfs_sim::fault;
use zerocopy::{FromBytes, IntoBytes};

use super::editing::{add_u64, edit, edit_key, edit_type, find, insert, items, remove};
use super::{OLDEST, Plant, RAID1, SMALL_NODES, plant};

const CHUNK_TREE: RootId = RootId::CHUNK_TREE;
const DEV_TREE: RootId = RootId::DEV_TREE;
const ROOT_TREE: RootId = RootId::ROOT_TREE;

fn superblocks(volume: &mut Crafted, edit: impl Fn(&mut Superblock)) {
    volume.edit_superblocks(|_, _| true, edit);
}

/// Changes the device item in the chunk tree and in the superblock.
fn device_items(volume: &mut Crafted, change: impl Fn(&mut DevItem)) {
    edit_type(volume, CHUNK_TREE, KeyType::DEV_ITEM, |_, bytes| {
        change(DevItem::mut_from_bytes(bytes).unwrap());
    });
    superblocks(volume, |superblock| change(&mut superblock.dev_item));
}

fn dev_extent(bytes: &mut [u8]) -> &mut DevExtent {
    DevExtent::mut_from_bytes(bytes).unwrap()
}

/// Returns the last created data chunk: its key and item.
fn data_chunk(volume: &mut Crafted) -> (Key, Vec<u8>) {
    let chunks = items(volume, CHUNK_TREE);
    let mut chunks = chunks.into_iter().rev();
    let is_data = |bytes: &[u8]| {
        let (chunk, _, _) = Chunk::split(bytes).unwrap();
        chunk.flags().contains(BlockGroupFlags::DATA)
    };
    chunks.find(|(_, bytes)| is_data(bytes)).unwrap()
}

fn stripes(bytes: &mut [u8]) -> &mut [Stripe] {
    <[Stripe]>::mut_from_bytes(&mut bytes[size_of::<Chunk>()..]).unwrap()
}

fn is_metadata_chunk(key: Key, bytes: &[u8]) -> bool {
    key.item_type == KeyType::CHUNK_ITEM
        && Chunk::split(bytes)
            .is_some_and(|(chunk, _, _)| chunk.flags().contains(BlockGroupFlags::METADATA))
}

/// Returns the end of the last chunk.
fn end_of_chunks(volume: &mut Crafted) -> u64 {
    let (key, bytes) = items(volume, CHUNK_TREE).pop().unwrap();
    key.offset + Chunk::split(&bytes).unwrap().0.length.get()
}

fn block_group(start: u64, length: u64, flags: BlockGroupFlags) -> (Key, Vec<u8>) {
    let item = BlockGroupItem {
        used: 0.into(),
        chunk_objectid: objectid::FIRST_CHUNK_TREE.into(),
        flags: flags.bits().into(),
    };
    let key = Key::new(start, KeyType::BLOCK_GROUP_ITEM, length);
    (key, item.as_bytes().to_vec())
}

fn find_dev_extent(volume: &mut Crafted) -> (Key, Vec<u8>) {
    let all = items(volume, DEV_TREE);
    let mut extents = all.into_iter().rev();
    let found = extents.find(|(key, _)| key.item_type == KeyType::DEV_EXTENT);
    found.unwrap()
}

/// Returns a leaf of the checksum tree, whose loss affects only checksums.
fn csum_leaf(volume: &Crafted) -> u64 {
    volume.blocks_of(RootId::CSUM_TREE, 0)[0]
}

fn subvolume(volume: &mut Crafted) -> Key {
    let is_subvolume = |key: Key, _: &[u8]| {
        key.item_type == KeyType::ROOT_ITEM && (256..1 << 40).contains(&key.objectid)
    };
    find(volume, ROOT_TREE, is_subvolume).0
}

fn root_ref(dir: u64, name: &[u8]) -> Vec<u8> {
    let mut bytes = dir.to_le_bytes().to_vec();
    bytes.extend(99u64.to_le_bytes());
    bytes.extend((name.len() as u16).to_le_bytes());
    bytes.extend(name);
    bytes
}

/// Returns a predicate for an entry of the root directory that refers to a subvolume.
fn is_subvolume_entry(item_type: KeyType) -> impl Fn(Key, &[u8]) -> bool {
    move |key, bytes| {
        key.item_type == item_type
            && DiskKey::ref_from_prefix(bytes)
                .is_ok_and(|(location, _)| location.get().item_type == KeyType::ROOT_ITEM)
    }
}

/// Changes the key offset of a tree's root item from 0.
fn move_root_item(volume: &mut Crafted, tree: RootId) {
    let wanted = Key::new(tree.0, KeyType::ROOT_ITEM, 0);
    edit_key(volume, ROOT_TREE, wanted, |key, _| key.offset = 7);
}

pub(super) fn plants() -> Vec<Plant> {
    let mut plants = superblock_plants();
    plants.extend(chunk_plants());
    plants.extend(block_plants());
    plants.extend(root_plants());
    plants
}

fn superblock_plants() -> Vec<Plant> {
    vec![
        plant(101, &[], |volume| {
            volume.write((0, SUPERBLOCK_OFFSETS[1] + 0x12b), b"damaged");
        }),
        plant(102, &[], |_| {}).breaking(|_, devices| {
            let range = SUPERBLOCK_OFFSETS[1]..SUPERBLOCK_OFFSETS[1] + 4096;
            devices[0].1.add(fault::Fault::ReadRange { range });
        }),
        plant(103, &[], |volume| {
            volume.edit_superblocks(|_, copy| copy == 1, |sb| sb.label[0] = b'x');
        }),
        plant(104, &[], |volume| {
            volume.edit_superblocks(|_, copy| copy == 1, |sb| add_u64(&mut sb.generation, !0));
        }),
        plant(105, &[], |volume| {
            volume.edit_superblocks(
                |device, _| device == 1,
                |sb| add_u64(&mut sb.generation, !0),
            );
        })
        .on(RAID1),
        plant(106, &[], |_| {})
            .on(RAID1)
            .breaking(|_, devices| devices.truncate(1)),
        plant(107, &[], |volume| {
            device_items(volume, |item| add_u64(&mut item.total_bytes, 64 << 20));
            superblocks(volume, |sb| add_u64(&mut sb.total_bytes, 64 << 20));
        }),
        plant(108, &[203, 206], |volume| {
            let (key, bytes) = data_chunk(volume);
            let start = end_of_chunks(volume);
            let mut bytes = bytes;
            let (chunk, _) = Chunk::mut_from_prefix(&mut bytes).unwrap();
            chunk.type_ = BlockGroupFlags::SYSTEM.bits().into();
            chunk.length = (1 << 20).into();
            stripes(&mut bytes)[0].offset = (200 << 20).into();
            let key = Key {
                offset: start,
                ..key
            };
            insert(volume, CHUNK_TREE, key, &bytes);
        }),
        plant(109, &[], |volume| {
            superblocks(volume, |sb| {
                let at = size_of::<DiskKey>() + size_of::<Chunk>() + size_of::<Stripe>();
                let second = &mut sb.sys_chunk_array[at..at + size_of::<Stripe>()];
                add_u64(&mut Stripe::mut_from_bytes(second).unwrap().offset, 65536);
            });
        }),
        plant(110, &[], |volume| {
            superblocks(volume, |sb| add_u64(&mut sb.num_devices, 1));
        }),
        plant(111, &[], |volume| {
            superblocks(volume, |sb| add_u64(&mut sb.total_bytes, 1 << 20));
        }),
        plant(111, &[], |volume| {
            superblocks(volume, |sb| add_u64(&mut sb.total_bytes, -4096i64 as u64));
        }),
        plant(112, &[], |volume| {
            superblocks(volume, |sb| add_u64(&mut sb.bytes_used, 4096));
        }),
        plant(113, &[], |volume| {
            superblocks(volume, |sb| add_u64(&mut sb.dev_item.bytes_used, 4096));
        }),
        plant(114, &[], |volume| {
            let shrink = |bytes: &mut _| add_u64(bytes, -512i64 as u64);
            device_items(volume, |item| shrink(&mut item.total_bytes));
            superblocks(volume, |sb| shrink(&mut sb.total_bytes));
        }),
        plant(114, &[111], |volume| {
            device_items(volume, |item| {
                add_u64(&mut item.total_bytes, -512i64 as u64)
            });
            superblocks(volume, |sb| add_u64(&mut sb.total_bytes, -4096i64 as u64));
        }),
        plant(115, &[], |volume| {
            superblocks(volume, |sb| set_flag(sb, flags::CHANGING_BG_TREE));
        }),
        plant(115, &[], |volume| {
            superblocks(volume, |sb| set_flag(sb, flags::CHANGING_DATA_CSUM));
        }),
        plant(116, &[], |volume| {
            edit_type(volume, CHUNK_TREE, KeyType::DEV_ITEM, |_, bytes| {
                DevItem::mut_from_bytes(bytes).unwrap().fsid = Uuid([7; 16]);
            });
        }),
    ]
}

fn set_flag(superblock: &mut Superblock, flag: u64) {
    superblock.flags = (superblock.flags.get() | flag).into();
}

fn chunk_plants() -> Vec<Plant> {
    vec![
        plant(201, &[204, 207, 416, 506], |volume| {
            let (wanted, _) = data_chunk(volume);
            edit_key(volume, CHUNK_TREE, wanted, |_, bytes| {
                add_u64(&mut stripes(bytes)[0].offset, 1);
            });
        }),
        plant(202, &[], |volume| {
            let (key, bytes) = data_chunk(volume);
            let key = Key {
                offset: key.offset + (1 << 20),
                ..key
            };
            insert(volume, CHUNK_TREE, key, &bytes);
        }),
        plant(203, &[], |volume| {
            remove(volume, RootId::EXTENT_TREE, |key, _| {
                key.item_type == KeyType::BLOCK_GROUP_ITEM
            });
        }),
        plant(204, &[], |volume| {
            let start = end_of_chunks(volume);
            let (key, bytes) = block_group(start, 1 << 20, BlockGroupFlags::DATA);
            insert(volume, RootId::EXTENT_TREE, key, &bytes);
        }),
        plant(205, &[], |volume| {
            let tree = RootId::EXTENT_TREE;
            edit_type(volume, tree, KeyType::BLOCK_GROUP_ITEM, |_, bytes| {
                let group = BlockGroupItem::mut_from_bytes(bytes).unwrap();
                group.flags = (group.flags() | BlockGroupFlags::RAID1).bits().into();
            });
        }),
        plant(206, &[211], |volume| {
            let (wanted, _) = find_dev_extent(volume);
            remove(volume, DEV_TREE, |key, _| key == wanted);
        }),
        plant(207, &[211], |volume| {
            let (key, bytes) = find_dev_extent(volume);
            let key = Key {
                offset: 220 << 20,
                ..key
            };
            insert(volume, DEV_TREE, key, &bytes);
        }),
        plant(208, &[211], |volume| {
            let (wanted, _) = find_dev_extent(volume);
            edit_key(volume, DEV_TREE, wanted, |_, bytes| {
                add_u64(&mut dev_extent(bytes).length, -65536i64 as u64);
            });
        }),
        plant(210, &[], |volume| {
            let sb = volume.superblock();
            let (total, used) = (sb.total_bytes.get(), sb.dev_item.bytes_used.get());
            device_items(volume, |item| item.total_bytes = item.bytes_used);
            superblocks(volume, |sb| sb.total_bytes = used.into());
            assert!(used < total);
        }),
        plant(211, &[], |volume| {
            device_items(volume, |item| add_u64(&mut item.bytes_used, 4096));
        }),
        plant(212, &[207], |volume| {
            let (key, bytes) = find_dev_extent(volume);
            let key = Key { objectid: 9, ..key };
            insert(volume, DEV_TREE, key, &bytes);
        }),
        plant(213, &[], |volume| {
            edit(volume, CHUNK_TREE, is_metadata_chunk, |_, bytes| {
                stripes(bytes)[1].dev_uuid = Uuid([7; 16]);
            });
        }),
        plant(214, &[], |volume| {
            let (key, _) = data_chunk(volume);
            let start = key.offset + (1 << 20);
            let (key, bytes) = block_group(start, 1 << 20, BlockGroupFlags::DATA);
            insert(volume, RootId::EXTENT_TREE, key, &bytes);
        }),
    ]
}

fn block_plants() -> Vec<Plant> {
    vec![
        plant(301, &[], |volume| {
            let leaf = csum_leaf(volume);
            for (device, offset) in volume.places(leaf).to_vec() {
                volume.write((device, offset + 200), b"damaged");
            }
        }),
        plant(302, &[], |_| {}).breaking(|volume, devices| {
            let leaf = csum_leaf(volume);
            for &(device, offset) in volume.places(leaf) {
                let range = offset..offset + 4096;
                devices[device].1.add(fault::Fault::ReadRange { range });
            }
        }),
        plant(303, &[], |volume| {
            let mut firsts = Vec::new();
            volume.edit_leaves(RootId::CSUM_TREE, |items| {
                firsts.push(items[0].0);
                false
            });
            let first = firsts.into_iter().min().unwrap();
            let mut last = None;
            volume.edit_leaves(RootId::CSUM_TREE, |items| {
                if items[0].0 == first {
                    last = items.last().map(|(key, _)| *key);
                }
                false
            });
            edit_key(volume, RootId::CSUM_TREE, last.unwrap(), |key, _| {
                key.offset = 1 << 50;
            });
        })
        .on(SMALL_NODES),
        plant(304, &[402], |volume| {
            remove(volume, ROOT_TREE, |key, _| {
                key.objectid == RootId::CSUM_TREE.0 && key.item_type == KeyType::ROOT_ITEM
            });
        }),
        plant(305, &[], |volume| {
            let (device, offset) = volume.places(csum_leaf(volume))[0];
            volume.write((device, offset + 200), b"damaged");
        }),
        plant(306, &[403], |volume| {
            let leaf = volume.blocks_of(RootId::FS_TREE, 0)[0];
            let newer = volume.superblock().generation.get() + 1;
            volume.edit_header(leaf, |header| header.generation = newer.into());
            volume.edit_pointers_to(leaf, &|ptr| ptr.generation = newer.into());
        }),
        plant(307, &[], |volume| {
            // A leaf with data would cause more faults: references to data belong to its owner.
            let leaves = volume.blocks_of(RootId::FS_TREE, 0);
            let leaf = leaves.into_iter().find(|&leaf| {
                let block = volume.block(leaf);
                let mut items = Node::new(&block).unwrap().items();
                items.all(|(key, _)| key.item_type != KeyType::EXTENT_DATA)
            });
            volume.edit_header(leaf.unwrap(), |header| header.owner = 256.into());
        }),
        plant(309, &[], |volume| {
            let key = Key::new(257, KeyType(130), 7);
            insert(volume, RootId::FS_TREE, key, b"unknown");
        }),
        plant(311, &[], |volume| {
            let is_root = |key: Key, _: &[u8]| key.item_type == KeyType::ROOT_ITEM;
            let (key, bytes) = find(volume, ROOT_TREE, is_root);
            insert(volume, RootId::UUID_TREE, key, &bytes);
        }),
        plant(312, &[], |volume| {
            let leaf = csum_leaf(volume);
            let relocated = header_flags::RELOC;
            volume.edit_header(leaf, |header| {
                header.flags = (header.flags.get() | relocated).into();
            });
        }),
        plant(312, &[], |volume| {
            let leaf = csum_leaf(volume);
            volume.edit_header(leaf, |header| header.flags = header_flags::WRITTEN.into());
        }),
        plant(730, &[], |volume| {
            let is_inode = |key: Key, _: &[u8]| key.item_type == KeyType::INODE_ITEM;
            let (key, mut bytes) = find(volume, RootId::FS_TREE, is_inode);
            let item = InodeItem::mut_from_bytes(&mut bytes).unwrap();
            item.mode = 0o100_600.into();
            item.nlink = 1.into();
            item.nbytes = 0.into();
            let key = Key {
                objectid: objectid::FREE_INO,
                ..key
            };
            insert(volume, RootId::FS_TREE, key, &bytes);
            let key = Key::new(objectid::FREE_SPACE, KeyType::UNTYPED, 0);
            let mut header = Key::new(objectid::FREE_INO, KeyType::INODE_ITEM, 0);
            header.offset = 0;
            let mut bytes = DiskKey::from(header).as_bytes().to_vec();
            bytes.extend([0; 24]);
            insert(volume, RootId::FS_TREE, key, &bytes);
        }),
    ]
}

fn root_plants() -> Vec<Plant> {
    vec![
        plant(601, &[], |volume| {
            edit_type(volume, ROOT_TREE, KeyType::ROOT_BACKREF, |_, bytes| {
                bytes[8] += 1;
            });
        }),
        plant(602, &[], |volume| {
            remove(volume, ROOT_TREE, |key, _| {
                key.item_type == KeyType::ROOT_REF
            });
        }),
        plant(603, &[703], |volume| {
            let entry = is_subvolume_entry(KeyType::DIR_ITEM);
            remove(volume, RootId::FS_TREE, entry);
        }),
        plant(604, &[703], |volume| {
            let entry = is_subvolume_entry(KeyType::DIR_INDEX);
            remove(volume, RootId::FS_TREE, entry);
        }),
        plant(605, &[603, 604], |volume| {
            let bytes = root_ref(256, b"nothing");
            let key = Key::new(5, KeyType::ROOT_REF, 9999);
            insert(volume, ROOT_TREE, key, &bytes);
            let key = Key::new(9999, KeyType::ROOT_BACKREF, 5);
            insert(volume, ROOT_TREE, key, &bytes);
        }),
        plant(606, &[], |volume| {
            let (key, _) = remove(volume, ROOT_TREE, |key, _| {
                key.item_type == KeyType::ROOT_REF
            });
            remove(volume, ROOT_TREE, |other, _| {
                other.item_type == KeyType::ROOT_BACKREF && other.objectid == key.offset
            });
        }),
        plant(607, &[610], |volume| {
            let wanted = subvolume(volume);
            edit_key(volume, ROOT_TREE, wanted, |_, bytes| {
                RootItem::mut_from_bytes(bytes).unwrap().refs = 0.into();
            });
        }),
        plant(608, &[], |volume| {
            let key = Key::new(objectid::ORPHAN, KeyType::ORPHAN_ITEM, 9999);
            insert(volume, ROOT_TREE, key, &[]);
        }),
        plant(609, &[], |volume| {
            remove(volume, RootId::UUID_TREE, |_, _| true);
        }),
        plant(610, &[], |volume| {
            let key = Key::new(1, KeyType::UUID_KEY_SUBVOL, 2);
            insert(volume, RootId::UUID_TREE, key, &256u64.to_le_bytes());
        }),
        plant(611, &[], |volume| {
            let is_default = |key: Key, _: &[u8]| {
                (key.objectid, key.item_type) == (objectid::ROOT_TREE_DIR, KeyType::DIR_ITEM)
            };
            edit(volume, ROOT_TREE, is_default, |_, bytes| {
                let (location, _) = DiskKey::mut_from_prefix(bytes).unwrap();
                location.objectid = 9999.into();
            });
        }),
        plant(612, &[703], |volume| {
            // The copy of a nested subvolume in a snapshot has no ROOT_REF.
            let refs: Vec<(u64, u64)> = items(volume, ROOT_TREE)
                .iter()
                .filter(|(key, _)| key.item_type == KeyType::ROOT_REF)
                .map(|(key, _)| (key.objectid, key.offset))
                .collect();
            let entry = is_subvolume_entry(KeyType::DIR_INDEX);
            for tree in [261, 262, 263] {
                let is_copied = |key: Key, bytes: &[u8]| {
                    let child = || DiskKey::ref_from_prefix(bytes).unwrap().0.objectid.get();
                    entry(key, bytes) && !refs.contains(&(tree, child()))
                };
                let has = items(volume, RootId(tree));
                if has.iter().any(|(key, bytes)| is_copied(*key, bytes)) {
                    remove(volume, RootId(tree), is_copied);
                    return;
                }
            }
            panic!("no copied entry in a leaf of a snapshot's own");
        })
        .on(OLDEST),
        plant(613, &[], |volume| move_root_item(volume, RootId::CSUM_TREE)),
        plant(613, &[], |volume| {
            move_root_item(volume, RootId::EXTENT_TREE)
        }),
        plant(613, &[], |volume| {
            move_root_item(volume, RootId::FREE_SPACE_TREE)
        }),
        plant(613, &[], |volume| move_root_item(volume, DEV_TREE)),
        plant(614, &[], |volume| {
            let wanted = subvolume(volume);
            edit_key(volume, ROOT_TREE, wanted, |_, bytes| {
                RootItem::mut_from_bytes(bytes).unwrap().received_uuid = Uuid([7; 16]);
            });
        }),
    ]
}

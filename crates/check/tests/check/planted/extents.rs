//! Faults of extents, references to them, and checksums.

use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::{RootId, objectid};
use ubtrfs_format::item::{
    Chunk, ExtentDataRef, ExtentFlags, ExtentHead, FileExtent, InlineRef, InodeFlags, InodeItem,
    STRIPE_LEN, SharedDataRef, decode_extent,
};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::Node;
use ubtrfs_sim::craft::Crafted;
use ubtrfs_sim::fault;
use zerocopy::{FromBytes, IntoBytes};

use super::editing::{add_u64, edit, edit_key, extent, find, insert, is_plain, items, remove};
use super::{Plant, SMALL_NODES, plant};

const TREE: RootId = RootId::EXTENT_TREE;
const CSUM_TREE: RootId = RootId::CSUM_TREE;
const HEAD: usize = size_of::<ExtentHead>();
const NODE: u64 = 16_384;

fn head(bytes: &mut [u8]) -> &mut ExtentHead {
    ExtentHead::mut_from_prefix(bytes).unwrap().0
}

fn is_data(key: Key, bytes: &[u8]) -> bool {
    key.item_type == KeyType::EXTENT_ITEM
        && decode_extent(key.item_type, bytes)
            .is_some_and(|extent| extent.head.flags().contains(ExtentFlags::DATA))
}

/// Returns the first inline reference of an extent.
fn first_ref(key: Key, bytes: &[u8]) -> Option<InlineRef> {
    decode_extent(key.item_type, bytes)?.refs.next()
}

fn is_block_of(root: RootId) -> impl Fn(Key, &[u8]) -> bool {
    move |key, bytes| {
        key.item_type == KeyType::METADATA_ITEM
            && first_ref(key, bytes) == Some(InlineRef::TreeBlock { root: root.0 })
    }
}

/// Returns whether it is a leaf of the checksum tree, which has no references to other blocks.
fn is_csum_leaf(key: Key, bytes: &[u8]) -> bool {
    is_block_of(CSUM_TREE)(key, bytes) && key.offset == 0
}

fn has_ref(kind: KeyType) -> impl Fn(Key, &[u8]) -> bool {
    move |key, bytes| {
        matches!(key.item_type, KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM)
            && first_ref(key, bytes).is_some_and(|reference| reference.key_type() == kind)
    }
}

/// Returns the address of free space at the end of the last chunk of this type.
fn free_at_end(volume: &mut Crafted, flags: BlockGroupFlags, bytes: u64) -> u64 {
    let chunks = items(volume, RootId::CHUNK_TREE);
    let ends = chunks.iter().filter_map(|(key, bytes)| {
        let chunk = Chunk::split(bytes).filter(|_| key.item_type == KeyType::CHUNK_ITEM)?;
        let fits = chunk.0.flags().contains(flags);
        fits.then(|| key.offset + chunk.0.length.get())
    });
    ends.max().unwrap() - bytes
}

/// Returns a leaf that is reachable from its owner and has no data extents.
fn leaf_without_data(volume: &mut Crafted) -> u64 {
    let extents = items(volume, TREE);
    let is_held = |leaf: u64, tree: RootId| {
        let mut extents = extents.iter();
        let found = extents.find(|(key, _)| key.objectid == leaf);
        let (key, bytes) = found.expect("its extent item");
        let flags = decode_extent(key.item_type, bytes).unwrap().head.flags();
        !flags.contains(ExtentFlags::FULL_BACKREF)
            && first_ref(*key, bytes) == Some(InlineRef::TreeBlock { root: tree.0 })
    };
    let has_data = |leaf: u64| {
        let block = volume.block(leaf);
        let mut items = Node::new(&block).unwrap().items();
        items.any(|(key, _)| key.item_type == KeyType::EXTENT_DATA)
    };
    let subvolumes = (256..265).chain([5]).map(RootId);
    let mut leaves = subvolumes.flat_map(|tree| {
        let leaves = volume.blocks_of(tree, 0).into_iter();
        leaves.map(move |leaf| (leaf, tree))
    });
    let found = leaves.find(|&(leaf, tree)| is_held(leaf, tree) && !has_data(leaf));
    found.expect("such a leaf").0
}

fn new_head(flags: ExtentFlags) -> Vec<u8> {
    let head = ExtentHead {
        refs: 1.into(),
        generation: 5.into(),
        flags: flags.bits().into(),
    };
    head.as_bytes().to_vec()
}

fn tree_ref(root: RootId) -> Vec<u8> {
    let mut bytes = vec![KeyType::TREE_BLOCK_REF.0];
    bytes.extend(root.0.to_le_bytes());
    bytes
}

/// Creates the item of a data extent of one sector with a reference from a file.
fn unused_data() -> Vec<u8> {
    let mut bytes = new_head(ExtentFlags::DATA);
    bytes.push(KeyType::EXTENT_DATA_REF.0);
    let reference = ExtentDataRef {
        root: 5.into(),
        objectid: 257.into(),
        offset: 0.into(),
        count: 1.into(),
    };
    bytes.extend(reference.as_bytes());
    bytes
}

fn insert_data(volume: &mut Crafted, bytenr: u64) {
    let key = Key::new(bytenr, KeyType::EXTENT_ITEM, 4096);
    insert(volume, TREE, key, &unused_data());
}

pub(super) fn plants() -> Vec<Plant> {
    let mut plants = block_plants();
    plants.extend(data_plants());
    plants.extend(place_plants());
    plants.extend(csum_plants());
    plants
}

fn block_plants() -> Vec<Plant> {
    vec![
        plant(401, &[112, 501, 502], |volume| {
            remove(volume, TREE, is_csum_leaf);
        }),
        plant(402, &[112, 501, 503], |volume| {
            let bytenr = free_at_end(volume, BlockGroupFlags::METADATA, NODE);
            let mut bytes = new_head(ExtentFlags::TREE_BLOCK);
            bytes.extend(tree_ref(RootId::FS_TREE));
            let key = Key::new(bytenr, KeyType::METADATA_ITEM, 0);
            insert(volume, TREE, key, &bytes);
        }),
        plant(403, &[], |volume| {
            edit(volume, TREE, is_csum_leaf, |_, bytes| {
                add_u64(&mut head(bytes).generation, !0);
            });
        }),
        plant(404, &[405], |volume| {
            edit(volume, TREE, is_csum_leaf, |_, bytes| {
                bytes[HEAD + 1..HEAD + 9].copy_from_slice(&9u64.to_le_bytes());
            });
        }),
        plant(405, &[404], |volume| {
            edit(volume, TREE, is_block_of(RootId::FS_TREE), |_, bytes| {
                bytes[HEAD + 1..HEAD + 9].copy_from_slice(&300u64.to_le_bytes());
            });
        }),
        plant(406, &[405, 420], |volume| {
            // The children of the block must now refer to it as the parent.
            let is_node = |key: Key, bytes: &[u8]| {
                is_block_of(RootId::FS_TREE)(key, bytes) && key.offset == 1
            };
            edit(volume, TREE, is_node, |_, bytes| {
                let head = head(bytes);
                head.flags = (head.flags() | ExtentFlags::FULL_BACKREF).bits().into();
            });
        }),
        plant(420, &[], |volume| {
            let leaf = leaf_without_data(volume);
            let is_it = |key: Key, _: &[u8]| key.objectid == leaf;
            edit(volume, TREE, is_it, |_, bytes| {
                let head = head(bytes);
                head.flags = (head.flags() | ExtentFlags::FULL_BACKREF).bits().into();
            });
        })
        .on(SMALL_NODES),
        plant(421, &[112, 402, 501, 503], |volume| {
            let end = free_at_end(volume, BlockGroupFlags::METADATA, 0);
            let bytenr = end / STRIPE_LEN * STRIPE_LEN - STRIPE_LEN - 4096;
            let mut bytes = new_head(ExtentFlags::TREE_BLOCK);
            bytes.extend(tree_ref(RootId::FS_TREE));
            let key = Key::new(bytenr, KeyType::METADATA_ITEM, 0);
            insert(volume, TREE, key, &bytes);
        }),
        plant(407, &[404], |volume| {
            edit(volume, TREE, is_csum_leaf, |_, bytes| {
                bytes[HEAD] = KeyType::SHARED_BLOCK_REF.0;
                bytes[HEAD + 1..HEAD + 9].copy_from_slice(&(40u64 << 20).to_le_bytes());
            });
        }),
    ]
}

fn holds_ref(kind: KeyType) -> impl Fn(Key, &[u8]) -> bool {
    move |key, bytes| {
        let is_extent = matches!(key.item_type, KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM);
        let extent = decode_extent(key.item_type, bytes).filter(|_| is_extent);
        extent.is_some_and(|mut extent| extent.refs.any(|reference| reference.key_type() == kind))
    }
}

/// Returns the offset of the first inline reference of a kind in a skinny item.
fn place_of_ref(bytes: &[u8], kind: KeyType) -> usize {
    let mut refs = decode_extent(KeyType::METADATA_ITEM, bytes).unwrap().refs;
    loop {
        let at = bytes.len() - refs.rest().len();
        if refs.next().expect("has such a reference").key_type() == kind {
            return at;
        }
    }
}

fn data_plants() -> Vec<Plant> {
    vec![
        plant(408, &[112, 501, 502], |volume| {
            let single = has_ref(KeyType::EXTENT_DATA_REF);
            remove(volume, TREE, single);
        }),
        plant(409, &[112, 501, 503], |volume| {
            let bytenr = free_at_end(volume, BlockGroupFlags::DATA, 4096);
            insert_data(volume, bytenr);
        }),
        plant(410, &[], |volume| {
            let single = has_ref(KeyType::EXTENT_DATA_REF);
            edit(volume, TREE, single, |_, bytes| {
                add_u64(&mut head(bytes).refs, 1);
                bytes[HEAD + 25] += 1;
            });
        }),
        plant(411, &[], |volume| {
            let shared = holds_ref(KeyType::SHARED_DATA_REF);
            edit(volume, TREE, shared, |_, bytes| {
                add_u64(&mut head(bytes).refs, 1);
                let at = place_of_ref(bytes, KeyType::SHARED_DATA_REF);
                let count = &mut bytes[at + 9..at + 13];
                let count = SharedDataRef::mut_from_bytes(count).unwrap();
                count.count = (count.count.get() + 1).into();
            });
        }),
        plant(412, &[], |volume| {
            edit(volume, RootId::FS_TREE, is_plain, |_, bytes| {
                add_u64(&mut extent(bytes).1.disk_num_bytes, 4096);
            });
        }),
        plant(413, &[], |volume| {
            edit(volume, TREE, is_data, |_, bytes| {
                add_u64(&mut head(bytes).refs, 1);
            });
        }),
        plant(414, &[], |volume| {
            let bytenr = free_at_end(volume, BlockGroupFlags::DATA, 4096);
            let key = Key::new(bytenr, KeyType::TREE_BLOCK_REF, 5);
            insert(volume, TREE, key, &[]);
        }),
    ]
}

fn place_plants() -> Vec<Plant> {
    vec![
        // The first extent of a leaf is extended over the last one of the previous leaf. Within one leaf, this would
        // make the leaf corrupt.
        plant(415, &[401, 403, 405, 502], |volume| {
            let mut ends = Vec::new();
            volume.edit_leaves(TREE, |items| {
                ends.push((items[0].0, items.last().unwrap().0));
                false
            });
            ends.sort_unstable();
            let is_block = |key: Key| key.item_type == KeyType::METADATA_ITEM;
            let mut pairs = ends.windows(2);
            let pair = pairs.find(|pair| is_block(pair[0].1) && is_block(pair[1].0));
            let (last, first) = pair.map(|pair| (pair[0].1, pair[1].0)).unwrap();
            edit_key(volume, TREE, first, |key, _| {
                key.objectid = last.objectid;
                key.offset = last.offset + 1;
            });
        })
        .on(SMALL_NODES),
        plant(416, &[112, 409], |volume| {
            let bytenr = free_at_end(volume, BlockGroupFlags::DATA, 0);
            insert_data(volume, bytenr + (1 << 30));
        }),
        plant(417, &[112, 409, 501, 503], |volume| {
            let bytenr = free_at_end(volume, BlockGroupFlags::METADATA, NODE);
            insert_data(volume, bytenr);
        }),
        plant(418, &[112, 501, 503], |volume| {
            let bytenr = free_at_end(volume, BlockGroupFlags::DATA, 4096);
            let mut bytes = new_head(ExtentFlags::DATA);
            bytes.extend(tree_ref(RootId::FS_TREE));
            let key = Key::new(bytenr, KeyType::EXTENT_ITEM, 4096);
            insert(volume, TREE, key, &bytes);
        }),
        plant(419, &[], |volume| {
            edit(volume, TREE, is_csum_leaf, |_, bytes| {
                let head = head(bytes);
                head.flags = (head.flags() | ExtentFlags::FULL_BACKREF).bits().into();
            });
        }),
    ]
}

/// Returns the address of a sector of a file without checksums.
fn unsummed_data(volume: &mut Crafted) -> u64 {
    let all = items(volume, RootId::FS_TREE);
    let mut unsummed = None;
    for (key, bytes) in &all {
        match key.item_type {
            KeyType::INODE_ITEM => {
                let inode = InodeItem::ref_from_bytes(bytes).unwrap();
                let is_unsummed = inode.flags().contains(InodeFlags::NODATASUM);
                unsummed = is_unsummed.then_some(key.objectid);
            }
            KeyType::EXTENT_DATA if unsummed == Some(key.objectid) => {
                if let Some(FileExtent::Regular { body, .. }) = FileExtent::decode(bytes)
                    && let Some(disk) = body.disk()
                {
                    return disk.0 + body.offset.get();
                }
            }
            _ => {}
        }
    }
    panic!("no file without checksums");
}

fn csum_key(bytenr: u64) -> Key {
    Key::new(objectid::EXTENT_CSUM, KeyType::EXTENT_CSUM, bytenr)
}

/// Removes the checksums of a range of addresses.
pub(super) fn drop_csums(volume: &mut Crafted, start: u64, length: u64) {
    const SUM: usize = 4;
    volume.edit_leaves(CSUM_TREE, |items| {
        let mut left: Vec<(Key, Vec<u8>)> = Vec::new();
        for (key, bytes) in std::mem::take(items) {
            let mut next = None;
            for (sum, at) in bytes.chunks(SUM).zip((key.offset..).step_by(4096)) {
                if (start..start + length).contains(&at) {
                    continue;
                }
                match left.last_mut().filter(|_| next == Some(at)) {
                    Some((_, run)) => run.extend(sum),
                    None => left.push((csum_key(at), sum.to_vec())),
                }
                next = Some(at + 4096);
            }
        }
        *items = left;
        true
    });
}

fn csum_plants() -> Vec<Plant> {
    vec![
        plant(801, &[], |volume| {
            edit(
                volume,
                CSUM_TREE,
                |_, _| true,
                |_, bytes| {
                    let len = bytes.len();
                    bytes.truncate(len - 4);
                },
            );
        }),
        plant(801, &[], |volume| {
            let is_compressed = |key: Key, bytes: &[u8]| {
                key.item_type == KeyType::EXTENT_DATA
                    && matches!(
                        FileExtent::decode(bytes),
                        Some(FileExtent::Regular { head, body, .. })
                            if head.compression != 0 && body.disk().is_some()
                    )
            };
            let (_, mut bytes) = find(volume, RootId::FS_TREE, is_compressed);
            let disk = extent(&mut bytes).1.disk_bytenr.get();
            drop_csums(volume, disk, 4096);
        }),
        plant(802, &[805], |volume| {
            let bytenr = unsummed_data(volume);
            insert(volume, CSUM_TREE, csum_key(bytenr), &[1, 2, 3, 4]);
        }),
        plant(803, &[805], |volume| {
            let bytenr = free_at_end(volume, BlockGroupFlags::DATA, 4096);
            insert(volume, CSUM_TREE, csum_key(bytenr), &[1, 2, 3, 4]);
        }),
        plant(804, &[805], |volume| {
            // The last item of a leaf is extended over the first one of the next leaf.
            let mut ends = Vec::new();
            volume.edit_leaves(CSUM_TREE, |items| {
                ends.push((items[0].0, items.last().unwrap().clone()));
                false
            });
            ends.sort();
            let (last, sums) = ends[0].1.clone();
            let next = ends[1].0;
            let sectors = (next.offset - last.offset) / 4096;
            let found = sums.len() as u64 / 8;
            assert_eq!(found, sectors, "the items adjoin");
            edit_key(volume, CSUM_TREE, last, |_, bytes| bytes.extend([9; 8]));
        })
        .on(SMALL_NODES),
        plant(805, &[], |volume| {
            let (_, bytes) = find(volume, RootId::FS_TREE, is_plain);
            let mut bytes = bytes;
            let disk = extent(&mut bytes).1.disk_bytenr.get();
            let place = data_place(volume, disk);
            volume.write((0, place + 100), b"damaged data");
        }),
        plant(806, &[], |_| {}).breaking(|volume, devices| {
            let mut volume = volume.clone();
            let (_, mut bytes) = find(&mut volume, RootId::FS_TREE, is_plain);
            let disk = extent(&mut bytes).1.disk_bytenr.get();
            let place = data_place(&mut volume, disk);
            let range = place..place + 4096;
            devices[0].1.add(fault::Fault::ReadRange { range });
        }),
    ]
}

/// Returns the offset on the device of data with the single profile.
fn data_place(volume: &mut Crafted, bytenr: u64) -> u64 {
    let chunks = items(volume, RootId::CHUNK_TREE);
    for (key, bytes) in &chunks {
        if let Some((chunk, stripes, _)) =
            Chunk::split(bytes).filter(|_| key.item_type == KeyType::CHUNK_ITEM)
            && (key.offset..key.offset + chunk.length.get()).contains(&bytenr)
        {
            return stripes[0].offset.get() + bytenr - key.offset;
        }
    }
    panic!("{bytenr} is in no chunk");
}

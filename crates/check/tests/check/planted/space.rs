//! Faults of block groups and the free-space tree.

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{BlockGroupItem, FreeSpaceInfo};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_sim::craft::Crafted;
use zerocopy::{FromBytes, IntoBytes};

use super::editing::{add_u64, edit_type, find, insert, remove};
use super::{Plant, plant};

const TREE: RootId = RootId::FREE_SPACE_TREE;

fn is_free(key: Key, _: &[u8]) -> bool {
    key.item_type == KeyType::FREE_SPACE_EXTENT && key.objectid > 21 << 20
}

/// Changes the extent count of the block group at this address.
fn count(volume: &mut Crafted, bytenr: u64, change: i32) {
    let is_info = |key: Key| key.item_type == KeyType::FREE_SPACE_INFO;
    let holds = |key: Key| (key.objectid..key.objectid + key.offset).contains(&bytenr);
    super::editing::edit(
        volume,
        TREE,
        |key, _| is_info(key) && holds(key),
        |_, bytes| {
            let info = FreeSpaceInfo::mut_from_bytes(bytes).unwrap();
            let count = info.extent_count.get().wrapping_add_signed(change);
            info.extent_count = count.into();
        },
    );
}

fn info(count: u32) -> FreeSpaceInfo {
    FreeSpaceInfo {
        extent_count: count.into(),
        flags: 0.into(),
    }
}

pub(super) fn plants() -> Vec<Plant> {
    vec![
        plant(501, &[], |volume| {
            let tree = RootId::EXTENT_TREE;
            edit_type(volume, tree, KeyType::BLOCK_GROUP_ITEM, |_, bytes| {
                add_u64(
                    &mut BlockGroupItem::mut_from_bytes(bytes).unwrap().used,
                    4096,
                );
            });
        }),
        plant(502, &[], |volume| {
            let (key, _) = remove(volume, TREE, is_free);
            count(volume, key.objectid, -1);
        }),
        plant(503, &[], |volume| {
            // A tree block, which is in use, is added as free.
            let root = volume.superblock().root.get();
            let key = Key::new(root, KeyType::FREE_SPACE_EXTENT, 4096);
            insert(volume, TREE, key, &[]);
            count(volume, root, 1);
        }),
        plant(504, &[], |volume| {
            let (key, _) = find(volume, TREE, is_free);
            count(volume, key.objectid, 1);
        }),
        plant(505, &[], |volume| {
            let (info, _) = remove(volume, TREE, |key, _| {
                key.item_type == KeyType::FREE_SPACE_INFO && key.objectid > 21 << 20
            });
            volume.edit_leaves(TREE, |items| {
                let end = info.objectid + info.offset;
                items.retain(|(key, _)| !(info.objectid..end).contains(&key.objectid));
                true
            });
        }),
        plant(506, &[], |volume| {
            let key = Key::new(1 << 40, KeyType::FREE_SPACE_INFO, 1 << 20);
            insert(volume, TREE, key, info(0).as_bytes());
        }),
        plant(507, &[], |volume| {
            let key = Key::new(65536, KeyType::FREE_SPACE_EXTENT, 4096);
            insert(volume, TREE, key, &[]);
        }),
        plant(507, &[309], |volume| {
            let key = Key::new(1 << 40, KeyType(130), 7);
            insert(volume, TREE, key, b"unknown");
        }),
    ]
}

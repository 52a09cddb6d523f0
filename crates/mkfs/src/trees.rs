//! The items of every tree that describes the volume.
//!
//! The trees describe each other: root items contain the addresses of roots, and the extent tree lists every block,
//! including its own. The items are therefore made from a [`Placement`] of the blocks; `tree_placement` repeats this
//! until the placement is stable.
//!
//! Not here: the items of files and checksums, which `files` provides.
//!
//! Source: trees created by mkfs.btrfs 6.14 and the kernel. Zero fields are zero there as well.

use std::iter;
use std::ops::Range;

use ubtrfs_device::chunk_layout::dev_extent;
use ubtrfs_format::ids::{InodeNr, Logical, RootId, objectid};
use ubtrfs_format::item::{
    BlockGroupItem, DevItem, DevStatsItem, DirHead, FileKind, FreeSpaceInfo, InodeItem,
    InodeRefHead, QgroupInfoItem, QgroupLimitItem, QgroupStatusItem, RootItem, RootItemFlags,
    RootRefHead,
};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::name_hash::name_hash;
use ubtrfs_tree::Placement;
use zerocopy::little_endian::U64;
use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::chunks::{PlannedChunk, PlannedDevice, VolumeChunks};
use super::features::QuotaMode;
use super::files::{Files, Subvolume, SubvolumeEntry};
use super::options::{Geometry, Identity};

/// The transaction that creates a volume.
pub(super) const GENERATION: u64 = 1;

/// The mode of the directories in a new volume.
const DIR_MODE: u32 = 0o040_755;
const DEFAULT_SUBVOL_NAME: &[u8] = b"default";
pub(super) const PARENT_NAME: &[u8] = b"..";

const QGROUP_STATUS_VERSION: u64 = 1;
const QGROUP_STATUS_ON: u64 = 1 << 0;
const QGROUP_STATUS_SIMPLE: u64 = 1 << 3;

/// An item for a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) key: Key,
    pub(super) data: Vec<u8>,
}

impl Item {
    pub(super) fn new(key: Key, data: &(impl IntoBytes + Immutable + ?Sized)) -> Item {
        Item {
            key,
            data: data.as_bytes().to_vec(),
        }
    }

    fn empty(key: Key) -> Item {
        let data = Vec::new();
        Item { key, data }
    }
}

/// Owner of internal directories.
const ROOT: (u32, u32) = (0, 0);

/// The data from which the items are made.
#[derive(Clone, Copy)]
pub(super) struct Contents<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) identity: &'a Identity,
    pub(super) layout: &'a VolumeChunks,
    pub(super) files: &'a dyn Files,
}

impl Contents<'_> {
    /// Returns the trees of the volume, in the order of their placement.
    pub(super) fn tree_ids(&self) -> Vec<RootId> {
        let features = &self.geometry.features;
        let mut trees = vec![
            RootId::CHUNK_TREE,
            RootId::ROOT_TREE,
            RootId::EXTENT_TREE,
            RootId::DEV_TREE,
        ];
        let subvolumes = self.files.subvolumes();
        trees.extend(subvolumes.iter().map(|subvolume| subvolume.id));
        trees.extend([
            RootId::CSUM_TREE,
            RootId::UUID_TREE,
            RootId::DATA_RELOC_TREE,
        ]);
        let optional = [
            (RootId::FREE_SPACE_TREE, features.has_free_space_tree()),
            (RootId::BLOCK_GROUP_TREE, features.has_block_group_tree()),
            (RootId::QUOTA_TREE, features.quota.is_some()),
        ];
        trees.extend(optional.iter().filter(|(_, on)| *on).map(|(tree, _)| *tree));
        trees
    }

    /// Returns the items of a tree in key order, with addresses from `known`. Not for the extent tree, nor for trees of
    /// files and checksums.
    pub(super) fn items(&self, tree: RootId, known: &Placement) -> Vec<Item> {
        let mut items = match tree {
            RootId::ROOT_TREE => self.root_tree(known),
            RootId::CHUNK_TREE => self.chunk_tree(),
            RootId::DEV_TREE => self.dev_tree(),
            RootId::FS_TREE => self.root_dir(InodeNr::FIRST_FREE.0, self.geometry.root_owner),
            RootId::DATA_RELOC_TREE => self.root_dir(InodeNr::FIRST_FREE.0, ROOT),
            RootId::UUID_TREE => self.uuid_tree(),
            RootId::FREE_SPACE_TREE => self.free_space_tree(known),
            RootId::BLOCK_GROUP_TREE => self.block_groups(known),
            RootId::QUOTA_TREE => self.quota_tree(known),
            _ => Vec::new(),
        };
        items.sort_by_key(|item| item.key);
        items
    }

    fn root_tree(&self, known: &Placement) -> Vec<Item> {
        let mut items = self.root_dir(objectid::ROOT_TREE_DIR, ROOT);
        let fs_tree = RootId::FS_TREE.0;
        let dir = objectid::ROOT_TREE_DIR;
        items.push(inode_ref(fs_tree, dir, DEFAULT_SUBVOL_NAME));
        items.push(self.default_subvol());
        let in_superblock = [RootId::ROOT_TREE, RootId::CHUNK_TREE];
        for tree in self.tree_ids() {
            if !in_superblock.contains(&tree) {
                let key = Key::new(tree.0, KeyType::ROOT_ITEM, 0);
                items.push(Item::new(key, &self.root_item(tree, known)));
            }
        }
        for subvolume in self.files.subvolumes() {
            if let Some(entry) = &subvolume.entry {
                items.extend(root_refs(subvolume.id, entry));
            }
        }
        items
    }

    fn subvolume(&self, id: RootId) -> Option<&Subvolume> {
        let mut subvolumes = self.files.subvolumes().iter();
        subvolumes.find(|subvolume| subvolume.id == id)
    }

    fn root_item(&self, tree: RootId, known: &Placement) -> RootItem {
        let root = known.root(tree);
        let nodesize = self.geometry.nodesize;
        let mut item = if tree.holds_files() {
            RootItem::new_subvolume(nodesize)
        } else {
            RootItem::new_internal(nodesize)
        };
        item.generation = GENERATION.into();
        item.generation_v2 = GENERATION.into();
        item.bytenr = root.logical.0.into();
        item.level = root.level;
        item.bytes_used = self.bytes_used(tree, known).into();
        if let Some(subvolume) = self.subvolume(tree) {
            item.uuid = subvolume.uuid;
            item.ctime = self.identity.created;
            item.otime = self.identity.created;
            if subvolume.is_read_only {
                item.flags = RootItemFlags::RDONLY.bits().into();
            }
            if subvolume.entry.is_some() {
                item.ctransid = GENERATION.into();
                item.otransid = GENERATION.into();
            }
        }
        item
    }

    fn bytes_used(&self, tree: RootId, known: &Placement) -> u64 {
        known.blocks_of(tree) * u64::from(self.geometry.nodesize)
    }

    /// Returns the entry of the default subvolume.
    fn default_subvol(&self) -> Item {
        let name = DEFAULT_SUBVOL_NAME;
        let head = DirHead {
            location: subvolume_location(self.files.default_subvolume()).into(),
            transid: GENERATION.into(),
            data_len: 0.into(),
            name_len: (name.len() as u16).into(),
            type_: FileKind::Directory.raw(),
        };
        let hash = u64::from(name_hash(name));
        Item {
            key: Key::new(objectid::ROOT_TREE_DIR, KeyType::DIR_ITEM, hash),
            data: [head.as_bytes(), name].concat(),
        }
    }

    /// Returns the items of a directory that is its own parent.
    fn root_dir(&self, ino: u64, (uid, gid): (u32, u32)) -> Vec<Item> {
        let created = self.identity.created;
        let mut inode = InodeItem::new_zeroed();
        inode.generation = GENERATION.into();
        inode.nbytes = u64::from(self.geometry.nodesize).into();
        inode.nlink = 1.into();
        inode.mode = DIR_MODE.into();
        inode.uid = uid.into();
        inode.gid = gid.into();
        inode.atime = created;
        inode.ctime = created;
        inode.mtime = created;
        inode.otime = created;
        vec![
            Item::new(Key::new(ino, KeyType::INODE_ITEM, 0), &inode),
            inode_ref(ino, ino, PARENT_NAME),
        ]
    }

    fn chunk_tree(&self) -> Vec<Item> {
        let devices = self.layout.devices.iter().map(|device| {
            let key = Key::new(objectid::DEV_ITEMS, KeyType::DEV_ITEM, device.devid.0);
            Item::new(key, &dev_item(self.geometry, self.identity, device))
        });
        let chunks = self.layout.chunks.iter().map(|chunk| Item {
            key: chunk.key(),
            data: chunk.item(),
        });
        devices.chain(chunks).collect()
    }

    fn dev_tree(&self) -> Vec<Item> {
        let stats = self.layout.devices.iter().map(|device| {
            let key = Key::new(objectid::DEV_STATS, KeyType::DEV_STATS, device.devid.0);
            Item::new(key, &DevStatsItem::new_zeroed())
        });
        let mut items: Vec<Item> = stats.collect();
        for chunk in &self.layout.chunks {
            let extent = dev_extent(&chunk.map, self.identity.chunk_tree_uuid);
            for stripe in chunk.map.stripes() {
                let key = Key::new(stripe.devid.0, KeyType::DEV_EXTENT, stripe.physical.0);
                items.push(Item::new(key, &extent));
            }
        }
        items
    }

    fn uuid_tree(&self) -> Vec<Item> {
        let item = |subvolume: &Subvolume| {
            let (objectid, offset) = subvolume.uuid.key_halves();
            let key = Key::new(objectid, KeyType::UUID_KEY_SUBVOL, offset);
            Item::new(key, &U64::new(subvolume.id.0))
        };
        self.files.subvolumes().iter().map(item).collect()
    }

    /// Returns the used ranges of a chunk, ascending: data, then blocks.
    fn used_ranges(&self, chunk: usize, known: &Placement) -> impl Iterator<Item = Range<u64>> {
        let nodesize = u64::from(self.geometry.nodesize);
        let data = self.files.used(chunk).iter().cloned();
        let map = &self.layout.chunks[chunk].map;
        let blocks = known.blocks_in(map.logical()..map.end());
        data.chain(blocks.map(move |Logical(block)| block..block + nodesize))
    }

    pub(super) fn block_groups(&self, known: &Placement) -> Vec<Item> {
        let item = |(number, chunk): (usize, &PlannedChunk)| {
            let used = self.used_ranges(number, known);
            let used: u64 = used.map(|range| range.end - range.start).sum();
            let item = BlockGroupItem {
                used: used.into(),
                chunk_objectid: objectid::FIRST_CHUNK_TREE.into(),
                flags: chunk.map.flags().bits().into(),
            };
            Item::new(group_key(chunk, KeyType::BLOCK_GROUP_ITEM), &item)
        };
        self.layout.chunks.iter().enumerate().map(item).collect()
    }

    /// Returns the free space as extent items. The ranges of superblocks count as free here.
    fn free_space_tree(&self, known: &Placement) -> Vec<Item> {
        let mut items = Vec::new();
        for (number, chunk) in self.layout.chunks.iter().enumerate() {
            let mut free = Vec::new();
            let mut from = chunk.map.logical().0;
            let end = chunk.map.end().0;
            for used in self.used_ranges(number, known).chain(iter::once(end..end)) {
                if used.start > from {
                    let key = Key::new(from, KeyType::FREE_SPACE_EXTENT, used.start - from);
                    free.push(Item::empty(key));
                }
                from = used.end;
            }
            let info = FreeSpaceInfo {
                extent_count: (free.len() as u32).into(),
                flags: 0.into(),
            };
            items.push(Item::new(group_key(chunk, KeyType::FREE_SPACE_INFO), &info));
            items.extend(free);
        }
        items
    }

    /// Returns a qgroup for each subvolume, and a status item that is enabled and consistent.
    fn quota_tree(&self, known: &Placement) -> Vec<Item> {
        let simple = self.geometry.features.quota == Some(QuotaMode::Simple);
        let mut status = QgroupStatusItem::new_zeroed();
        status.version = QGROUP_STATUS_VERSION.into();
        status.generation = GENERATION.into();
        status.flags = QGROUP_STATUS_ON.into();
        if simple {
            status.flags = (QGROUP_STATUS_ON | QGROUP_STATUS_SIMPLE).into();
            status.enable_gen = GENERATION.into();
        }
        let mut items = vec![Item::new(Key::new(0, KeyType::QGROUP_STATUS, 0), &status)];
        for subvolume in self.files.subvolumes() {
            // Subvolumes share no blocks yet.
            let used = self.bytes_used(subvolume.id, known) + subvolume.data_bytes;
            let info = QgroupInfoItem {
                generation: GENERATION.into(),
                rfer: used.into(),
                rfer_cmpr: used.into(),
                excl: used.into(),
                excl_cmpr: used.into(),
            };
            let key = |item_type| Key::new(0, item_type, subvolume.id.0);
            items.push(Item::new(key(KeyType::QGROUP_INFO), &info));
            let limit = QgroupLimitItem::new_zeroed();
            items.push(Item::new(key(KeyType::QGROUP_LIMIT), &limit));
        }
        items
    }
}

/// Returns the DEV_ITEM of a device.
pub(super) fn dev_item(
    geometry: &Geometry,
    identity: &Identity,
    device: &PlannedDevice,
) -> DevItem {
    let sectorsize = geometry.sectorsize;
    let mut item = DevItem::new_zeroed();
    item.devid = device.devid.0.into();
    item.total_bytes = device.total_bytes.into();
    item.bytes_used = device.bytes_used.into();
    item.io_align = sectorsize.into();
    item.io_width = sectorsize.into();
    item.sector_size = sectorsize.into();
    item.uuid = device.uuid;
    item.fsid = identity.fsid;
    item
}

/// Returns the location in the directory entry of a subvolume. The maximum offset matches any key of the root item.
pub(super) fn subvolume_location(id: RootId) -> Key {
    Key::new(id.0, KeyType::ROOT_ITEM, u64::MAX)
}

/// Returns the ROOT_REF and the ROOT_BACKREF of a subvolume.
fn root_refs(id: RootId, entry: &SubvolumeEntry) -> [Item; 2] {
    let head = RootRefHead {
        dirid: entry.dir.0.into(),
        sequence: entry.index.into(),
        name_len: (entry.name.len() as u16).into(),
    };
    let data = [head.as_bytes(), &entry.name].concat();
    [
        Item {
            key: Key::new(entry.parent.0, KeyType::ROOT_REF, id.0),
            data: data.clone(),
        },
        Item {
            key: Key::new(id.0, KeyType::ROOT_BACKREF, entry.parent.0),
            data,
        },
    ]
}

/// Returns the key of an item for a whole block group.
fn group_key(chunk: &PlannedChunk, item_type: KeyType) -> Key {
    Key::new(chunk.map.logical().0, item_type, chunk.map.len_bytes())
}

fn inode_ref(ino: u64, dir: u64, name: &[u8]) -> Item {
    let head = InodeRefHead {
        index: 0.into(),
        name_len: (name.len() as u16).into(),
    };
    Item {
        key: Key::new(ino, KeyType::INODE_REF, dir),
        data: [head.as_bytes(), name].concat(),
    }
}
